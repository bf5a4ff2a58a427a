"""The exact optimum of tiny instances, for tests: no policy ends earlier.

Does: a linear program over everything that a cluster can do at once. Between two arrivals the order
of what it does is free, and so is every reshape; then the best schedule only says how long each
configuration lasts. Costs are taken as zero, steps as divisible: with real ones every schedule ends
no earlier. Never: called by a replay. State: none.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from reshape_controller.replay.inputs import ReplayError
from reshape_controller.replay.shell import Scene

CONFIGURATIONS_MAX = 200_000

Place = tuple[int, int]
"""Host (by number) and size."""
Configuration = tuple[Place | None, ...]
"""Where each job runs; None: nowhere."""


def optimum_s(scene: Scene) -> float:
    """The least makespan of any schedule with free reshapes. Raises ReplayError when not tiny."""
    import numpy as np
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    jobs = scene.workload.jobs
    truths = [scene.truth.of(job.spec) for job in jobs]
    arrivals = sorted({job.submit_s for job in jobs})
    goal: list[float] = []
    rows: list[int] = []
    columns: list[int] = []
    rates: list[float] = []
    lasts: list[list[int]] = []
    for start_s in arrivals:
        present = [number for number, job in enumerate(jobs) if job.submit_s <= start_s]
        lasts.append([])
        for configuration in configurations(scene, present):
            column = len(goal)
            goal.append(1.0 if start_s == arrivals[-1] else 0.0)
            lasts[-1].append(column)
            for number, place in zip(present, configuration, strict=True):
                if place is not None:
                    host = scene.cluster.hosts[place[0]]
                    rows.append(number)
                    columns.append(column)
                    rates.append(-1.0 / truths[number].step_s(host.gpu_type, place[1]))
            if len(goal) > CONFIGURATIONS_MAX:
                raise ReplayError(f"more than {CONFIGURATIONS_MAX} configurations: not tiny")
    done = csr_array((rates, (rows, columns)), shape=(len(jobs), len(goal)))
    needed = [-float(truth.total_steps) for truth in truths]
    spans = [b - a for a, b in pairwise(arrivals)]
    equal = csr_array(
        (
            np.ones(sum(len(own) for own in lasts[:-1])),
            (
                [row for row, own in enumerate(lasts[:-1]) for _ in own],
                [column for own in lasts[:-1] for column in own],
            ),
        ),
        shape=(len(spans), len(goal)),
    )
    solved = linprog(
        goal,
        A_ub=done,
        b_ub=needed,
        A_eq=equal if spans else None,
        b_eq=spans if spans else None,
        method="highs",
    )
    if not solved.success:
        raise ReplayError(f"the optimum was not found: {solved.message}")
    return float(solved.fun) + arrivals[-1] - arrivals[0]


def configurations(scene: Scene, jobs: list[int]) -> Iterator[Configuration]:
    """Every way in which some of ``jobs`` can run at once."""
    free = [host.gpus for host in scene.cluster.hosts]

    def place(number: int) -> Iterator[Configuration]:
        if number == len(jobs):
            yield ()
            return
        for rest in place(number + 1):
            yield (None, *rest)
        for host, gpus in enumerate(free):
            for size in scene.workload.jobs[jobs[number]].spec.optional_gpus:
                if size <= gpus:
                    free[host] -= size
                    for rest in place(number + 1):
                        yield ((host, size), *rest)
                    free[host] += size

    yield from place(0)
