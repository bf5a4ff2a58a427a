"""The paper's four workloads (its section V.A), and others of the same kind; from a seed.

Does: draws arrivals (gaps from Exp(1), summed and scaled so that the last job arrives at a given
time) and job types, and gives the jobs of workload four the accuracies that the same jobs reach in
workload three as targets. Never: reads a clock or a generator of the process. State: none.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import accumulate

from reshape_controller.core.model import JobSpec, Length, LengthUnit
from reshape_controller.replay.ground_truth import Truth, true_accuracy
from reshape_controller.replay.inputs import ReplayError, WorkJob, Workload
from reshape_profiles.loader import Bundle

LAST_ARRIVAL_S = 11_000.0
SIZES = (1, 2, 4, 8)
"""Optional numbers of GPUs of every job: the paper does not give them for its workloads; this is
its Table III's widest entry (assumed)."""
EPOCHS = (("imagenet", 1.0), ("cifar10", 10.0), ("mnist", 10.0))
COMMAND = ("python", "train.py")


@dataclass(frozen=True, slots=True)
class Recipe:
    """One of the paper's workloads."""

    name: str
    job_set: str
    jobs: int
    cluster: str
    targets: bool = False
    """Jobs give a target accuracy instead of epochs."""


RECIPES: dict[str, Recipe] = {
    "one": Recipe("one", "one", 40, "8xV100+8xP100"),
    "two": Recipe("two", "one", 20, "8xV100+8xP100"),
    "three": Recipe("three", "two", 40, "8xV100+8xK80"),
    "four": Recipe("four", "two", 40, "8xV100+8xK80", targets=True),
}


def arrivals(draw: random.Random, jobs: int, last_s: float) -> list[float]:
    """Times of ``jobs`` arrivals, the last at ``last_s``."""
    sums = list(accumulate(draw.expovariate(1.0) for _ in range(jobs)))
    return [last_s * (value / sums[-1]) for value in sums]


def generate(
    recipe: Recipe,
    bundle: Bundle,
    truth: Truth,
    seed: int,
    *,
    jobs: int | None = None,
    last_s: float = LAST_ARRIVAL_S,
    sizes: tuple[int, ...] = SIZES,
) -> Workload:
    """The recipe's jobs for a seed. Raises ReplayError.

    Workload four draws what workload three draws: the same jobs at the same times.
    """
    types = dict(bundle.sets).get(recipe.job_set)
    if types is None:
        names = ", ".join(name for name, _ in bundle.sets)
        raise ReplayError(f"unknown job set {recipe.job_set!r}; use one of: {names}")
    count = recipe.jobs if jobs is None else jobs
    if count < 1 or last_s < 0.0:
        raise ReplayError("a workload needs at least one job, and times from 0 on")
    draw = random.Random(f"{recipe.job_set}:{count}:{seed}")
    times = arrivals(draw, count, last_s)
    width = len(str(count - 1))
    found = []
    for number, at_s in enumerate(times):
        kind = types[draw.randrange(len(types))]
        spec = JobSpec(
            f"job-{number:0{width}d}",
            COMMAND,
            sizes,
            Length(LengthUnit.EPOCHS, epochs_of(kind)),
            job_type=kind,
        )
        found.append(WorkJob(at_s, _with_target(spec, truth) if recipe.targets else spec))
    return Workload(recipe.name, tuple(found), f"generated: job set {recipe.job_set}, seed {seed}")


def epochs_of(job_type: str) -> float:
    """The paper's epochs for the dataset of a job type (the last part of its name)."""
    for dataset, epochs in EPOCHS:
        if job_type.endswith(dataset):
            return epochs
    raise ReplayError(f"job type {job_type}: no number of epochs is known for its dataset")


def _with_target(spec: JobSpec, truth: Truth) -> JobSpec:
    """The same job without epochs, with the accuracy that it reaches in them."""
    steps = truth.of(spec).total_steps
    target = true_accuracy(truth.curve_of(spec), steps)
    return replace(spec, length=Length(LengthUnit.TARGET_ACCURACY, target))
