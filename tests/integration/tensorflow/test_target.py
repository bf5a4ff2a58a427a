"""A target accuracy ends unmodified Keras scripts at the end of the evaluation that reaches it."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_sidecar.contract import HookPhase
from reshape_sidecar.wire import EXIT_SAVED, TargetProgress
from tests.support.hook_bed import Ended, Job

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(900)]

SCRIPT = Path(__file__).parent / "scripts" / "targets.py"


def job(tmp_path: Path, case: str, target: str, **environment: str) -> Job:
    settings = {"RESHAPE_TARGET_ACCURACY": target, **environment}
    return Job(tmp_path / "job", SCRIPT, (case,), settings)


def judged(ended: Ended) -> TargetProgress:
    target = ended.reports[-1].progress.target
    assert target is not None
    return target


@pytest.mark.gate
def test_the_validation_ends_the_fit_and_the_rest_of_the_script_runs(tmp_path: Path) -> None:
    """The training's own accuracy stays below the target for all of the script's epochs."""
    whole = job(tmp_path, "validated", "0.7")
    ended = whole.run()
    assert ended.code == 0, ended.err
    steps = len(ended.lines("STEP"))
    done, rest = divmod(steps, 10)
    assert (done < 8, rest) == (True, 0), "it ends early, at the end of an epoch"
    assert ended.lines("STOPPED") == ["STOPPED validated True"]
    assert ended.lines("AFTER") == ["AFTER True"]
    found = judged(ended)
    assert (found.metric, found.reached, found.epoch, found.note) == (
        "val_accuracy",
        True,
        done,
        "",
    )
    assert [step for step, _ in found.evaluations] == list(range(10, steps + 1, 10))
    values = [value for _, value in found.evaluations]
    assert [value >= 0.7 for value in values] == [False] * (done - 1) + [True]
    assert ended.reports[-1].phase is HookPhase.FINISHED
    assert whole.newest().manifest.complete


def test_a_fit_without_a_target_reports_the_evaluations_of_its_validations(tmp_path: Path) -> None:
    whole = Job(tmp_path / "job", SCRIPT, ("validated",), {})
    ended = whole.run()
    assert ended.code == 0, ended.err
    progress = ended.reports[-1].progress
    assert progress.target is None
    steps = sorted({each.step for each in progress.evaluations})
    assert steps == list(range(10, 81, 10))
    assert {each.metric for each in progress.evaluations} == {"val_accuracy", "val_loss"}


def test_a_row_goes_on_after_stops_and_each_fit_is_judged(tmp_path: Path) -> None:
    """The first model reaches the target twice in a row in its fourth epoch, the second in its
    third; stops come within the row, and between the target and the end of the fit."""
    whole = job(tmp_path, "scored", "0.8", RESHAPE_METRIC="val_score", RESHAPE_EPOCHS_IN_A_ROW="2")
    runs = [
        whole.run(STOP_AT="13"),  # in the fourth epoch, after one evaluation of the row
        whole.run(STOP_IN_EPOCH_END="1"),  # while the target is reached
        whole.run(),
    ]
    assert [ended.code for ended in runs] == [EXIT_SAVED] * 2 + [0], runs[-1].err
    steps = [line for ended in runs for line in ended.lines("STEP")]
    assert steps == [f"STEP first {n}" for n in range(1, 17)] + [
        f"STEP second {n}" for n in range(1, 13)
    ]
    assert judged(runs[1]).reached
    assert judged(runs[1]).evaluations == ((4, 0.9), (8, 0.5), (12, 0.9), (16, 0.9))
    last = runs[-1]
    assert [line.split()[:3] for line in last.lines("EPOCHS")] == [
        ["EPOCHS", "first", "4"],
        ["EPOCHS", "second", "3"],
    ]
    assert last.lines("STOPPED") == ["STOPPED first True", "STOPPED second True"]
    assert (judged(last).in_a_row, judged(last).evaluations[-1]) == (2, (28, 0.9))


def test_a_loop_of_single_epochs_ends_where_it_ended_before_a_restart(tmp_path: Path) -> None:
    whole = job(tmp_path, "looped", "0.6")
    first = whole.run(STOP_AT="4")
    assert first.code == EXIT_SAVED, first.err
    ended = whole.run()
    assert ended.lines("AFTER") == ["AFTER True"], ended.err
    assert judged(ended).reached
    assert len(ended.lines("STEP")) < 50


def test_without_validation_or_accuracy_the_log_names_what_is_judged(tmp_path: Path) -> None:
    ended = job(tmp_path, "unvalidated", "0.6").run()
    assert ended.code == 0, ended.err
    assert "there is no accuracy among the evaluated ones (loss)" in ended.err
    assert "`fit` has no validation data, so the target accuracy 0.6 is judged on" in ended.err
    assert ended.lines("STOPPED") == ["STOPPED plain False", "STOPPED trained True"]
    assert judged(ended).metric == "accuracy"
    assert "training metric accuracy" in judged(ended).note
