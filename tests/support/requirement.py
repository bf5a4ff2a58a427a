"""What a test needs and a machine may not have."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Fail the test under ``.ci/run``, which must have everything; elsewhere skip it with the
    reason."""
    if "CI_RUN_ID" in os.environ:
        pytest.fail(reason)
    pytest.skip(reason)
