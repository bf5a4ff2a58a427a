"""Unmodified Keras scripts stop in the middle and go on as if nothing had been.

Every case is compared with the same script run straight, without the hook, on the same devices.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from reshape_sidecar.contract import HookPhase
from reshape_sidecar.wire import EXIT_SAVED
from tests.support.gate import GATE
from tests.support.hook_bed import Ended, Job, plain

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(900)]

SCRIPTS = Path(__file__).parent / "scripts"
CASES = SCRIPTS / "cases.py"
RELATIVE_MAX = 1e-5
"""Rounding between two runs of one script: threads add in another order now and then."""
RESUMED = {
    "arrays": [{"STOP_AT": "11"}, {"STOP_AT": "5"}],
    "no_callbacks": [],
    "pipeline": [{"STOP_AT": "10"}, {"STOP_IN": "epoch_end"}],
    "repeated": [{"STOP_AT": "2"}],
    "unknown_length": [{"STOP_AT": "10"}, {"STOP_AT": "6"}],
    "sequence": [{"STOP_AT": "12"}],
    "several": [
        {"STOP_IN": "evaluate"},
        {"STOP_IN": "predict"},
        {"STOP_AT": "1"},
        {"STOP_AT": "11"},
    ],
    "pair": [{"STOP_AT": "13"}],
    "stateful": [{"STOP_IN": "evaluate"}],
    "averaged": [{"STOP_IN": "evaluate"}],
    "in_turn": [{"STOP_AT": "5"}],
    "shared": [{"STOP_AT": "10"}],
    "part_validated": [{"STOP_AT": "3"}, {"STOP_AT": "3"}],
    "searched": [{"STOP_AT": "8"}, {"STOP_AT": "7"}],
    "read_back": [{"STOP_AT": "12"}, {"STOP_AT": "11"}],
}

GATED = "arrays"
"""The case that the gate runs."""


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """Each case run straight and without the hook, all in one process."""
    cache = str(tmp_path_factory.mktemp("straight") / "cache")
    cases = [GATED] if GATE else RESUMED
    ended = plain(CASES, *cases, PLAIN_DEVICES="2", CACHE=cache)
    assert ended.code == 0, ended.err
    parts = ended.out.split("CASE ")[1:]
    return {part.split("\n", 1)[0]: Ended(0, part, "") for part in parts}


def job(tmp_path: Path, case: str) -> Job:
    files = {"CACHE": str(tmp_path / "cache"), "LOGGED": str(tmp_path / "log.csv")}
    return Job(tmp_path / "job", CASES, (case,), files)


def numbers(lines: list[str]) -> list[tuple[list[str], list[float]]]:
    """Each line's words and numbers."""
    out = []
    for line in lines:
        words, values = [], []
        for word in line.split():
            try:
                values.append(float(word))
            except ValueError:
                words.append(word)
        out.append((words, values))
    return out


def assert_same(got: list[str], wanted: list[str], text: str) -> None:
    """Same lines, numbers equal but for rounding."""
    assert len(got) == len(wanted), f"{text}: {len(got)} lines for {len(wanted)}"
    for (words, values), (words_wanted, values_wanted) in zip(
        numbers(got), numbers(wanted), strict=True
    ):
        assert words == words_wanted, text
        assert values == pytest.approx(values_wanted, rel=RELATIVE_MAX, abs=1e-7), text


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=[pytest.mark.gate] if case == GATED else [])
        for case in RESUMED
        if RESUMED[case]
    ],
)
def test_a_stopped_script_goes_on_with_the_same_steps(
    tmp_path: Path, straight: dict[str, Ended], case: str
) -> None:
    whole = job(tmp_path, case)
    steps: list[str] = []
    for stop in RESUMED[case]:
        ended = whole.run(**stop)
        assert ended.code == EXIT_SAVED, ended.err
        steps += ended.lines("STEP")
        assert whole.newest().manifest.step == ended.reports[-1].progress.step
    last = whole.run()
    assert last.code == 0, last.err
    steps += last.lines("STEP")
    wanted = straight[case]
    assert_same(steps, wanted.lines("STEP"), "no step lost, repeated or changed")
    for word in ("HISTORY", "EPOCHS"):
        assert_same(last.lines(word), wanted.lines(word), f"{case}: {word} at the end")
    assert_same(last.lines("WEIGHTS"), wanted.lines("WEIGHTS"), case)
    assert whole.newest().manifest.complete
    assert last.out.count("TRACED") == wanted.out.count("TRACED"), "its step is traced once more"


def test_a_finished_job_that_is_started_again_trains_nothing(
    tmp_path: Path, straight: dict[str, Ended]
) -> None:
    whole = job(tmp_path, "no_callbacks")
    first = whole.run()
    assert (first.code, whole.newest().manifest.complete) == (0, True), first.err
    again = whole.run()
    assert again.code == 0, again.err
    for ended in (first, again):
        for word in ("HISTORY", "EPOCHS", "WEIGHTS"):
            assert_same(ended.lines(word), straight["no_callbacks"].lines(word), word)
    assert all(report.first_step_s is None for report in again.reports)
    assert again.reports[-1].phase is HookPhase.FINISHED


def test_reports_name_every_phase_of_a_resumed_start(tmp_path: Path) -> None:
    whole = job(tmp_path, "pipeline")
    assert whole.run(STOP_AT="3").code == EXIT_SAVED
    ended = whole.run(STOP_AT="3")
    phases = [report.phase for report in ended.reports]
    wanted = [HookPhase.BUILDING, HookPhase.RESTORING, HookPhase.TRAINING, HookPhase.SAVED]
    # The newest report replaces one that was not sent yet, so early ones may be missing.
    found = [phase for phase in wanted if phase in phases]
    assert found[-1] is HookPhase.SAVED, phases
    assert len(found) > 1, phases
    last = ended.reports[-1]
    for seconds in (last.import_s, last.build_s, last.restore_s, last.first_step_s, last.save_s):
        assert seconds is not None
        assert 0 < seconds < 240
    assert last.generation == 2
    assert (last.progress.step, last.progress.checkpoint_step) == (6, 6)
    assert (last.progress.steps_per_epoch, last.progress.total_steps) == (10, 30)
    assert last.progress.loss is not None
    assert last.progress.accuracy is not None
    assert last.progress.trajectory == "steps-only"
    assert "BatchNormalization" in (last.progress.trajectory_reason or "")


def test_steps_are_counted_over_all_processes_and_fits(tmp_path: Path) -> None:
    whole = job(tmp_path, "several")
    stops = [whole.run(STOP_AT="7"), whole.run(STOP_AT="7")]
    assert [ended.code for ended in stops] == [EXIT_SAVED, EXIT_SAVED]
    by_model: dict[str, int] = defaultdict(int)
    for ended in stops:
        for line in ended.lines("STEP"):
            by_model[line.split()[1]] += 1
    assert by_model == {"teacher": 10, "student": 4}
    assert whole.newest().manifest.step == 14


def test_a_step_is_told_the_same_means_on_other_devices(tmp_path: Path) -> None:
    reshaped = Job(tmp_path / "reshaped", SCRIPTS / "means.py")
    ended = [reshaped.run(1, STOP_AT="2"), reshaped.run(3, STOP_AT="4"), reshaped.run(2)]
    assert [run.code for run in ended] == [EXIT_SAVED, EXIT_SAVED, 0], ended[-1].err
    straight = Job(tmp_path / "straight", SCRIPTS / "means.py").run(1)
    steps = [line for run in ended for line in run.lines("STEP")]
    assert_same(steps, straight.lines("STEP"), "what a callback of the script sees of a step")
