"""A target accuracy: which metric is judged, when it is reached, and what a checkpoint holds."""

from __future__ import annotations

import json
import math

import pytest

from reshape_sidecar.hook import settings
from reshape_sidecar.hook.target import Target, TargetJudge
from reshape_sidecar.wire import TargetProgress

EPOCH = {"accuracy": 0.99, "loss": 0.1, "val_accuracy": 0.5, "val_loss": 1.0}
TRAINING = {"accuracy": 0.99, "loss": 0.1}


def judge(accuracy: float = 0.8, metric: str | None = None, in_a_row: int = 1) -> TargetJudge:
    return TargetJudge(Target(accuracy, metric, in_a_row), lambda progress: None)


def epoch(
    found: TargetJudge, values: dict[str, float], number: int = 1, *, validates: bool = True
) -> bool:
    """Judge epoch ``number`` of ten steps each, with metrics compiled as accuracy and top5_acc."""
    return found.epoch_ended(
        values,
        lambda: ["top5_acc", "accuracy"],
        validates=validates,
        step=10 * number,
        epoch=number,
    )


def test_the_validation_accuracy_is_judged_and_not_that_of_the_training() -> None:
    found = judge(0.8)
    assert not epoch(found, EPOCH)
    assert epoch(found, {**EPOCH, "accuracy": 0.1, "val_accuracy": 0.8}, 2)
    assert found.state == TargetProgress(
        "val_accuracy", 1, True, 2, ((10, 0.5), (20, 0.8)), note=""
    )


def test_without_validation_data_the_training_accuracy_is_judged_and_named() -> None:
    found = judge(0.8)
    assert epoch(found, TRAINING, validates=False)
    assert found.state.metric == "accuracy"
    assert "no validation data" in found.state.note
    assert "training metric accuracy" in found.state.note


def test_the_first_compiled_accuracy_is_judged() -> None:
    found = judge(0.8)
    assert epoch(found, {**EPOCH, "val_top5_acc": 0.9})
    assert found.state.metric == "val_top5_acc"


def test_a_metric_of_the_record_is_judged_in_place_of_the_default() -> None:
    found = judge(0.8, "val_f1")
    assert not epoch(found, {**EPOCH, "val_accuracy": 0.99, "val_f1": 0.3})
    assert epoch(found, {**EPOCH, "val_f1": 0.9}, 2)


def test_several_evaluations_in_a_row_have_to_reach_the_target() -> None:
    found = judge(0.8, in_a_row=2)
    ends = [
        epoch(found, {**EPOCH, "val_accuracy": value}, number)
        for number, value in enumerate((0.9, 0.7, 0.8, 0.85), start=1)
    ]
    assert ends == [False, False, False, True]


def test_an_epoch_without_a_validation_is_not_judged_and_breaks_no_row() -> None:
    found = judge(0.8, in_a_row=2)
    assert not epoch(found, TRAINING, 1)
    assert not epoch(found, {**EPOCH, "val_accuracy": 0.9}, 2)
    assert not epoch(found, TRAINING, 3)
    assert epoch(found, {**EPOCH, "val_accuracy": 0.9}, 4)
    assert found.state.evaluations == ((20, 0.9), (40, 0.9))
    assert found.state.note == ""


@pytest.mark.parametrize(
    ("metric", "values", "validates", "words"),
    [
        (
            "val_accuracy",
            TRAINING,
            False,
            ["no metric val_accuracy", "accuracy, loss", "give `fit`"],
        ),
        ("val_f1", EPOCH, True, ["no metric val_f1", "val_accuracy, val_loss", "`metric`"]),
        (None, {"loss": 1.0, "val_loss": 1.0}, True, ["no accuracy", "loss, val_loss", "`metric`"]),
        (None, {**EPOCH, "val_accuracy": math.nan}, True, ["val_accuracy is nan"]),
        (None, {**EPOCH, "val_accuracy": 93.0}, True, ["is 93", "share from 0 to 1"]),
    ],
)
def test_what_cannot_be_judged_is_named_once_with_the_remedy(
    metric: str | None,
    values: dict[str, float],
    validates: bool,
    words: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = judge(0.3, metric)
    for number in (1, 2):
        assert not epoch(found, values, number, validates=validates)
    assert all(word in found.state.note for word in words), found.state.note
    assert capsys.readouterr().err.count("reshape: ") == 1


def test_each_fit_is_judged_by_itself_and_the_log_names_the_end_of_a_loop(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = judge(0.8, in_a_row=2)
    good = {**EPOCH, "val_accuracy": 0.9}
    assert [epoch(found, good, 1), epoch(found, good, 2)] == [False, True]
    found.fit_begins()
    assert not found.state.reached
    assert [epoch(found, good, 3), epoch(found, good, 4)] == [False, True]
    found.fit_begins()
    assert capsys.readouterr().err.count("leaves by `if model.stop_training: break`") == 1


def test_a_row_goes_on_after_a_restart_and_an_evaluation_that_is_repeated_counts_once() -> None:
    before = judge(0.8, in_a_row=3)
    good = {**EPOCH, "val_accuracy": 0.9}
    epoch(before, good, 1)
    epoch(before, good, 2)
    after = judge(0.8, in_a_row=3)
    after.restore(json.loads(json.dumps(before.saved())))
    assert after.state == before.state
    assert not epoch(after, good, 2)
    assert epoch(after, good, 3)


@pytest.mark.parametrize("saved", [None, {}, judge(0.7).saved()])
def test_the_judgement_of_another_target_or_version_is_not_taken_over(
    saved: dict[str, object] | None,
) -> None:
    found = judge(0.8)
    found.restore(saved)
    assert found.state == TargetProgress()


def test_a_report_holds_the_newest_evaluations_alone() -> None:
    found = judge(1.0)
    for number in range(1, 30):
        epoch(found, EPOCH, number)
    assert [step for step, _ in found.state.evaluations] == list(range(140, 300, 10))


def test_without_a_target_nothing_is_reported_or_saved() -> None:
    reported: list[TargetProgress] = []
    found = TargetJudge(None, reported.append)
    found.fit_begins()
    assert not epoch(found, EPOCH)
    assert (found.saved(), reported, found.active) == (None, [], False)


@pytest.mark.parametrize("value", ["0", "1.5", "nan", "high"])
def test_a_target_that_no_accuracy_can_be_is_named(value: str) -> None:
    with pytest.raises(settings.SettingsError, match=f"RESHAPE_TARGET_ACCURACY='{value}'"):
        settings.from_environment({"RESHAPE_TARGET_ACCURACY": value})
