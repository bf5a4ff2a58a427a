"""Replays against arithmetic by hand, conservation, and physics."""

from __future__ import annotations

import pytest

from reshape_controller.replay.bounds import makespan_bound_s
from reshape_controller.replay.inputs import ReplayError
from reshape_controller.replay.shell import Result, Scene
from tests.support.replay_bed import FREE, LINEAR, ROUND, job, run, scene

PRESETS = ("adaptive", "paper", "termination", "default", "adaptive+terminate", "optimus+sidecar")


def busy(seed: int = 0, spread: float = 0.15) -> Scene:
    """Twelve jobs that come faster than four GPUs and two of another host can take them."""
    jobs = [
        job(f"job-{n:02d}", 45.0 * n, 60 + 37 * (n % 5), kind=("linear", "paper")[n % 2])
        for n in range(12)
    ]
    return scene(jobs, cluster="4xV100+2xP100", spread=spread, seed=seed)


def test_a_job_alone_takes_the_sum_of_its_parts() -> None:
    (row,) = run(scene([job("only", 100.0, 51, (4,))]), "adaptive").jobs
    # Job start 40, process start with the first step 20, 50 steps of 2 s, checkpoint 2, stop 3.
    assert row.started_s == 140.0
    assert row.first_step_s == 160.0
    assert row.finished_s == 160.0 + 100.0 + 5.0
    assert (row.jct_s, row.wait_s, row.steps) == (165.0, 40.0, 51)


def test_gpu_seconds_of_a_job_alone_are_booked_to_what_they_were() -> None:
    metrics = run(scene([job("only", 100.0, 51, (4,))]), "adaptive").metrics
    assert metrics.makespan_s == 165.0
    assert metrics.gpu_reserved_s == 4 * 40.0
    assert metrics.gpu_starting_s == 4 * 20.0
    assert metrics.gpu_unallocated_s == 0.0
    # The engine sees the last checkpoint and stop as training: nobody asked for them.
    assert metrics.gpu_stopping_s == 0.0
    assert metrics.gpu_use_ratio == pytest.approx(105.0 / 165.0)
    assert metrics.overhead_with_starts_ratio == pytest.approx(60.0 / 125.0)


def test_the_step_under_way_ends_before_a_checkpoint_is_published() -> None:
    slow = {"slow": {1: 100.0, 2: 50.0}}
    jobs = [job("first", 0.0, 20, (1, 2), "slow"), job("second", 70.0, 20, (1,), "slow")]
    result = run(scene(jobs, cluster="2xV100", speeds=slow), "paper")
    # First step at 90 (40 + 50, a process start takes no less than a step); the newcomer is ready
    # at 130, in the step that ends at 140; then stop 3 and a start of 100 on one GPU.
    (down,) = result.reshapes
    assert (down.asked_at_s, down.seconds) == (130.0, 10.0 + 3.0 + 100.0)
    assert [row.steps for row in result.jobs] == [20, 20]
    assert result.metrics.steps_lost == 0


@pytest.mark.parametrize("preset", PRESETS)
def test_no_job_fails_because_its_steps_take_hours(preset: str) -> None:
    slow = {"slow": {1: 20_000.0, 2: 12_000.0, 4: 9_000.0}}
    jobs = [job(f"job-{n}", 100.0 * n, 5 + n, (1, 2, 4), "slow") for n in range(3)]
    given = scene(jobs, speeds=slow)
    result = run(given, preset)
    assert [(row.state, row.steps) for row in result.jobs] == [
        ("completed", 5 + n) for n in range(3)
    ]
    assert result.metrics.makespan_s >= makespan_bound_s(given)


def test_a_job_that_is_asked_to_reshape_in_its_last_step_ends_in_its_own_time() -> None:
    slow = {"slow": {1: 100.0, 2: 99.0}}
    jobs = [job("brief", 0.0, 1, (1,), "slow"), job("long", 2.0, 2, (1, 2), "slow")]
    given = scene(jobs, cluster="2xV100", speeds=slow)
    result = run(given, "optimus+sidecar", keep=True)
    # Its steps end at 142 and 242 (2 + 40 + 100, then 100); checkpoint 2, stop 3. The other's GPU
    # is idle from 145 on.
    (asked,) = (event for event in result.events if event.kind == "grow-asked")
    assert (asked.job, asked.at_s) == ("long", 145.0)
    assert result.jobs[1].finished_s == 247.0
    assert result.metrics.makespan_s >= makespan_bound_s(given)
    assert not result.reshapes


@pytest.mark.parametrize("preset", PRESETS)
def test_gpu_seconds_are_conserved(preset: str) -> None:
    metrics = run(busy(), preset).metrics
    parts = (
        metrics.gpu_unallocated_s,
        metrics.gpu_reserved_s,
        metrics.gpu_starting_s,
        metrics.gpu_stopping_s,
    )
    assert min(parts) >= 0.0
    assert sum(parts) == pytest.approx(metrics.gpu_idle_s, abs=1e-6)
    used = metrics.gpu_use_ratio * 6 * metrics.makespan_s
    assert used + sum(parts) == pytest.approx(6 * metrics.makespan_s)


@pytest.mark.parametrize("preset", PRESETS)
def test_no_job_ends_earlier_than_it_could_alone_on_its_best_size(preset: str) -> None:
    given = busy()
    result = run(given, preset)
    cost = given.costs.overhead
    for row in result.jobs:
        spec = next(job.spec for job in given.workload.jobs if job.spec.name == row.job)
        truth = given.truth.of(spec)
        step_s = min(
            truth.step_s(host.gpu_type, size)
            for host in given.cluster.hosts
            for size in spec.optional_gpus
            if size <= host.gpus
        )
        least_s = (truth.total_steps - 1) * step_s + max(cost.process_init_s, step_s)
        least_s += cost.job_init_s + cost.checkpoint_s + cost.process_stop_s
        assert row.jct_s >= least_s - 1e-6
        assert row.steps == truth.total_steps


def test_a_slower_world_than_the_profile_says_is_learned_and_lasts_longer() -> None:
    jobs = [job("one", 0.0, 400)]
    factors = []
    for seed in range(4):
        given = scene(jobs, spread=0.15, seed=seed, costs=FREE)
        factor = given.truth.of(jobs[0].spec).factor
        factors.append(factor)
        (row,) = run(given, "adaptive").jobs
        assert row.finished_s == pytest.approx(400 * LINEAR[4] * factor, rel=1e-3)
    assert len(set(factors)) == 4
    assert all(0.85 <= factor <= 1.15 for factor in factors)


def test_mechanisms_differ_in_what_a_reshape_costs() -> None:
    jobs = [job("one", 0.0, 2000, (2, 4)), job("two", 300.0, 100, (2,))]
    in_place = run(scene(jobs), "paper")
    restart = run(scene(jobs), "case-study-termination")
    cost = ROUND.overhead
    place_s = cost.checkpoint_s + cost.process_stop_s + cost.process_init_s
    assert [event.seconds for event in in_place.reshapes] == pytest.approx([place_s] * 2, abs=2.0)
    again_s = place_s + cost.job_stop_s + cost.job_init_s
    assert [event.seconds for event in restart.reshapes] == pytest.approx([again_s] * 2, abs=2.0)
    assert (in_place.metrics.reshape_downs, in_place.metrics.reshape_ups) == (1, 1)
    assert in_place.metrics.container_restarts == 0
    assert restart.metrics.container_restarts == 2


def test_jobs_that_fit_on_no_host_are_named_instead_of_waited_for() -> None:
    with pytest.raises(ReplayError, match="1 job never ends under default: wide"):
        run(scene([job("small", 0.0, 5, (1,)), job("wide", 0.0, 5, (8,))]), "default")


def spent(result: Result) -> float:
    return sum(row.pause_s for row in result.jobs)


def test_the_overhead_is_the_pauses_over_the_run_times() -> None:
    result = run(busy(), "paper")
    runs_s = sum(row.finished_s - row.started_s for row in result.jobs if row.started_s is not None)
    assert result.metrics.overhead_ratio == pytest.approx(spent(result) / runs_s)
    assert result.metrics.reshape_ups + result.metrics.reshape_downs + result.metrics.moves == len(
        result.reshapes
    )
