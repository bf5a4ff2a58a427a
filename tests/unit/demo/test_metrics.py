"""The demo's figures, on runs whose every time is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.demo_bed import event, in_place, relaunched, samples

# isort: split
from metrics import gpu_idle, metrics, promises, reshapes, starts
from observed import Process
from rates import rates


def test_makespan_completion_and_wait_count_from_each_submission() -> None:
    found = metrics(in_place())
    assert found["makespan_s"] == 80.0
    assert found["mean_jct_s"] == pytest.approx((80 + 26) / 2)
    assert found["p95_jct_s"] == 80.0
    assert found["mean_wait_s"] == pytest.approx((1 + 3) / 2)


def test_a_reshape_in_place_is_split_into_what_the_sidecar_measured_and_a_rest() -> None:
    down, up = reshapes(in_place())
    assert (down.from_gpus, down.to_gpus, down.down, down.at_s) == (4, 2, True, 20.0)
    assert (up.from_gpus, up.to_gpus, up.down, up.total_s) == (2, 4, False, 5.0)
    assert down.total_s == 5.0
    assert down.start_s == pytest.approx(4.0)
    assert down.rest_s == pytest.approx(5.0 - 0.4 - 0.4 - 4.0)
    assert down.container_stop_s is None
    assert down.container_start_s is None


def test_a_relaunch_also_has_the_end_and_the_start_of_containers() -> None:
    (down,) = reshapes(relaunched())
    assert down.total_s == 12.0
    assert (down.container_stop_s, down.container_start_s) == (2.0, 1.0)
    assert down.rest_s == pytest.approx(12.0 - 1.0 - 3.0 - 6.0)
    found = metrics(relaunched())
    assert (found["reshape_downs"], found["reshape_ups"]) == (1, 0)
    assert (found["process_restarts"], found["container_restarts"]) == (1, 1)


def test_a_refused_request_is_no_reshape() -> None:
    run = in_place()
    refused = event("job-1", 20.7, "refused", 4, generation=3)
    assert len(reshapes(replace(run, history=(*run.history[:9], refused, *run.history[9:])))) == 1


def test_idle_gpu_seconds_and_training_make_up_the_whole() -> None:
    run = in_place()
    idle = gpu_idle(run)
    trained_s = sum(
        (span.to_s or 0.0) - span.from_s
        for lane in run.timeline.gpus
        for span in lane.spans
        if span.phase == "training"
    )
    assert sum(idle.values()) + trained_s == pytest.approx(4 * 80.0)
    assert idle["gpu_reserved_s"] == pytest.approx(4 * 1 + 2 * 1)
    assert idle["gpu_unallocated_s"] == pytest.approx(0.0)
    assert metrics(run)["gpu_use_ratio"] == pytest.approx(trained_s / 320.0)


def test_the_overhead_is_pauses_over_lives_and_with_starts_more() -> None:
    found = metrics(in_place())
    lives_s = (80 - 1) + (44 - 21)
    assert found["overhead_ratio"] == pytest.approx(10 / lives_s)
    assert found["overhead_with_starts_ratio"] == pytest.approx((10 + 5 + 8) / lives_s)


def test_the_start_of_a_newcomer_is_split_at_its_wait_for_gpus() -> None:
    first, second = starts(in_place())
    assert first.total_s == 5.0
    assert (second.queued_s, second.container_start_s) == (0.0, 1.0)
    assert (second.gpu_wait_s, second.process_start_s) == (2.0, 5.0)


def test_late_steps_are_counted_over_every_process() -> None:
    run = in_place()
    assert metrics(run)["late_steps"] == 3
    assert metrics(run)["late_steps_ratio"] == pytest.approx(3 / 200)


def test_every_promise_holds_in_a_good_run_and_breaks_when_it_is_broken() -> None:
    run = in_place()
    assert set(promises(run).values()) == {True}
    first, second = run.jobs
    broken = {
        "both_jobs_completed": replace(run, jobs=(first, replace(second, state="failed"))),
        "every_step_was_done": replace(run, jobs=(first, replace(second, step=99))),
        "no_step_was_lost": replace(run, jobs=(replace(first, steps_lost=1), second)),
        "each_job_lived_in_one_container": replace(run, containers={"job-1-id": 2}),
        "newcomers_were_initialized_before_gpus_were_taken": replace(
            run, history=tuple(e for e in run.history if e.kind != "initialized")
        ),
    }
    for name, bad in broken.items():
        assert promises(bad)[name] is False, name
    assert set(promises(run)) == set(broken)


def test_other_presets_promise_nothing_of_containers() -> None:
    assert "each_job_lived_in_one_container" not in promises(relaunched())


def test_the_rate_is_what_was_seen_and_zero_between_processes() -> None:
    run = in_place()
    times_s, values = rates(run, run.jobs[0])
    assert times_s == sorted(times_s)
    seen = dict(zip(times_s, values, strict=True))
    assert seen[12.0] == pytest.approx(4.0, rel=0.15)
    assert seen[35.0] == pytest.approx(2.0, rel=0.15)
    between = [v for t, v in zip(times_s, values, strict=True) if 20.6 < t < 24.9]
    assert all(value == 0.0 for value in between)
    pauses = [i for i, (t, v) in enumerate(seen.items()) if v == 0.0 and 20 <= t <= 25]
    assert pauses, "the pause of the reshape is drawn"
    assert (times_s[-1], values[-1]) == (80.0, 0.0)


def test_a_job_that_was_never_seen_training_has_no_rate() -> None:
    run = replace(in_place(), samples=())
    assert set(rates(run, run.jobs[0])[1]) == {0.0}


def test_one_look_alone_gives_no_rate() -> None:
    run = replace(in_place(), samples=samples("job-1", 2, 5, 5, 1, 4.0))
    assert set(rates(run, run.jobs[0])[1]) == {0.0}


def test_processes_are_counted_for_each_job() -> None:
    run = in_place()
    more = replace(run, processes=(*run.processes, Process("job-2-id", 2, 1, 0)))
    assert metrics(more)["process_restarts"] == metrics(run)["process_restarts"] + 1 == 3
