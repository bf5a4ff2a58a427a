"""The true speed, length and accuracy of every job, which policies and predictors do not read.

Does: give the seconds per step of a job on a number of GPUs (the profile's value times a factor
that is drawn for the job, or the value of a device truth file), the job's length in steps, and its
true and its observed accuracy. Draws are hashes of seed and name.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import NormalDist

from reshape_controller.core.knowledge import Curve
from reshape_controller.core.model import JobSpec, LengthUnit
from reshape_controller.core.profile_book import ProfileBook
from reshape_controller.replay.inputs import ReplayError
from reshape_profiles.schema import Profile
from reshape_sidecar.device_truth import DeviceTruth

SPREAD = 0.15
"""Default spread: a job's speed factor lies between 1 - SPREAD and 1 + SPREAD."""
EVALUATIONS = 20
"""Number of evaluations of a job with a target accuracy over its true length; assumed."""
NOISE = 0.005
"""Standard deviation of an observed accuracy around the true accuracy; assumed."""
CURVE_SPREAD = 0.2
"""Relative deviation of a job's learning speed from its type's; assumed."""
_BITS = 2.0**64


def uniform(seed: int, *names: object) -> float:
    """Return a number from 0 to 1 that depends only on the arguments."""
    text = ":".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / _BITS


def uniform_by_name(seed: int, *names: object) -> Callable[[str], float]:
    """Return ``uniform(seed, *names, name)`` as a function of the name, in a third of the time."""
    known = hashlib.sha256(":".join(map(str, (seed, *names, ""))).encode())

    def draw(name: str) -> float:
        found = known.copy()
        found.update(name.encode())
        return int.from_bytes(found.digest()[:8]) / _BITS

    return draw


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The true accuracy of a job over its steps, and its observations."""

    curve: Curve
    every: int
    seed: int
    name: str
    noise: float = NOISE

    def observe(self, step: int) -> float:
        """Return the result of an evaluation after ``step`` steps."""
        true = true_accuracy(self.curve, step)
        draw = min(max(uniform(self.seed, self.name, "accuracy", step), 1e-12), 1.0 - 1e-12)
        return min(max(true + self.noise * NormalDist().inv_cdf(draw), 0.0), 0.999)


def true_accuracy(curve: Curve, step: float) -> float:
    """Return the curve's accuracy after ``step`` steps."""
    below = curve.b0 * step + curve.b1
    return 0.0 if below <= 0.0 else max(0.0, 1.0 - 1.0 / below - curve.b2)


@dataclass(slots=True)
class JobTruth:
    """The true values of a job."""

    spec: JobSpec
    total_steps: int
    steps_per_epoch: int | None
    factor: float
    book: ProfileBook
    device: DeviceTruth | None = None
    accuracy: Accuracy | None = None
    _step_cache: dict[tuple[str, int, int], float] = field(default_factory=dict)

    def step_s(self, gpu_type: str, gpus: int, hosts: int = 1) -> float:
        """Return the seconds of a step on ``gpus`` GPUs of a type, on so many hosts. (A device
        truth has the same on any number of hosts.) Raises ReplayError."""
        found = self._step_cache.get((gpu_type, gpus, hosts))
        if found is None:
            found = self._step_cache[gpu_type, gpus, hosts] = self._step_s(gpu_type, gpus, hosts)
        return found

    def _step_s(self, gpu_type: str, gpus: int, hosts: int) -> float:
        spec = self.spec
        if self.device is not None:
            seconds = self.device.step_s(spec.job_type, spec.name, gpus)
            if seconds is None:
                raise ReplayError(
                    f"device truth: no seconds per step of {spec.job_type or spec.name} on {gpus} "
                    "devices; add it there"
                )
            return seconds
        seconds = self.book.seconds_per_step(spec.job_type, gpu_type, gpus, hosts)
        return seconds * self.book.batches(spec.job_type, spec.global_batch) * self.factor

    @property
    def known_total(self) -> int | None:
        """Number of steps that a running job reports; None if it has a target accuracy."""
        return self.total_steps if self.accuracy is None else None


@dataclass(frozen=True, slots=True)
class Truth:
    """The true values of the world. ``book`` holds the recorded profiles, without measurements."""

    book: ProfileBook
    seed: int = 0
    spread: float = SPREAD
    device: DeviceTruth | None = None
    noise: float = NOISE
    curve_spread: float = CURVE_SPREAD
    curves: tuple[tuple[str, Curve], ...] = ()
    """Curves by job type, fitted to the recorded accuracies, for jobs with a target accuracy."""

    @property
    def as_profiled(self) -> bool:
        """True if every step takes the time of its profile."""
        return self.device is None and self.spread == 0.0

    def of(self, spec: JobSpec) -> JobTruth:
        """Return the true values of a job. Raises ReplayError if its length cannot be known."""
        factor = 1.0
        if self.device is None and self.spread:
            factor += self.spread * (2.0 * uniform(self.seed, spec.name, "speed") - 1.0)
        total, per_epoch, accuracy = self._length(spec)
        return JobTruth(spec, total, per_epoch, factor, self.book, self.device, accuracy)

    def curve_of(self, spec: JobSpec) -> Curve:
        """Return the true accuracy curve of a job. Raises ReplayError."""
        curve = dict(self.curves).get(spec.job_type or "")
        if curve is None:
            raise ReplayError(
                f"job {spec.name}: its time to the target is unknown; give the profile of "
                f"{spec.job_type} accuracies that rise, at five steps or more"
            )
        draw = 2.0 * uniform(self.seed, spec.name, "curve") - 1.0
        return Curve(curve.b0 * (1.0 + self.curve_spread * draw), curve.b1, curve.b2)

    def steps_per_epoch(self, spec: JobSpec) -> float | None:
        """Return the steps of an epoch of the job, unrounded."""
        profile = self.book.of(spec.job_type)
        if profile is None or profile.steps_per_epoch is None:
            return None
        return profile.steps_per_epoch / self.book.batches(spec.job_type, spec.global_batch)

    def _length(self, spec: JobSpec) -> tuple[int, int | None, Accuracy | None]:
        length, per_epoch = spec.length, self.steps_per_epoch(spec)
        whole = max(1, round(per_epoch)) if per_epoch is not None else None
        if length is None:
            raise ReplayError(f"job {spec.name}: has no length; give epochs, steps or a target")
        if length.unit is LengthUnit.STEPS:
            return max(1, math.ceil(length.value)), whole, None
        if length.unit is LengthUnit.EPOCHS:
            if per_epoch is None:
                raise ReplayError(
                    f"job {spec.name}: the profile of {spec.job_type} has no steps_per_epoch; "
                    "give the length in steps, or add it"
                )
            return max(1, math.ceil(length.value * per_epoch - 1e-9)), whole, None
        curve = self.curve_of(spec)
        step = curve.step_of(length.value)
        if step is None:
            raise ReplayError(
                f"job {spec.name}: never reaches a target_accuracy of {length.value:g}; by the "
                f"accuracies of {spec.job_type} it stays below {1.0 - curve.b2:.4g}"
            )
        total = max(1, math.ceil(step - 1e-6))
        every = max(1, total // EVALUATIONS)
        return total, whole, Accuracy(curve, every, self.seed, spec.name, self.noise)


def truth_of(profiles: tuple[Profile, ...], **more: object) -> Truth:
    """Return the truth of ``profiles``; ``more`` are fields of Truth."""
    return Truth(ProfileBook({profile.job_type: profile for profile in profiles}), **more)  # type: ignore[arg-type]
