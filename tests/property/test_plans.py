"""Random plans, failures and kills: what must hold after each event and at the end.

``python -m tests.property.random_plans 100000`` tries more.
"""

from __future__ import annotations

import pytest

from tests.property.random_plans import run
from tests.support.gate import examples

PARTS = 5
SEEDS = range(examples(500))


@pytest.mark.parametrize("part", range(PARTS))
def test_random_plans_leave_no_gpu_in_two_hands_and_no_job_waiting_for_ever(part: int) -> None:
    accepted = sum(run(seed) for seed in SEEDS[part::PARTS])
    assert accepted > 5 * len(SEEDS[part::PARTS]), "too few plans were accepted to show anything"
