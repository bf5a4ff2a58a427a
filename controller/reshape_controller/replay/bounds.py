"""A proven lower bound of the makespan of any schedule.

It is the larger of two bounds. Longest job: a job's arrival, its start, every step at its best size
and type, its end. Area: a linear program over the split of each job's steps between GPU types,
where for each arrival the GPUs must hold all work that arrives from then on. Reshapes and waits
cost nothing in it. docs/replay.md has the proof.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from reshape_controller.core.model import JobSpec, Spans
from reshape_controller.replay.event_queue import ticks_up
from reshape_controller.replay.ground_truth import JobTruth
from reshape_controller.replay.inputs import ReplayError
from reshape_controller.replay.shell import Scene

SUFFIXES_MAX = 48
"""Number of arrivals from which the area is counted; fewer only loosen the bound."""
LP_JOBS_MAX = 4000
"""With more jobs the split is omitted: each job counts with its smallest area, as if all GPUs were
of its best type."""


@dataclass(frozen=True, slots=True)
class JobBound:
    """The minimal needs of a job. ``area_s``: GPU seconds of all its steps, by GPU type."""

    submit_s: float
    alone_s: float
    """Time from submission to completion in an empty cluster."""
    fixed_area_s: float
    area_s: tuple[float, ...]


def gpu_types(scene: Scene) -> tuple[tuple[str, int], ...]:
    """Return each GPU type of the cluster with its number of GPUs."""
    count: dict[str, int] = {}
    for host in scene.cluster.hosts:
        count[host.gpu_type] = count.get(host.gpu_type, 0) + host.gpus
    return tuple(sorted(count.items()))


def job_bounds(scene: Scene) -> list[JobBound]:
    """Return the minimal needs of each job of the workload. Raises ReplayError."""
    cost = scene.costs.overhead
    hosts: dict[str, Counter[int]] = {}
    for host in scene.cluster.hosts:
        hosts.setdefault(host.gpu_type, Counter())[host.gpus] += 1
    found = []
    for job in scene.workload.jobs:
        truth = scene.truth.of(job.spec)
        steps = truth.total_steps
        options = {kind: _sizes_on(own, job.spec) for kind, own in sorted(hosts.items())}
        if not any(options.values()):
            needs, spec = f"{min(job.spec.optional_gpus)} GPUs", job.spec
            on = "one host" if spec.span is Spans.NEVER else f"{spec.workers} equal workers"
            raise ReplayError(
                f"job {spec.name} fits on no host of {scene.cluster.text}: it needs at least "
                f"{needs} of {on}; give it smaller sizes, or a larger host"
            )
        steps_s = {
            kind: {n: _step_s(truth, kind, n, max(hosts[kind])) for n in ns}
            for kind, ns in options.items()
        }
        step_s = min(seconds for each in steps_s.values() for seconds in each.values())
        areas = [
            min((n * seconds for n, seconds in each.items()), default=float("inf")) * (steps - 1)
            for each in steps_s.values()
        ]
        # The process start includes the first step, so it takes at least a step.
        starts_s = [
            (n, max(scene.costs.process_init_s(n), seconds))
            for each in steps_s.values()
            for n, seconds in each.items()
        ]
        start_s = min(seconds for _, seconds in starts_s)
        start_area_s = min(n * seconds for n, seconds in starts_s)
        end_s = cost.checkpoint_s + cost.process_stop_s
        alone_s = cost.job_init_s + start_s + (steps - 1) * step_s + end_s
        fixed_s = start_area_s + min(min(ns) for ns in options.values() if ns) * end_s
        found.append(JobBound(ticks_up(job.submit_s), alone_s, fixed_s, tuple(areas)))
    return found


def _step_s(truth: JobTruth, kind: str, size: int, largest: int) -> float:
    """Return the seconds of a step on as many hosts as make it shortest. ``largest``: the GPUs of
    the largest host of the type."""
    spec = truth.spec
    if spec.span is Spans.NEVER:
        return truth.step_s(kind, size)
    fewest = 1 if size <= largest else 2
    return min(truth.step_s(kind, size, hosts) for hosts in range(fewest, spec.workers + 1))


def _sizes_on(hosts: Counter[int], spec: JobSpec) -> list[int]:
    """Return the sizes that hosts of one GPU type can hold. ``hosts``: by their GPUs."""
    if spec.span is Spans.NEVER:
        return [size for size in spec.optional_gpus if size <= max(hosts)]
    found = []
    for size in spec.optional_gpus:
        each = size // spec.workers
        slots = sum(count * (gpus // each) for gpus, count in hosts.items())
        if slots >= spec.workers:
            found.append(size)
    return found


def makespan_bound_s(scene: Scene) -> float:
    """Return a lower bound of the makespan (first submission to last completion)."""
    jobs = job_bounds(scene)
    first_s = jobs[0].submit_s
    longest_s = max(job.submit_s + job.alone_s for job in jobs) - first_s
    counts = [count for _, count in gpu_types(scene)]
    job_init_s = scene.costs.overhead.job_init_s
    if len(jobs) > LP_JOBS_MAX:
        area_s = _area_alone(jobs, sum(counts), job_init_s)
    else:
        area_s = _area_split(jobs, counts, job_init_s)
    return max(longest_s, area_s - first_s)


def _suffixes(jobs: list[JobBound]) -> list[int]:
    """Return the indices of jobs from whose arrival the area is counted, the first included."""
    every = max(1, -(-len(jobs) // SUFFIXES_MAX))
    return list(range(0, len(jobs), every))


def _area_alone(jobs: list[JobBound], gpus: int, job_init_s: float) -> float:
    """Return the end of the last job if all GPUs share all work from any arrival on."""
    best, left = 0.0, sum(job.fixed_area_s + min(job.area_s) for job in jobs)
    for job in jobs:
        best = max(best, job.submit_s + job_init_s + left / gpus)
        left -= job.fixed_area_s + min(job.area_s)
    return best


def _area_split(jobs: list[JobBound], counts: list[int], job_init_s: float) -> float:
    """Return the same bound with an optimal split of each job's steps between the GPU types.

    A linear program. Its variables are, for each job and type, the part of the job's steps there,
    then the part of the job's fixed area there; the last variable is the end.
    """
    import numpy as np  # imported late: it takes half a second
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    kinds = len(counts)
    size = 2 * kinds * len(jobs) + 1
    end = size - 1
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    limits: list[float] = []
    for start in _suffixes(jobs):
        for kind, count in enumerate(counts):
            row = len(limits)
            for number in range(start, len(jobs)):
                at = 2 * kinds * number
                for column, area_s in (
                    (at + kind, jobs[number].area_s[kind]),
                    (at + kinds + kind, jobs[number].fixed_area_s),
                ):
                    if math.isfinite(area_s):
                        rows.append(row)
                        columns.append(column)
                        values.append(area_s)
            rows.append(row)
            columns.append(end)
            values.append(-float(count))
            limits.append(-count * (jobs[start].submit_s + job_init_s))
    upper = csr_array((values, (rows, columns)), shape=(len(limits), size))
    parts = 2 * len(jobs)
    whole = csr_array(
        (np.ones(parts * kinds), (np.repeat(np.arange(parts), kinds), np.arange(parts * kinds))),
        shape=(parts, size),
    )
    goal = np.zeros(size)
    goal[end] = 1.0
    ranges: list[tuple[float, float | None]] = [(0.0, None)] * size
    for number, job in enumerate(jobs):
        for kind, area_s in enumerate(job.area_s):
            if not math.isfinite(area_s):
                ranges[2 * kinds * number + kind] = (0.0, 0.0)
    solved = linprog(
        goal,
        A_ub=upper,
        b_ub=limits,
        A_eq=whole,
        b_eq=np.ones(parts),
        bounds=ranges,
        method="highs",
    )
    if not solved.success:
        raise ReplayError(f"the bound's linear program was not solved: {solved.message}")
    return float(solved.fun)
