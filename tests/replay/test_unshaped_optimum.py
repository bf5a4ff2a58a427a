"""Without reshapes no policy is better than the exact optimum, which two oracles agree on."""

from __future__ import annotations

from itertools import permutations, product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reshape_controller.replay.bounds import makespan_bound_s
from reshape_controller.replay.inputs import ReplayError, WorkJob
from reshape_controller.replay.shell import Scene
from tests.replay.moldable import Way, unshaped_optimum_s, ways
from tests.replay.oracle import optimum_s
from tests.support.gate import examples
from tests.support.replay_bed import FREE, ROUND, job, run, scene

POLICIES = ("default", "adaptive+none", "paper+none", "optimus+none")
ROUNDING_S = 0.1
"""Of the program's tolerances over some thousand seconds, and of ticks."""


def brute_force_s(given_scene: Scene) -> float:
    """Every order and every way of each job, each job as early as those before it let it."""
    jobs = given_scene.workload.jobs
    best_s = float("inf")
    for chosen in product(*(ways(given_scene, entry) for entry in jobs)):
        for order in permutations(range(len(jobs))):
            best_s = min(best_s, _in_order_s(given_scene, jobs, chosen, order))
    return best_s - jobs[0].submit_s


def _in_order_s(
    given_scene: Scene, jobs: tuple[WorkJob, ...], chosen: tuple[Way, ...], order: tuple[int, ...]
) -> float:
    placed: list[tuple[float, float, Way]] = []
    end_s = 0.0
    for number in order:
        way, free = chosen[number], given_scene.cluster.hosts[chosen[number].host].gpus
        here = [entry for entry in placed if entry[2].host == way.host]
        for at_s in sorted({jobs[number].submit_s, *(e for _, e, _ in here)}):
            moments = [at_s, *(b for b, _, _ in here if at_s < b < at_s + way.holds_s)]
            if at_s >= jobs[number].submit_s and all(
                sum(w.gpus for b, e, w in here if b <= moment < e) + way.gpus <= free
                for moment in moments
            ):
                placed.append((at_s, at_s + way.holds_s, way))
                end_s = max(end_s, at_s + way.runs_s)
                break
    return end_s


@st.composite
def tiny(draw: st.DrawFn) -> Scene:
    """Up to four jobs, up to six GPUs on up to two hosts."""
    hosts = draw(st.sampled_from([(2,), (4,), (2, 2), (4, 2)]))
    cluster = "+".join(
        f"{gpus}x{kind}" for gpus, kind in zip(hosts, ("V100", "P100"), strict=False)
    )
    jobs = []
    for number in range(draw(st.integers(1, 4))):
        sizes = draw(st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=2, unique=True))
        sizes = sorted(size for size in sizes if size <= max(hosts)) or [1]
        at_s = float(draw(st.sampled_from([0, 0, 30, 100])))
        jobs.append(job(f"job-{number}", at_s, draw(st.integers(10, 150)), sizes))
    return scene(jobs, cluster=cluster, costs=draw(st.sampled_from([FREE, ROUND])), spread=0.1)


@given(given_scene=tiny(), policy=st.sampled_from(POLICIES))
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_two_oracles_agree_and_no_policy_without_reshapes_beats_them(
    given_scene: Scene, policy: str
) -> None:
    best_s = unshaped_optimum_s(given_scene)
    assert best_s == pytest.approx(brute_force_s(given_scene), abs=ROUNDING_S)
    assert run(given_scene, policy).metrics.makespan_s >= best_s - ROUNDING_S
    assert makespan_bound_s(given_scene) <= best_s + ROUNDING_S
    assert optimum_s(given_scene) <= best_s + ROUNDING_S


def test_two_jobs_that_fit_side_by_side_do_not_wait_for_each_other() -> None:
    side = scene([job("a", 0.0, 100, (2,)), job("b", 0.0, 100, (2,))], costs=FREE)
    assert unshaped_optimum_s(side) == pytest.approx(100 * 4.0)


def test_gpus_are_held_until_the_container_is_gone() -> None:
    one_after_the_other = scene([job("a", 0.0, 101, (4,)), job("b", 0.0, 101, (4,))])
    # Start 40 s, first step 20 s, 100 steps of 2 s, checkpoint 2 s, stop 3 s; between them 30 s.
    assert unshaped_optimum_s(one_after_the_other) == pytest.approx(2 * 265.0 + 30.0)
    assert run(one_after_the_other, "default").metrics.makespan_s == pytest.approx(560.0, abs=0.01)


def test_what_is_not_tiny_is_refused() -> None:
    with pytest.raises(ReplayError, match="not tiny"):
        unshaped_optimum_s(scene([job(f"job-{n}", 0.0, 5) for n in range(7)]))
