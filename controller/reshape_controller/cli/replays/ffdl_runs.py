"""The experiments of the paper on FfDL: replays and their rows, beside the printed figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles

from rich.console import Group, RenderableType
from rich.text import Text

from reshape_controller.cli.output import grid
from reshape_controller.cli.replays.runs import progress
from reshape_controller.core.model import Mechanism
from reshape_controller.policies.ffdl import HEADS, Ffdl
from reshape_controller.replay import ffdl
from reshape_controller.replay.ffdl import LATE_S, Shape
from reshape_controller.replay.shell import Result, Scene, replay
from reshape_controller.scheduling.planner import Planner

LOADS = (0.5, 0.65, 0.75, 0.9)
DISORDERS = (0.0, 2.0, 4.0, 8.0, 16.0, 200.0)
"""How many places a learner may be from its own; with the last the order is random."""


@dataclass(frozen=True, slots=True)
class LoadRow:
    """Late jobs at a load: the ratio of jobs that are queued for longer than 15 minutes."""

    load: float
    head: str
    jobs: int
    pack_late_ratio: float
    spread_late_ratio: float


@dataclass(frozen=True, slots=True)
class GangRow:
    """Jobs of a shape that arrive together, with gangs and in a world without."""

    shape: str
    running_with_gangs: int
    """Jobs that train at once with gangs; no learner of another has a GPU."""
    disorder: float
    clean_ratio: float
    """Part of the runs without gangs in which no learner waits for another."""
    median_deadlocked: float
    most_deadlocked: int


@dataclass(frozen=True, slots=True)
class ManyJobs:
    """The load experiment: jobs that ended, and the times of decisions."""

    jobs: int
    completed: int
    gpus: int
    decision_p99_ms: float


@dataclass(frozen=True, slots=True)
class FfdlExperiment:
    """The output of ``experiment ffdl``."""

    experiment: str
    days: float
    runs: int
    loads: list[LoadRow]
    gangs: list[GangRow]
    many: ManyJobs
    printed: dict[str, str]
    contradictions: list[str]


def run(seeds: Sequence[int], days: float, loads: Sequence[float] = LOADS) -> FfdlExperiment:
    """Replay all three experiments; ``seeds`` draw the disorder, the first one the arrivals.

    Raises ReplayError."""
    cases = [(head, load) for head in HEADS for load in loads]
    with progress() as bar:
        rows = [
            _load(head, load, days, seeds[0])
            for head, load in bar.track(cases, description="pack and spread")
        ]
    gangs = [row for shape in ffdl.SHAPES for row in _gang(shape, seeds)]
    printed, contradictions = dict(ffdl.PRINTED), list(ffdl.CONTRADICTIONS)
    return FfdlExperiment("ffdl", days, len(seeds), rows, gangs, _many(), printed, contradictions)


def _replay(scene: Scene, policy: Ffdl, planner: Planner | None = None) -> Result:
    return replay(scene, policy, Mechanism.NONE, planner=planner)


def _load(head: str, load: float, days: float, seed: int) -> LoadRow:
    scene, late = ffdl.load_scene(load, days, seed), []
    for placement in ("pack", "spread"):
        jobs = _replay(scene, Ffdl(placement, head, "inf")).jobs
        late.append(sum(job.wait_s > LATE_S for job in jobs) / len(jobs))
    return LoadRow(load, head, len(scene.workload.jobs), *late)


def _gang(shape: Shape, seeds: Sequence[int]) -> list[GangRow]:
    jobs = _replay(ffdl.gang_scene(shape), Ffdl()).jobs
    at_once = sum(job.started_s == 0.0 for job in jobs)
    rows = []
    for disorder in DISORDERS:
        found = [ffdl.deadlocked_learners(shape, disorder, seed) for seed in seeds]
        clean = found.count(0) / len(found)
        rows.append(GangRow(shape.label, at_once, disorder, clean, median(found), max(found)))
    return rows


def _many() -> ManyJobs:
    from reshape_controller.live.loop import TimedPlanner  # no other command here needs the loop

    scene, policy = ffdl.many_scene(), Ffdl()
    planner = TimedPlanner(policy)
    jobs = _replay(scene, policy, planner).jobs
    completed = sum(job.state == "completed" for job in jobs)
    p99_s = quantiles(planner.took_s, n=100)[-1]
    return ManyJobs(len(jobs), completed, scene.cluster.gpus, 1000.0 * p99_s)


def table(found: FfdlExperiment) -> RenderableType:
    """Return the tables for a terminal."""
    loads = grid("HEAD", "LOAD", "JOBS", "PACK", "SPREAD", right=("LOAD", "JOBS", "PACK", "SPREAD"))
    for row in found.loads:
        late = [f"{100 * each:.1f} %" for each in (row.pack_late_ratio, row.spread_late_ratio)]
        loads.add_row(row.head, f"{row.load:g}", str(row.jobs), *late)
    numbers = ("AT ONCE", "DISORDER", "CLEAN", "DEADLOCKED", "MOST")
    gangs = grid("SHAPE", *numbers, right=numbers)
    for each in found.gangs:
        clean, middle = f"{100 * each.clean_ratio:.0f} %", f"{each.median_deadlocked:g}"
        figures = (f"{each.disorder:g}", clean, middle, str(each.most_deadlocked))
        gangs.add_row(each.shape, str(each.running_with_gangs), *figures)
    many = found.many
    texts = [
        f"{many.completed} of {many.jobs} jobs on {many.gpus} GPUs complete; decisions take "
        f"{many.decision_p99_ms:.1f} ms (p99).",
        "Printed:",
        *(f"- {text}" for text in found.printed.values()),
        "The paper's own figures:",
        *(f"- {text}" for text in found.contradictions),
    ]
    return Group(
        Text(f"jobs queued for over 15 minutes, {found.days:g} days of arrivals", style="bold"),
        loads,
        Text(
            f"jobs that train at once with gangs; {found.runs} runs without: learners that wait",
            style="bold",
        ),
        gangs,
        *(Text(text) for text in texts),
    )
