"""Random workloads with gangs under every policy (``random_gangs``)."""

from __future__ import annotations

import pytest

from tests.property.random_gangs import run
from tests.support.gate import examples

PARTS = 4
SEEDS = range(examples(2000))


@pytest.mark.parametrize("part", range(PARTS))
def test_every_plan_for_gangs_keeps_the_rules_and_loses_no_step(part: int) -> None:
    reshapes = sum(run(seed) for seed in SEEDS[part::PARTS])
    assert reshapes > len(SEEDS[part::PARTS]) // 20, "too few gangs gave or got GPUs"
