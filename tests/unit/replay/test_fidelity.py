"""A scene at a multiple of its speed, and how far a replay of it is from a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.cli.replays import phases
from reshape_controller.core.model import JobId, Length, LengthUnit
from reshape_controller.http.timeline import SPAN_PHASES, JobLane, Span, Timeline
from reshape_controller.replay.fidelity import (
    PhaseError,
    median_phases,
    phase_errors,
    run_error,
    spread,
)
from reshape_controller.replay.inputs import ReplayError, Workload
from reshape_controller.replay.metrics import JobResult
from reshape_controller.replay.shell import Scene
from reshape_controller.replay.time_scaling import STEP_S, scale_scene
from tests.support.replay_bed import FREE, LINEAR, job, run, scene


def at_speed(given: Scene, speed_up: float) -> Scene:
    found = scale_scene(given, speed_up)
    truth = replace(given.truth, device=found.device)
    return replace(given, workload=found.workload, profiles=found.profiles, truth=truth)


def test_a_scene_at_a_speed_up_takes_so_many_times_less() -> None:
    jobs = [job("a", 0.0, 5000), job("b", 4000.0, 3000)]
    real = run(scene(jobs, costs=FREE, spread=0.1), "paper").metrics.makespan_s
    fast = run(at_speed(scene(jobs, costs=FREE, spread=0.1), 50.0), "paper").metrics.makespan_s
    assert fast * 50.0 == pytest.approx(real, rel=0.01)


def test_steps_are_taken_together_until_they_can_be_paced_and_costs_stay() -> None:
    given = scene([job("a", 10.0, 1000, kind="linear")], cluster="8xV100")
    found = scale_scene(given, 100.0)
    (made,) = found.workload.jobs
    seconds = found.device.seconds_per_step["a"]
    # Ten steps of 1 s (on eight GPUs) become one, and that lasts a hundredth of ten seconds.
    assert min(LINEAR[size] for size in (1, 2, 4)) == 2.0
    assert (made.submit_s, made.spec.length) == (0.1, Length(LengthUnit.STEPS, 100.0))
    assert seconds == pytest.approx({1: 0.8, 2: 0.4, 4: 0.2})
    assert min(p.seconds_per_step for p in found.profiles[0].speed) == pytest.approx(STEP_S)


def test_sizes_that_the_host_does_not_have_are_left_out() -> None:
    found = scale_scene(scene([job("a", 0.0, 100, (1, 2, 8))], cluster="4xV100"), 2.0)
    assert found.workload.jobs[0].spec.optional_gpus == (1, 2)


@pytest.mark.parametrize(
    ("given", "speed_up", "what"),
    [
        (scene([job("a", 0.0, 9)], cluster="4xV100+4xP100"), 2.0, "this machine only"),
        (scene([job("a", 0.0, 9)]), 0.5, "speed-up of 0.5"),
        (scene([job("a", 0.0, 9, (8,))]), 2.0, "fits on no host"),
    ],
)
def test_what_cannot_be_run_here_is_refused(given: Scene, speed_up: float, what: str) -> None:
    with pytest.raises(ReplayError, match=what):
        scale_scene(given, speed_up)


def row(name: str, submitted_s: float, finished_s: float) -> JobResult:
    return JobResult(
        *(JobId(name), "t", "completed", submitted_s, 0.0, submitted_s, 0.0, finished_s),
        *(9, 0, 1, 0.0, 0, 0),
    )


def test_an_error_is_replay_over_live() -> None:
    live = [row("a", 0.0, 100.0), row("b", 50.0, 200.0)]
    replayed = [row("b", 50.0, 185.0), row("a", 0.0, 110.0)]
    found = run_error(replayed, live, 0.01)
    assert found.makespan_error_ratio == pytest.approx(185.0 / 200.0 - 1.0)
    assert [one.error_ratio for one in found.jobs] == pytest.approx([0.1, -0.1])
    assert (found.job_error_ratio, found.worst_job_error_ratio) == pytest.approx((0.1, 0.1))
    assert found.mean_jct_error_ratio == pytest.approx(245.0 / 250.0 - 1.0)
    assert found.valid
    assert not replace(found, late_steps_ratio=0.06).valid


def test_phases_come_in_the_order_of_a_jobs_life_and_one_that_a_run_lacks_has_no_second() -> None:
    first = phase_errors(
        SPAN_PHASES, {"training": 90.0, "queued": 5.0}, {"queued": 4.0, "training": 100.0}
    )
    assert first == (
        PhaseError("queued", 4.0, 5.0, 1.0),
        PhaseError("training", 100.0, 90.0, -10.0),
    )
    second = phase_errors(
        SPAN_PHASES, {"training": 90.0, "queued": 5.0}, {"saving": 3.0, "training": 94.0}
    )
    assert [one.phase for one in second] == ["queued", "training", "saving"]
    live = [row("a", 0.0, 100.0)]
    runs = [run_error(live, live, 0.0, each) for each in (first, second, first)]
    assert median_phases(SPAN_PHASES, runs) == [*first, PhaseError("saving", 0.0, 0.0, 0.0)]


def test_a_phase_lasts_until_the_job_is_completed() -> None:
    spans = (Span("queued", 0.0, 4.0), Span("training", 4.0, 90.0), Span("ending", 90.0))
    lane = JobLane("a", "a", "completed", 0.0, 95.0, 0, spans)
    found = phases.seconds_by_phase(Timeline(9, 0.0, 300.0, (), (lane, lane)))
    assert found == {"queued": 4.0, "training": 86.0, "ending": 5.0}


def test_the_phases_of_a_replay_add_up_to_the_mean_completion_time() -> None:
    jobs = [job("a", 0.0, 5000), job("b", 40.0, 3000), job("c", 90.0, 3000)]
    result = run(scene(jobs, cluster="4xV100"), "paper", keep=True)
    assert result.reshapes
    found = phases.of_replay(result)
    assert {"initializing", "starting", "training", "saving"} <= found.keys()
    assert sum(found.values()) == pytest.approx(result.metrics.mean_jct_s, rel=1e-6)


def test_other_jobs_are_not_compared() -> None:
    with pytest.raises(ReplayError, match="not the same jobs"):
        run_error([row("a", 0.0, 1.0)], [row("b", 0.0, 1.0)], 0.0)


def test_a_spread_is_median_least_and_most() -> None:
    found = spread([0.03, -0.01, 0.02])
    assert (found.median, found.low, found.high) == (0.02, -0.01, 0.03)


def test_reports_at_a_steady_pace_do_not_change_how_long_training_takes() -> None:
    given = scene([job("a", 0.0, 500)], spread=0.1)
    steady = replace(given, report_every_s=1.0)
    assert run(steady, "paper").metrics.makespan_s == run(given, "paper").metrics.makespan_s
    assert run(steady, "paper").engine_events > run(given, "paper").engine_events + 100


def test_a_workload_keeps_its_order() -> None:
    given = scene([job("b", 0.0, 50), job("a", 5.0, 50)])
    names = [one.spec.name for one in scale_scene(given, 3.0).workload.jobs]
    assert names == ["b", "a"]
    assert isinstance(scale_scene(given, 3.0).workload, Workload)
