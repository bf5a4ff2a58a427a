"""Random plans, failures and kills: what must hold after each event and at the end.

``python -m tests.property.random_plans 100000`` tries more; ``random_handovers`` and
``random_sidecars`` do so for the tests of the same rules over other events.
"""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from tests.property import random_handovers, random_sidecars, seeds
from tests.property.random_plans import run
from tests.support.gate import examples

PARTS = 5
SEEDS = range(examples(500))


@pytest.mark.parametrize("part", range(PARTS))
def test_random_plans_leave_no_gpu_in_two_hands_and_no_job_waiting_for_ever(part: int) -> None:
    accepted = sum(run(seed) for seed in SEEDS[part::PARTS])
    assert accepted > 5 * len(SEEDS[part::PARTS]), "too few plans were accepted to show anything"


def fails_at_6(seed: int) -> int:
    """Stand in for a random test."""
    assert seed != 6, "a fault"
    return 2


def test_a_seed_that_fails_prints_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["seeds", "3", "--from", "5", "--workers", "2"])
    assert seeds.main("tests.property.random_plans", fails_at_6, "accepted plans") == 1
    printed = capsys.readouterr().out
    command = "seed 6 fails; repeat it: python -m tests.property.random_plans 1 --from 6\n"
    assert printed.startswith(command)
    assert "AssertionError: a fault" in printed
    assert "seeds 5 to 7: 4 accepted plans, 1 seeds failed" in printed


@pytest.mark.parametrize("module", [random_handovers, random_sidecars])
def test_a_seed_of_hypothesis_tests_runs_by_command_too(module: ModuleType) -> None:
    assert module.run(1) >= module.STEPS_MIN
    assert module.run(1) == module.run(1)
