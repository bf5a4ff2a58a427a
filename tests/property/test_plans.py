"""Random plans, failures and kills: what must hold after each event and at the end.

``python -m tests.property.random_plans 100000`` tries more.
"""

from __future__ import annotations

import pytest

from tests.property import random_plans
from tests.property.random_plans import run
from tests.support.gate import examples

PARTS = 5
SEEDS = range(examples(500))


@pytest.mark.parametrize("part", range(PARTS))
def test_random_plans_leave_no_gpu_in_two_hands_and_no_job_waiting_for_ever(part: int) -> None:
    accepted = sum(run(seed) for seed in SEEDS[part::PARTS])
    assert accepted > 5 * len(SEEDS[part::PARTS]), "too few plans were accepted to show anything"


def test_a_seed_that_fails_prints_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails_at_6(seed: int) -> int:
        assert seed != 6, "a fault"
        return 2

    monkeypatch.setattr(random_plans, "run", fails_at_6)
    assert random_plans.main(seeds=3, first=5, workers=2) == 1
    printed = capsys.readouterr().out
    command = "seed 6 fails; repeat it: python -m tests.property.random_plans 1 --from 6\n"
    assert printed.startswith(command)
    assert "AssertionError: a fault" in printed
    assert "seeds 5 to 7: 4 accepted plans, 1 seeds failed" in printed
