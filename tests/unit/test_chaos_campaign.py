"""The campaign's command, with rounds that are values."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos import __main__ as command
from tests.chaos.bug_table import BUGS, Bug
from tests.chaos.bugs import misfit
from tests.chaos.play import Round


def plays(folder: Path, seed: int, count: int, allowed: tuple[str, ...]) -> Round:
    assert folder.is_dir()
    assert allowed == ("kill-init",)
    found = Round(seed, Counter({"kill-init": count}), jobs=3, containment="cgroup")
    if seed == 6:
        found.violations.append("two hold a GPU")
        found.trace.append("  1.00 VIOLATION two hold a GPU")
    return found


@pytest.fixture(autouse=True)
def _rounds_are_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "play", plays)


def test_a_round_with_a_violation_prints_its_trace_and_the_command_that_repeats_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rounds = command.campaign(70, 4, 2, ("kill-init",))
    assert [sum(each.faults.values()) for each in rounds] == [20, 20, 20, 10]
    printed = capsys.readouterr().out
    repeat = "repeat it: python -m tests.chaos 20 --from 6 --only kill-init\n"
    assert f"  1.00 VIOLATION two hold a GPU\n{repeat}" in printed
    assert printed.count("repeat it") == 1
    assert "70 faults in 4 rounds, 1 rounds with violations, no bound" in command.summary(rounds)


def test_without_a_violation_the_summary_has_the_bound_of_the_rule_of_three() -> None:
    rounds = [Round(0, Counter({"kill-init": 200}), jobs=3, containment="cgroup")]
    assert "0 rounds with violations, bound 1.5 %" in command.summary(rounds)


def test_it_can_end_at_the_first_violation() -> None:
    rounds = command.campaign(200, 4, 1, ("kill-init",), stop=True)
    assert [each.seed for each in rounds] == [4, 5, 6]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_each_planted_bug_still_fits_the_code(bug: Bug) -> None:
    assert not misfit(bug)


def test_a_planted_bug_whose_text_is_gone_is_named() -> None:
    bug = replace(BUGS[0], search="a text that no module has")
    assert f"{bug.name}: its text is 0 times in {bug.path}" in str(misfit(bug))
