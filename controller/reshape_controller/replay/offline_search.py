"""A search for a shorter schedule with all arrivals known: what is attainable, beside the bound.

Does: replay a policy in the same world again and again, each time with the allowed sizes of one job
narrowed or its priority changed at random, and keep what makes the makespan no longer. So every
schedule that it returns is one of the workload.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from reshape_controller.core.model import JobSpec
from reshape_controller.replay.inputs import PolicyError
from reshape_controller.replay.setup import Contender
from reshape_controller.replay.shell import Scene, replay

PRIORITIES = (-2, -1, 0, 1, 2)
NARROW = 0.7
"""Share of changes that narrow sizes; the others change a priority."""


@dataclass(frozen=True, slots=True)
class Found:
    """The best schedule found. ``specs``: the records under which the policy makes it."""

    makespan_s: float
    mean_jct_s: float
    specs: tuple[JobSpec, ...]
    improved_at: tuple[tuple[int, float], ...] = ()
    """Number of each replay that was shorter than all before, and its makespan."""
    failed: int = 0
    """Number of replays in which the policy failed; they count as no schedule."""


def search(
    scene: Scene,
    chosen: Contender,
    *,
    seed: int,
    budget: int,
    search_seed: int,
) -> Found:
    """Return the shortest schedule of ``budget`` replays. Raises PolicyError if the policy fails
    in the first one, which changes nothing."""
    draw = random.Random(search_seed)
    given = tuple(job.spec for job in scene.workload.jobs)
    specs, best, failed = given, _replayed(scene, chosen, seed, given), 0
    improved = [(1, best.makespan_s)]
    for count in range(2, budget + 1):
        number = draw.randrange(len(specs))
        changed = _changed(specs[number], given[number], draw)
        others = (*specs[:number], changed, *specs[number + 1 :])
        try:
            found = _replayed(scene, chosen, seed, others)
        except PolicyError:
            failed += 1
            continue
        if found.makespan_s < best.makespan_s:
            improved.append((count, found.makespan_s))
        if found.makespan_s <= best.makespan_s:
            specs, best = others, found
    return replace(best, improved_at=tuple(improved), failed=failed)


def _changed(spec: JobSpec, given: JobSpec, draw: random.Random) -> JobSpec:
    """Return the record with other allowed sizes among those given, or another priority."""
    if draw.random() < NARROW:
        sizes = given.optional_gpus
        first = draw.randrange(len(sizes))
        last = draw.randrange(first, len(sizes))
        return replace(spec, optional_gpus=sizes[first : last + 1])
    return replace(spec, priority=draw.choice(PRIORITIES))


def _replayed(scene: Scene, chosen: Contender, seed: int, specs: tuple[JobSpec, ...]) -> Found:
    jobs = zip(scene.workload.jobs, specs, strict=True)
    workload = replace(scene.workload, jobs=tuple(replace(job, spec=spec) for job, spec in jobs))
    changed = replace(scene, workload=workload)
    metrics = replay(changed, chosen.policy, chosen.mechanism, seed=seed).metrics
    return Found(metrics.makespan_s, metrics.mean_jct_s, specs)
