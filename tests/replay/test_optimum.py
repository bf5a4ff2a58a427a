"""No policy is better than what is possible: exact optima of tiny instances, and the bound."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reshape_controller.replay.bounds import makespan_bound_s
from reshape_controller.replay.inputs import ReplayError, WorkJob
from reshape_controller.replay.shell import Scene
from tests.replay.oracle import optimum_s
from tests.support.gate import examples
from tests.support.replay_bed import FREE, ROUND, job, run, scene, with_costs

PRESETS = (
    *("adaptive", "paper", "termination", "default", "adaptive+terminate", "optimus+sidecar"),
    *("dragon+sidecar", "weighted+terminate", "weighted:admission=oasis+sidecar"),
)
ROUNDING_S = 1e-3
"""Of the linear programs, and of steps that end within a tick."""


def power(p: float, gpus: int) -> dict[int, float]:
    """Seconds per step where n GPUs are n^p times as fast."""
    return {n: 1.0 / n**p for n in range(1, gpus + 1)}


@st.composite
def tiny(draw: st.DrawFn) -> Scene:
    """Up to six jobs, up to eight GPUs on up to two hosts."""
    hosts = draw(st.sampled_from([(2,), (3,), (4,), (8,), (2, 2), (4, 2)]))
    kinds = ("V100", "P100")
    cluster = "+".join(f"{gpus}x{kinds[number]}" for number, gpus in enumerate(hosts))
    count = draw(st.integers(1, 6 if max(hosts) <= 4 else 4))
    speeds = {}
    jobs: list[WorkJob] = []
    for number in range(count):
        p = draw(st.floats(0.3, 1.0))
        speeds[f"kind-{number}"] = power(p, max(hosts))
        sizes = draw(
            st.lists(st.integers(1, max(hosts)), min_size=1, max_size=3, unique=True).map(sorted)
        )
        steps = draw(st.integers(20, 400))
        at_s = float(draw(st.sampled_from([0, 0, 30, 100])))
        jobs.append(job(f"job-{number}", at_s, steps, sizes, f"kind-{number}"))
    spread = draw(st.sampled_from([0.0, 0.15]))
    costs = draw(st.sampled_from([FREE, ROUND]))
    return scene(jobs, cluster=cluster, speeds=speeds, costs=costs, spread=spread)


@given(given_scene=tiny(), preset=st.sampled_from(PRESETS))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_policy_beats_the_exact_optimum_nor_the_bound(given_scene: Scene, preset: str) -> None:
    found_s = run(given_scene, preset).metrics.makespan_s
    assert found_s >= optimum_s(given_scene) - ROUNDING_S
    assert found_s >= makespan_bound_s(given_scene) - ROUNDING_S


@given(given_scene=tiny())
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_without_costs_the_bound_is_no_better_than_the_optimum(given_scene: Scene) -> None:
    free = with_costs(given_scene, FREE)
    # The first step is within the process start, which takes no less than a step at some size.
    assert makespan_bound_s(free) <= optimum_s(free) + max(
        free.truth.of(entry.spec).step_s(host.gpu_type, size)
        for entry in free.workload.jobs
        for host in free.cluster.hosts
        for size in entry.spec.optional_gpus
        if size <= host.gpus
    )


@pytest.mark.parametrize("p", [0.5, 0.77, 1.0])
@pytest.mark.parametrize("preset", PRESETS)
def test_no_policy_beats_the_closed_form_of_malleable_jobs(preset: str, p: float) -> None:
    gpus, works = 6, (50, 120, 200, 333)
    jobs = [job(f"job-{n}", 0.0, work, range(1, gpus + 1), "power") for n, work in enumerate(works)]
    given_scene = scene(jobs, cluster=f"{gpus}xV100", speeds={"power": power(p, gpus)}, costs=FREE)
    best_s = sum(work ** (1.0 / p) for work in works) ** p / gpus**p
    assert run(given_scene, preset).metrics.makespan_s >= best_s - ROUNDING_S
    assert optimum_s(given_scene) >= best_s - ROUNDING_S


def test_the_optimum_of_equal_linear_jobs_is_their_work_over_the_gpus() -> None:
    jobs = [job(f"job-{n}", 0.0, 100, (1, 2, 4), "linear") for n in range(3)]
    assert optimum_s(scene(jobs, costs=FREE)) == pytest.approx(3 * 100 * 8.0 / 4)


def test_the_optimum_waits_for_arrivals() -> None:
    late = [job("early", 0.0, 10, (4,)), job("late", 1000.0, 10, (4,))]
    assert optimum_s(scene(late, costs=FREE)) == pytest.approx(1000.0 + 10 * 2.0)


def test_what_is_not_tiny_is_refused() -> None:
    jobs = [job(f"job-{n}", 0.0, 5, range(1, 9), "power") for n in range(9)]
    wide = scene(jobs, cluster="8xV100+8xP100", speeds={"power": power(1.0, 8)})
    with pytest.raises(ReplayError, match="not tiny"):
        optimum_s(wide)


def test_the_bound_of_a_job_alone_is_what_it_takes() -> None:
    alone = scene([job("only", 100.0, 51, (1, 2, 4))])
    taken_s = run(alone, "adaptive").metrics.makespan_s
    assert makespan_bound_s(alone) == pytest.approx(taken_s)
    assert math.isclose(taken_s, 165.0)
