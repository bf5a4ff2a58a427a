"""No report that the hub takes makes the engine or a policy fail, or a row unfit to be written."""

from __future__ import annotations

import pytest

from tests.property.random_reports import run
from tests.support.gate import examples


@pytest.mark.parametrize("seed", range(examples(20)))
def test_what_sidecars_say_ends_nothing(seed: int) -> None:
    assert run(seed) > 0
