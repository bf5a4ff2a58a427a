"""The experiments of the paper on FfDL: inputs of replays, a world without gangs, printed figures.

Source: K. R. Jayaram et al., *FfDL: A Flexible Multi-tenant Deep Learning Platform*: its sections
on gang scheduling, on packing and spreading, and on load. Its trace of 60 days is not published;
docs/reproducing-the-paper.md lists what is assumed. No input is fitted to a printed result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, pi, sin
from statistics import NormalDist

from reshape_controller.core.model import JobSpec, Length, LengthUnit, Spans
from reshape_controller.replay.ground_truth import truth_of, uniform
from reshape_controller.replay.inputs import Costs, WorkJob, Workload, cluster_of
from reshape_controller.replay.shell import Scene
from reshape_profiles.schema import Overhead, Profile, SpeedPoint

GPU, HOST_GPUS = "K80", 4
STEP_S = 60.0
"""Seconds of a step, on any number of GPUs and of hosts: jobs keep their sizes here."""
COSTS = Costs("none", Overhead(0.0, 0.0, 0.0, 0.0, 0.0))
"""Starts and ends take no time: only the queue is measured."""
LATE_S = 900.0
"""A job that is queued for longer is late."""
HOSTS = 100
MEAN_S, SPREAD = 12 * 3600.0, 1.0
"""Assumed mean length of a job, and standard deviation of its logarithm."""
DAY_S, DAY_SWING = 86_400.0, 0.5
"""By day so much more than the mean arrives, by night so much less (assumed)."""
GANG_HOSTS, GANG_JOBS, GANG_RUNS = 15, 50, 20


@dataclass(frozen=True, slots=True)
class Shape:
    """A job of the gang experiment: its learners, and the GPUs of each."""

    learners: int
    gpus: int

    @property
    def label(self) -> str:
        """The shape in words."""
        return f"{self.learners} learners x {self.gpus} GPUs"


LOAD_SHAPES = ((Shape(1, 1), 0.55), (Shape(1, 2), 0.2), (Shape(1, 4), 0.2), (Shape(2, 4), 0.05))
"""Assumed parts of the jobs of each shape. The GPUs of a learner are on one host."""
LOAD_JOBS = ((0.0, 300), (900.0, 240), (1800.0, 110), (1920.0, 50))
"""Submission and number of jobs of the load experiment (Table 7)."""
LOAD_CLUSTER = f"170*{HOST_GPUS}x{GPU}"
SHAPES = (Shape(2, 1), Shape(2, 2), Shape(4, 1))

PRINTED = {
    "pack-spread": "SPREAD has more than 3 times the late jobs of PACK",
    "gang": "without gangs 40 % of the runs are clean; the others have 4 to 12 deadlocked learners",
    "load": "700 jobs: 12 stuck in one place of the text, none failed in another",
}
CONTRADICTIONS = (
    "46 % of the GPUs idle 'in the first workload' cannot be: at most 12 deadlocked learners of "
    "one GPU are 20 % of 60. The figure belongs to 4 learners of one GPU, as the next paragraph "
    "has it.",
    "12 of 700 jobs are stuck 'in the heavy-load scenario', and none fails 'in the high-load "
    "scenario': one of the two is the light load.",
    "The factor of 3 between SPREAD and PACK is printed as one number, and it depends on the load.",
)
"""Where the paper's figures disagree with each other, or leave out what they hang on."""


def load_scene(load: float, days: float, seed: int) -> Scene:
    """Return jobs that arrive by day and night at a mean load of 100 hosts. Raises ReplayError."""
    mean_gpus = sum(shape.learners * shape.gpus * part for shape, part in LOAD_SHAPES)
    rate = load * HOSTS * HOST_GPUS / (mean_gpus * MEAN_S)
    most = rate * (1.0 + DAY_SWING)
    at_s, number = 0.0, 0
    jobs: list[WorkJob] = []
    while True:
        number += 1
        at_s -= log(1.0 - uniform(seed, "ffdl", "gap", number)) / most
        if at_s >= days * DAY_S:
            return _scene(f"load-{load:g}", jobs, f"{HOSTS}*{HOST_GPUS}x{GPU}")
        now = rate * (1.0 + DAY_SWING * sin(2.0 * pi * at_s / DAY_S))
        if uniform(seed, "ffdl", "thinned", number) * most < now:
            jobs.append(WorkJob(at_s, _drawn(seed, number)))


def gang_scene(shape: Shape) -> Scene:
    """Return 50 jobs of a shape that arrive together at 15 hosts. Raises ReplayError."""
    jobs = [WorkJob(0.0, _spec(f"job-{n:02d}", shape, 3600.0)) for n in range(GANG_JOBS)]
    return _scene("gang", jobs, f"{GANG_HOSTS}*{HOST_GPUS}x{GPU}")


def many_scene(seed: int = 0) -> Scene:
    """Return the 700 jobs of one GPU of the load experiment. Raises ReplayError."""
    jobs: list[WorkJob] = []
    for at_s, count in LOAD_JOBS:
        for _ in range(count):
            length_s = 3600.0 * (0.5 + uniform(seed, "ffdl", "many", len(jobs)))
            jobs.append(WorkJob(at_s, _spec(f"job-{len(jobs):03d}", Shape(1, 1), length_s)))
    return _scene("many", jobs, LOAD_CLUSTER)


def deadlocked_learners(shape: Shape, disorder: float, seed: int) -> int:
    """Return the learners that hold GPUs and wait for others, in a world without gangs.

    The learners of 50 jobs are placed one by one on the emptiest of 15 hosts, in the order of their
    jobs but for ``disorder``: each may be so many places from its own. They wait for one another,
    and those that are not placed wait for GPUs that no learner gives back.
    """
    pods = [(job, learner) for job in range(GANG_JOBS) for learner in range(shape.learners)]
    places = [
        (number + disorder * uniform(seed, "ffdl", "pod", shape.label, number), pod)
        for number, pod in enumerate(pods)
    ]
    idle, placed = [HOST_GPUS] * GANG_HOSTS, [0] * GANG_JOBS
    for _, (job, _) in sorted(places):
        emptiest = max(range(GANG_HOSTS), key=lambda host: idle[host])
        if idle[emptiest] >= shape.gpus:
            idle[emptiest] -= shape.gpus
            placed[job] += 1
    return sum(count for count in placed if count < shape.learners)


def _drawn(seed: int, number: int) -> JobSpec:
    draw, shape = uniform(seed, "ffdl", "gpus", number), LOAD_SHAPES[-1][0]
    for each, part in LOAD_SHAPES:
        if draw < part:
            shape = each
            break
        draw -= part
    normal = NormalDist().inv_cdf(max(uniform(seed, "ffdl", "length", number), 1e-12))
    length_s = MEAN_S * exp(SPREAD * normal - SPREAD**2 / 2)
    return _spec(f"job-{number:06d}", shape, length_s)


def _spec(name: str, shape: Shape, length_s: float) -> JobSpec:
    return JobSpec(
        name,
        ("python", "train.py"),
        (shape.learners * shape.gpus,),
        Length(LengthUnit.STEPS, float(max(1, round(length_s / STEP_S)))),
        job_type="learner",
        workers=shape.learners,
        span=Spans.ANY if shape.learners > 1 else Spans.NEVER,
    )


def _scene(name: str, jobs: Sequence[WorkJob], cluster: str) -> Scene:
    sizes = {job.spec.optional_gpus[0]: job.spec.workers for job in jobs}
    points = tuple(
        SpeedPoint(GPU, size, STEP_S, "assumed", hosts)
        for size, learners in sorted(sizes.items())
        for hosts in range(1, learners + 1)
    )
    known = (Profile("learner", "a learner of any size", speed=points),)
    workload = Workload(name, tuple(jobs), "FfDL")
    return Scene(workload, cluster_of(cluster), COSTS, known, truth_of(known, spread=0.0))
