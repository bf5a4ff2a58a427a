"""The search with all arrivals known: its schedule is attained, no shorter than the bound."""

from __future__ import annotations

from reshape_controller.cli.replays import inputs
from reshape_controller.replay.bounds import makespan_bound_s
from reshape_controller.replay.offline_search import Found, search

SCENE = inputs.setup_of(inputs.ReplayRequest("two", jobs=5, last_s=400.0)).scene(3)


def found(budget: int) -> Found:
    chosen = inputs.contender("adaptive")
    return search(SCENE, chosen, seed=3, budget=budget, search_seed=1)


def test_a_search_lies_between_the_policy_and_the_bound_and_uses_only_sizes_of_the_jobs() -> None:
    first, best = found(1), found(25)
    assert makespan_bound_s(SCENE) <= best.makespan_s < first.makespan_s
    given = [job.spec for job in SCENE.workload.jobs]
    assert [spec.optional_gpus for spec in first.specs] == [spec.optional_gpus for spec in given]
    for spec, own in zip(best.specs, given, strict=True):
        assert set(spec.optional_gpus) <= set(own.optional_gpus)
        assert spec.length == own.length


def test_the_same_seed_finds_the_same_schedule() -> None:
    assert found(6) == found(6)
