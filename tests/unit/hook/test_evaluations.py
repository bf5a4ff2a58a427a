"""The evaluations that a process reports: the newest, of every job that evaluates."""

from __future__ import annotations

import math

from reshape_sidecar.hook.evaluations import METRICS_MAX, REPORTED_MAX, EvaluationLog
from reshape_sidecar.hook.progress import ProgressReporter
from reshape_sidecar.hook.report import ReportSender
from reshape_sidecar.wire import LEVEL_EVALUATIONS, Evaluation


def log() -> tuple[EvaluationLog, list[tuple[Evaluation, ...]]]:
    reports: list[tuple[Evaluation, ...]] = []
    return EvaluationLog(reports.append), reports


def test_the_metrics_of_a_validation_are_evaluations_and_those_of_the_training_are_not() -> None:
    found, reports = log()
    found.epoch_ended({"loss": 0.5, "val_loss": 0.7, "accuracy": 0.9, "val_accuracy": 0.8}, step=40)
    assert reports[-1] == (
        Evaluation("val_accuracy", 40, 0.8),
        Evaluation("val_loss", 40, 0.7),
    )
    found.epoch_ended({"loss": 0.4}, step=80)
    assert len(reports[-1]) == 2


def test_the_newest_are_reported_and_of_each_epoch_a_few_metrics() -> None:
    found, reports = log()
    for step in range(100):
        found.epoch_ended({f"val_{name}": 1.0 for name in "fedcba"}, step=step)
    assert len(reports[-1]) == REPORTED_MAX
    assert {each.metric for each in reports[-1]} == {f"val_{name}" for name in "abcd"}
    assert METRICS_MAX == 4
    assert reports[-1][-1].step == 99


def test_an_evaluation_that_is_repeated_at_its_step_replaces_the_first() -> None:
    found, reports = log()
    for step, value in ((10, 0.1), (20, 0.2), (20, 0.3)):
        found.add("accuracy", value, step=step)
    assert [(each.step, each.value) for each in reports[-1]] == [(10, 0.1), (20, 0.3)]


def test_figures_and_names_that_no_report_can_hold_are_left_out() -> None:
    found, reports = log()
    found.add("loss", math.nan, step=1)
    found.add("loss", math.inf, step=1)
    found.add("two\nlines", 1.0, step=1)
    found.add("\ud800", 1.0, step=1)
    found.add("x" * 1000, 1.0, step=1)
    assert reports == []


def test_an_agent_that_does_not_know_evaluations_gets_none() -> None:
    for level, known in ((LEVEL_EVALUATIONS - 1, 0), (LEVEL_EVALUATIONS, 1)):
        reporter = ProgressReporter(ReportSender(None), 1, None)
        reporter.level = level
        EvaluationLog(reporter.report_evaluations).add("loss", 1.0, step=1)
        assert len(reporter.progress.evaluations) == known
