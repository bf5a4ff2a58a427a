"""Fixtures of the tests of PyTorch jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon_bed import Bed
from tests.support.daemon_bed import bed as make_bed


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)
