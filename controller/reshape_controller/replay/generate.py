"""The paper's four workloads (its section V.A) and others of the same kind, drawn from a seed.

Does: draw arrivals (gaps from Exp(1), summed and scaled so that the last job arrives at a given
time) and job types. Jobs of workload four have as targets the accuracies that the same jobs reach
in workload three. Jobs of ``bursts-one`` and ``bursts-two`` come in bursts, some of them are far
longer than others, and their work is a given part of what the GPUs can do. The seed is the only
source of randomness.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import accumulate

from reshape_controller.core.model import JobSpec, Length, LengthUnit
from reshape_controller.replay import bursts
from reshape_controller.replay.ground_truth import Truth, true_accuracy
from reshape_controller.replay.inputs import Cluster, ReplayError, WorkJob, Workload, cluster_of
from reshape_profiles.loader import Bundle

LAST_ARRIVAL_S = 11_000.0
SIZES = (1, 2, 4, 8)
"""Optional numbers of GPUs of every job. The paper does not give them for its workloads; assumed is
the widest entry of its Table III."""
EPOCHS = (("imagenet", 1.0), ("cifar10", 10.0), ("mnist", 10.0))
COMMAND = ("python", "train.py")


@dataclass(frozen=True, slots=True)
class Recipe:
    """Parameters of a workload."""

    name: str
    job_set: str
    jobs: int
    cluster: str
    targets: bool = False
    """True if jobs have a target accuracy instead of epochs."""
    load: float = 0.0
    """If above 0: jobs come in bursts, lengths have a heavy tail, and the last job comes when the
    GPUs could have done 1 / load of the work, with each job at its smallest size."""


RECIPES: dict[str, Recipe] = {
    "one": Recipe("one", "one", 40, "8xV100+8xP100"),
    "two": Recipe("two", "one", 20, "8xV100+8xP100"),
    "three": Recipe("three", "two", 40, "8xV100+8xK80"),
    "four": Recipe("four", "two", 40, "8xV100+8xK80", targets=True),
    "bursts-one": Recipe("bursts-one", "one", 60, "8xV100+8xP100", load=0.9),
    "bursts-two": Recipe("bursts-two", "two", 60, "8xV100+8xK80", load=0.9),
}


def arrivals(draw: random.Random, jobs: int, last_s: float) -> list[float]:
    """Draw the times of ``jobs`` arrivals, the last at ``last_s``."""
    sums = list(accumulate(draw.expovariate(1.0) for _ in range(jobs)))
    return [last_s * (value / sums[-1]) for value in sums]


def generate(
    recipe: Recipe,
    bundle: Bundle,
    truth: Truth,
    seed: int,
    *,
    cluster: Cluster | None = None,
    jobs: int | None = None,
    last_s: float | None = None,
    faster: float = 1.0,
    sizes: tuple[int, ...] = SIZES,
) -> Workload:
    """Draw the recipe's jobs for a seed. Raises ReplayError.

    Workloads three and four have the same jobs at the same times. ``cluster``, ``last_s`` (the
    last arrival): None for those of the recipe. ``faster``: so many times as fast the jobs arrive.
    """
    types = dict(bundle.sets).get(recipe.job_set)
    if types is None:
        names = ", ".join(name for name, _ in bundle.sets)
        raise ReplayError(f"unknown job set {recipe.job_set!r}; use one of: {names}")
    count = recipe.jobs if jobs is None else jobs
    if count < 1 or (last_s is not None and last_s < 0.0):
        raise ReplayError("a workload needs at least one job, and times from 0 on")
    draw = random.Random(f"{recipe.job_set}:{count}:{seed}")
    drawn = bursts.arrivals if recipe.load else arrivals
    times = drawn(draw, count, 1.0)
    width = len(str(count - 1))
    specs = []
    for number in range(count):
        kind = types[draw.randrange(len(types))]
        epochs = epochs_of(kind) * (bursts.factor(draw) if recipe.load else 1.0)
        length = Length(LengthUnit.EPOCHS, epochs)
        spec = JobSpec(f"job-{number:0{width}d}", COMMAND, sizes, length, job_type=kind)
        specs.append(_with_target(spec, truth) if recipe.targets else spec)
    if last_s is None:
        last_s = LAST_ARRIVAL_S
        if recipe.load:
            where = cluster or cluster_of(recipe.cluster)
            last_s = sum(_work_s(spec, truth, where) for spec in specs) / recipe.load
    found = (WorkJob(last_s / faster * at, spec) for at, spec in zip(times, specs, strict=True))
    return Workload(recipe.name, tuple(found), f"generated: job set {recipe.job_set}, seed {seed}")


def _work_s(spec: JobSpec, truth: Truth, cluster: Cluster) -> float:
    """Return the seconds that all GPUs of the cluster together need for a job, as fast as at its
    smallest size."""
    own, least = truth.of(spec), min(spec.optional_gpus)
    rate = sum(host.gpus / (least * own.step_s(host.gpu_type, least)) for host in cluster.hosts)
    return own.total_steps / rate


def epochs_of(job_type: str) -> float:
    """Return the paper's epochs for the dataset of a job type (the last part of its name)."""
    for dataset, epochs in EPOCHS:
        if job_type.endswith(dataset):
            return epochs
    raise ReplayError(f"job type {job_type}: no number of epochs is known for its dataset")


def _with_target(spec: JobSpec, truth: Truth) -> JobSpec:
    """Return the job with the accuracy that it reaches as its target, instead of its epochs."""
    steps = truth.of(spec).total_steps
    target = true_accuracy(truth.curve_of(spec), steps)
    return replace(spec, length=Length(LengthUnit.TARGET_ACCURACY, target))
