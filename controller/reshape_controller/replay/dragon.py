"""The five scenarios of the paper on weighted DRAGON: inputs of replays, and its printed figures.

Source: M. F. Bestari, A. I. Kistijantoro and A. B. Sasmita, *Dynamic Resource Scheduler for
Distributed Deep Learning Training in Kubernetes*, Tables II to VIII and section IV. A vCPU counts
as a GPU: every job has 2 GiB per vCPU, so that memory never binds. The paper gives no arrivals,
lengths, speeds or costs; docs/reproducing-the-paper.md lists what is assumed. No input is fitted to
a printed result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, sqrt
from statistics import NormalDist, fmean, stdev

from reshape_controller.core.model import JobSpec, Length, LengthUnit
from reshape_controller.replay.ground_truth import truth_of, uniform
from reshape_controller.replay.inputs import Costs, WorkJob, Workload, cluster_of
from reshape_controller.replay.shell import Scene
from reshape_profiles.schema import Profile, SpeedPoint

NODES, NODE_CPUS = 3, 8
CPU = "vCPU"
STEP_S = 0.1
"""Seconds of a step on one worker: short, so that times do not depend on step boundaries."""
WORK_S = 600.0
"""Assumed training of each job on one worker."""
LENGTH_SPREAD = 0.5
"""Assumed standard deviation of the logarithm of a drawn length (scenario 4)."""
SERIAL = 3 / 17
"""Assumed part of a step that more workers do not shorten: two workers are 1.7 times as fast."""
SOURCE = "assumed: 1.7 times the speed on two workers"


@dataclass(frozen=True, slots=True)
class Workers:
    """A job of Tables II to V: its numbers of workers, and the vCPUs of each."""

    most: int
    least: int
    initial: int
    cpus: int
    priority: int = 1


@dataclass(frozen=True, slots=True)
class Scenario:
    """A table of jobs. They arrive together."""

    number: int
    table: str
    jobs: tuple[Workers, ...]

    @property
    def slots(self) -> int:
        """The vCPUs of all nodes that the workers can fill. A gang may be on several nodes."""
        return NODES * node_fill({job.cpus for job in self.jobs})


def _first_three(number: int, table: str, cpus: Sequence[int]) -> Scenario:
    """Tables II to IV differ in the vCPUs alone."""
    counts = ((4, 1, 2, 1), (6, 2, 2, 1), (6, 1, 2, 1), (6, 2, 2, 100))
    jobs = [Workers(*count[:3], each, count[3]) for count, each in zip(counts, cpus, strict=True)]
    return Scenario(number, table, tuple(jobs))


SCENARIOS = (
    _first_three(1, "II", (1, 2, 2, 3)),
    _first_three(2, "III", (1, 1, 1, 1)),
    _first_three(3, "IV", (3, 3, 3, 3)),
)
WEIGHTING = Scenario(
    4,
    "V",
    tuple(
        Workers(*each)
        for each in (
            *((4, 2, 4, 2), (4, 2, 4, 2), (4, 1, 2, 2), (4, 1, 2, 3), (4, 2, 3, 2), (4, 2, 2, 2)),
            *((6, 2, 2, 2), (6, 1, 1, 2), (4, 2, 2, 2), (4, 2, 2, 4), (4, 3, 3, 2), (4, 3, 3, 2)),
        )
    ),
)

PRINTED_GAIN = {1: 0.0506, 2: 0.3505, 3: 0.2238}
"""Largest gain of speed by the weighted scheduler, by scenario (section IV.E)."""


@dataclass(frozen=True, slots=True)
class PrintedRun:
    """A row of Table VII: seconds without and with weights, and the printed gain."""

    without_s: float
    with_s: float
    printed_ratio: float

    @property
    def ratio(self) -> float:
        """The gain that follows from the two times."""
        return 1.0 - self.with_s / self.without_s


PRINTED_RUNS = (
    PrintedRun(654.0, 564.0, 0.1376),
    PrintedRun(637.0, 670.0, -0.0493),
    PrintedRun(667.0, 680.0, -0.0195),
    PrintedRun(671.0, 511.0, 0.2385),
    PrintedRun(675.0, 673.0, 0.0296),
)
PRINTED_MEAN_RATIO = 0.0674
PRINTED_ACCURACY = {
    "1 worker": (32, 40, 24, 15, 31),
    "2 workers": (51, 28, 62, 57, 38),
    "3 workers": (39, 60, 52, 42, 38),
    "4 workers": (53, 70, 52, 51, 40),
    "centralized": (91, 90, 90, 91, 92),
}
"""Table VIII, per cent."""

CONTRADICTIONS = (
    "The abstract's 26 % and the conclusion's 26.56 % follow from no table: 5.06, 35.05 and "
    "22.38 % have a mean of 20.83 %.",
    "Table VII divides its second run by the run with weights; by the other one, as in the rest, "
    "its -4.93 % are -5.18 %. In its fifth run 675 s and 673 s differ by 0.30 %, not by 2.96 %. So "
    "the mean of the five gains is 6.15 %, not 6.74 %; the conclusion's 6.23 % are the gain of the "
    "means.",
    "The paired t of these five runs is 1.13, and 2.78 would be needed at 5 %: no effect is shown.",
    "Section IV.E calls job 4 of scenario 1 the last of the queue, but its priority of 100 makes "
    "it the first of a queue by priority.",
    "The eight first workers of scenario 3 need three vCPUs each. They add up to all 24 vCPUs, but "
    "a node of 8 holds two of them, so only six can run at once.",
    "The printed weight falls with criticality: 50 for a priority of 100, and 26.9 if the job is "
    "critical, which is less than 30 for a priority of 60.",
    "In Table VIII one distributed worker reaches 28.4 % and a single machine 90.8 %, although one "
    "worker has no other to be out of step with; more workers reach more (53.2 % with four).",
)
"""Where the paper's figures disagree with each other; a test computes each number but the
first two, which are quotations."""


def paired_t(runs: Sequence[PrintedRun]) -> float:
    """Return Student's t of the paired differences."""
    differences = [run.without_s - run.with_s for run in runs]
    return fmean(differences) / (stdev(differences) / sqrt(len(differences)))


def node_fill(cpus: Iterable[int]) -> int:
    """Return the most vCPUs of a node that workers of these sizes can fill."""
    sums = {0}
    for _ in range(NODE_CPUS):
        sums |= {total + each for total in sums for each in cpus if total + each <= NODE_CPUS}
    return max(sums)


def initial_sizes(scenario: Scenario) -> dict[str, int]:
    """Return the size at which each job starts, by its name."""
    return {_name(number): job.initial * job.cpus for number, job in enumerate(scenario.jobs)}


def scene(
    scenario: Scenario,
    costs: Costs,
    *,
    cluster: str | None = None,
    seed: int | None = None,
    is_fixed: bool = False,
) -> Scene:
    """Return the inputs of a replay. ``cluster``: other hosts than a single one with all slots;
    ``seed``: draws the lengths, which are equal otherwise; ``is_fixed``: each job keeps its initial
    size. Raises ReplayError."""
    hosts = cluster_of(cluster or f"{scenario.slots}x{CPU}")
    kinds = tuple(dict.fromkeys(host.gpu_type for host in hosts.hosts))
    most = max(host.gpus for host in hosts.hosts)
    jobs = []
    for number, job in enumerate(scenario.jobs):
        first = job.initial * job.cpus
        counts = range(job.least, job.most + 1)
        sizes = tuple(n * job.cpus for n in counts if n == job.initial or n * job.cpus <= most)
        work_s = WORK_S if seed is None else WORK_S * _work_factor(seed, number)
        spec = JobSpec(
            _name(number),
            ("python", "train.py"),
            (first,) if is_fixed else sizes,
            Length(LengthUnit.STEPS, float(round(work_s / STEP_S))),
            job_type=_job_type(job.cpus),
            priority=job.priority,
        )
        jobs.append(WorkJob(0.0, spec))
    known = tuple(_profile(cpus, kinds) for cpus in sorted({job.cpus for job in scenario.jobs}))
    workload = Workload(f"scenario-{scenario.number}", tuple(jobs), f"Table {scenario.table}")
    return Scene(workload, hosts, costs, known, truth_of(known, spread=0.0))


def _work_factor(seed: int, number: int) -> float:
    """Return a factor of the work, log-normal with mean 1."""
    normal = NormalDist().inv_cdf(uniform(seed, "dragon", number))
    return exp(LENGTH_SPREAD * normal - LENGTH_SPREAD**2 / 2)


def _name(number: int) -> str:
    return f"job-{number + 1:02d}"


def _job_type(cpus: int) -> str:
    return f"linear-regression-{cpus}"


def _profile(cpus: int, kinds: Sequence[str]) -> Profile:
    """Return the profile of jobs whose workers have so many vCPUs."""
    most = max(job.most for each in (*SCENARIOS, WEIGHTING) for job in each.jobs)
    points = tuple(
        SpeedPoint(kind, n * cpus, STEP_S * (SERIAL + (1.0 - SERIAL) / n), SOURCE)
        for kind in kinds
        for n in range(1, most + 1)
    )
    return Profile(_job_type(cpus), "linear regression on MNIST", speed=points)
