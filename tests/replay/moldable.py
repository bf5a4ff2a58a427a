"""The exact optimum of tiny instances in which no job is reshaped, for tests: a mixed-integer
program, with every cost in it.

Does: picks for each job a size, a host, its GPUs and its start, so that the last job ends earliest;
a job holds its GPUs from its launch until its container is gone, as with the mechanism ``none``.
HiGHS solves it through scipy. Never: called by a replay. State: none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations

from reshape_controller.replay.inputs import ReplayError, WorkJob
from reshape_controller.replay.shell import Scene

JOBS_MAX = 6
GPUS_MAX = 8
SCALES = (1.0, 0.3, 3.0, 0.1, 0.7)
"""Of the unit of time. HiGHS refuses an answer of its own that lies a hair beyond its tolerance;
in another unit it does not. Figures near 1 suit its tolerances, which are absolute."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run a job: host (by number), GPUs, launch to completion, and until they are
    free."""

    host: int
    gpus: int
    runs_s: float
    holds_s: float


def ways(scene: Scene, job: WorkJob) -> list[Way]:
    """Every way to run a job without a reshape. Raises ReplayError."""
    truth, costs = scene.truth.of(job.spec), scene.costs
    cost, found = costs.overhead, []
    for number, host in enumerate(scene.cluster.hosts):
        for size in job.spec.optional_gpus:
            if size <= host.gpus:
                step_s = truth.step_s(host.gpu_type, size)
                start_s = cost.job_init_s + max(costs.process_init_s(size), step_s)
                end_s = cost.checkpoint_s + cost.process_stop_s
                runs_s = start_s + (truth.total_steps - 1) * step_s + end_s
                found.append(Way(number, size, runs_s, runs_s + cost.job_stop_s))
    return found


@dataclass(slots=True)
class _Program:
    """Rows of ``low <= a x <= high``, and the bounds of the variables."""

    whole: list[int] = field(default_factory=list)
    most: list[float] = field(default_factory=list)
    rows: list[tuple[dict[int, float], float, float]] = field(default_factory=list)

    def variable(self, most: float, *, whole: bool = True) -> int:
        self.whole.append(int(whole))
        self.most.append(most)
        return len(self.whole) - 1

    def row(self, entries: dict[int, float], low: float, high: float) -> None:
        self.rows.append((entries, low, high))

    def least(self, goal: int) -> float | None:
        """The least value of a variable; None where the solver gives up."""
        import numpy as np
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import lil_array

        matrix = lil_array((len(self.rows), len(self.whole)))
        for number, (entries, _, _) in enumerate(self.rows):
            for column, value in entries.items():
                matrix[number, column] = value
        limits = ([low for _, low, _ in self.rows], [high for _, _, high in self.rows])
        aim = np.zeros(len(self.whole))
        aim[goal] = 1.0
        solved = milp(
            aim,
            integrality=self.whole,
            bounds=Bounds(0.0, self.most),
            constraints=LinearConstraint(matrix.tocsr(), *limits),
            options={"mip_rel_gap": 0.0},
        )
        return float(solved.fun) if solved.success else None


def unshaped_optimum_s(scene: Scene) -> float:
    """The least makespan of any schedule without reshapes. Raises ReplayError when not tiny."""
    jobs = scene.workload.jobs
    if len(jobs) > JOBS_MAX or scene.cluster.gpus > GPUS_MAX:
        raise ReplayError(f"more than {JOBS_MAX} jobs or {GPUS_MAX} GPUs: not tiny")
    found = [ways(scene, job) for job in jobs]
    late_s = jobs[-1].submit_s + sum(max(way.holds_s for way in own) for own in found)
    for scale in SCALES:
        least = _least(
            scene,
            [[_in_units(way, late_s * scale) for way in own] for own in found],
            [job.submit_s / (late_s * scale) for job in jobs],
            1.0 / scale,
        )
        if least is not None:
            return least * late_s * scale - jobs[0].submit_s
    raise ReplayError("the solver found no optimum, whatever the unit of time")


def _least(scene: Scene, found: list[list[Way]], submits: list[float], late: float) -> float | None:
    """The least end of the last job; all times in one unit, the latest is ``late``."""
    jobs = range(len(found))
    program = _Program()
    end = program.variable(late, whole=False)
    starts = [program.variable(late, whole=False) for _ in jobs]
    taken = [_job(program, scene, starts[n], end, submits[n], found[n]) for n in jobs]
    before = {pair: program.variable(1.0) for pair in permutations(jobs, 2)}
    for (first, second), orders in before.items():
        # Where the first is before the second, it has left its GPUs when that is launched.
        row = {starts[second]: 1.0, starts[first]: -1.0, orders: -2 * late}
        row |= {column: -way.holds_s for column, way in taken[first][0]}
        program.row(row, -2 * late, float("inf"))
        for ours, theirs in zip(taken[first][1], taken[second][1], strict=True):
            both = {ours: 1.0, theirs: 1.0, orders: -1.0, before[second, first]: -1.0}
            program.row(both, -float("inf"), 1.0)
    return program.least(end)


def _in_units(way: Way, unit_s: float) -> Way:
    return replace(way, runs_s=way.runs_s / unit_s, holds_s=way.holds_s / unit_s)


def _job(
    program: _Program, scene: Scene, start: int, end: int, submit: float, found: Sequence[Way]
) -> tuple[list[tuple[int, Way]], list[int]]:
    """The variables of a job: which way it runs, and which GPUs it takes."""
    chosen = [(program.variable(1.0), way) for way in found]
    program.row({column: 1.0 for column, _ in chosen}, 1.0, 1.0)
    program.row({start: 1.0}, submit, float("inf"))
    ends = {column: -way.runs_s for column, way in chosen}
    program.row({end: 1.0, start: -1.0} | ends, 0.0, float("inf"))
    gpus: list[int] = []
    for number, host in enumerate(scene.cluster.hosts):
        own = [program.variable(1.0) for _ in range(host.gpus)]
        here = {column: -float(way.gpus) for column, way in chosen if way.host == number}
        program.row(dict.fromkeys(own, 1.0) | here, 0.0, 0.0)
        gpus += own
    return chosen, gpus
