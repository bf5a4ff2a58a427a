"""A target accuracy in the engine: points of its curve, and the reason of the job's end."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.model import (
    AccuracySeen,
    GpuId,
    HostId,
    JobId,
    JobState,
    Length,
    LengthUnit,
)
from reshape_controller.fits.convergence import Refits
from reshape_controller.http.render import job_view
from reshape_controller.live.launching import LaunchSettings, launch_spec
from reshape_controller.store.protocol import JobRow
from reshape_sidecar.wire import Progress, TargetProgress
from tests.support.world import World

TARGET = Length(LengthUnit.TARGET_ACCURACY, 0.8)
RISING = tuple((10 * n, 1.0 - 1.0 / (0.08 * 10 * n + 1.5)) for n in range(1, 7))


def world(**fields: object) -> World:
    """A job with a target accuracy that trains on two GPUs."""
    found = World().boot(4)
    found.running("job", 2, 1, 2, length=TARGET, **fields)
    return found


def report(found: World, target: TargetProgress | None, accuracy: float | None = None) -> None:
    c = found.container("job")
    c.step, c.target, c.sequence = c.step + 10, target, c.sequence + 1
    seen = c.observed()
    progress = dataclasses.replace(seen.progress, accuracy=accuracy)
    found.event(ev.SideCarReported(dataclasses.replace(seen, progress=progress)))


def points(found: World) -> list[tuple[int, float]]:
    return [(point.step, point.accuracy) for point in found.job("job").accuracies]


def test_points_come_from_evaluations_and_never_from_running_logs() -> None:
    found = world()
    report(found, TargetProgress(), accuracy=0.9)
    assert points(found) == []
    report(found, TargetProgress("val_accuracy", evaluations=((10, 0.1),)), accuracy=0.95)
    report(found, TargetProgress("val_accuracy", evaluations=((10, 0.1),)), accuracy=0.97)
    assert points(found) == [(10, 0.1)]
    assert found.job("job").progress.accuracy == 0.97


def test_evaluations_of_reports_that_were_lost_are_points_too() -> None:
    found = world()
    report(found, TargetProgress("val_accuracy", evaluations=RISING[:1]))
    report(found, TargetProgress("val_accuracy", evaluations=RISING[:5]))
    assert points(found) == list(RISING[:5])
    (event,) = Refits().due(found.engine.state)
    assert (event.job, event.curve.points) == ("job", 5)


def test_points_of_another_metric_are_dropped() -> None:
    found = world()
    report(found, TargetProgress("accuracy", evaluations=((10, 0.9),)))
    report(found, TargetProgress("val_accuracy", evaluations=((10, 0.1), (20, 0.2))))
    assert points(found) == [(10, 0.1), (20, 0.2)]


def test_a_sidecar_of_the_version_before_teaches_as_it_did() -> None:
    found = world()
    report(found, None, accuracy=0.5)
    assert points(found) == [(10, 0.5)]
    report(found, TargetProgress("val_accuracy", evaluations=((15, 0.2),)), accuracy=0.6)
    assert points(found) == [(15, 0.2)], "points of running logs do not mix with evaluations"


def test_a_process_that_has_evaluated_nothing_yet_hides_no_earlier_evaluation() -> None:
    found = world()
    seen = TargetProgress("val_accuracy", evaluations=((10, 0.1),))
    report(found, seen)
    report(found, TargetProgress())
    assert found.job("job").progress.target == seen


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (
            TargetProgress("val_accuracy", 1, True, 3, ((30, 0.8123),)),
            "reached its target accuracy 0.8: val_accuracy is 0.8123 at step 30, after epoch 3",
        ),
        (
            TargetProgress("val_accuracy", 0, False, 3, ((30, 0.7),)),
            "training finished before its target accuracy 0.8: val_accuracy is 0.7 at step 30, "
            "after epoch 3",
        ),
        (
            TargetProgress(note="there is no accuracy"),
            "training finished; the target accuracy 0.8 was not judged: there is no accuracy",
        ),
        (None, "training finished"),
    ],
)
def test_the_reason_of_the_end_names_metric_value_and_epoch(
    target: TargetProgress | None, words: str
) -> None:
    found = world()
    found.container("job").target = target
    found.finish("job")
    job = found.job("job")
    assert (job.state, job.reason) == (JobState.COMPLETED, words)


def test_describe_shows_the_newest_evaluation_and_the_step_of_the_curve() -> None:
    found = world()
    report(found, TargetProgress("val_accuracy", evaluations=RISING, note="a note"))
    for event in Refits().due(found.engine.state):
        found.event(event)
    job = found.job("job")
    view = job_view(JobRow(job.id, "job", "", job.state, 1, 0.0, job))
    assert (view.metric, view.metric_step, view.target_note) == ("val_accuracy", 60, "a note")
    assert view.metric_value == pytest.approx(RISING[-1][1])
    assert view.target_steps == pytest.approx((5.0 - 1.5) / 0.08, abs=3)


def test_a_program_that_reports_no_evaluation_is_named_while_it_trains() -> None:
    job = world(metric="val_f1").job("job")
    view = job_view(JobRow(job.id, "job", "", job.state, 1, 0.0, job))
    assert (view.metric, view.metric_value) == ("val_f1", None)
    assert "reports no evaluation" in (view.target_note or "")


def test_the_target_is_part_of_the_launch() -> None:
    job = world(metric="val_f1", epochs_in_a_row=3).job("job")
    settings = LaunchSettings("http://127.0.0.1:1", Path("/srv"))
    spec = launch_spec(settings, job, HostId("host"), (GpuId("gpu-0"),), 1, 60.0)
    assert (spec.target_accuracy, spec.metric, spec.epochs_in_a_row) == (0.8, "val_f1", 3)
    assert (spec.length_epochs, spec.length_steps) == (None, None)


def test_points_and_judgement_survive_the_log() -> None:
    found = world()
    report(found, TargetProgress("val_accuracy", 1, False, 1, RISING[:2], "a note"))
    state = found.engine.state
    loaded = type(state).load(state.dump()).jobs[JobId("job")]
    assert loaded.accuracies == tuple(AccuracySeen(*point) for point in RISING[:2])
    assert loaded == found.job("job")
    assert loaded.progress != Progress()
