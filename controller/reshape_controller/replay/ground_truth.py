"""How fast the world is: what every job really takes, which no policy and no predictor reads.

Does: seconds per step of a job on a number of GPUs (profile times a factor of the job's own, drawn
from the seed; or a device truth file), its length in steps, its true accuracy and what is observed
of it. Never: looks at what the engine believes. State: none; draws are hashes of seed and name.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from statistics import NormalDist

from reshape_controller.core.model import JobSpec, LengthUnit
from reshape_controller.core.profile_book import Curve, ProfileBook
from reshape_controller.replay.inputs import ReplayError
from reshape_profiles.schema import Profile
from reshape_sidecar.device_truth import DeviceTruth

SPREAD = 0.15
"""A job's own factor lies within 1 - SPREAD and 1 + SPREAD, unless told otherwise."""
EVALUATIONS = 20
"""Looks at the validation accuracy of a job that has a target, over its true length: assumed."""
NOISE = 0.005
"""Standard deviation of an observed accuracy around the true one: assumed."""
CURVE_SPREAD = 0.2
"""A job learns by so much faster or slower than its type's accuracies say: assumed."""
_BITS = 2.0**64


def drawn(seed: int, *names: object) -> float:
    """A number from 0 to 1 that depends on nothing but its arguments."""
    text = ":".join(str(name) for name in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / _BITS


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The true accuracy of a job over its steps, and what is seen of it."""

    curve: Curve
    every: int
    seed: int
    name: str
    noise: float = NOISE

    def seen(self, step: int) -> float:
        """What an evaluation after ``step`` steps finds."""
        true = true_accuracy(self.curve, step)
        draw = min(max(drawn(self.seed, self.name, "accuracy", step), 1e-12), 1.0 - 1e-12)
        return min(max(true + self.noise * NormalDist().inv_cdf(draw), 0.0), 0.999)


def true_accuracy(curve: Curve, step: float) -> float:
    """The curve's accuracy after ``step`` steps."""
    below = curve.b0 * step + curve.b1
    return 0.0 if below <= 0.0 else max(0.0, 1.0 - 1.0 / below - curve.b2)


@dataclass(slots=True)
class JobTruth:
    """One job as it really is."""

    spec: JobSpec
    total_steps: int
    steps_per_epoch: int | None
    factor: float
    book: ProfileBook
    device: DeviceTruth | None = None
    accuracy: Accuracy | None = None
    _known: dict[tuple[str, int], float] = field(default_factory=dict)

    def step_s(self, gpu_type: str, gpus: int) -> float:
        """Seconds of one step on ``gpus`` GPUs of a type. Raises ReplayError."""
        found = self._known.get((gpu_type, gpus))
        if found is None:
            found = self._known[gpu_type, gpus] = self._step_s(gpu_type, gpus)
        return found

    def _step_s(self, gpu_type: str, gpus: int) -> float:
        spec = self.spec
        if self.device is not None:
            seconds = self.device.step_s(spec.job_type, spec.name, gpus)
            if seconds is None:
                raise ReplayError(
                    f"device truth: no seconds per step of {spec.job_type or spec.name} on {gpus} "
                    "devices; add it there"
                )
            return seconds
        seconds = self.book.seconds_per_step(spec.job_type, gpu_type, gpus)
        return seconds * self.book.batches(spec.job_type, spec.global_batch) * self.factor

    @property
    def known_total(self) -> int | None:
        """The number of steps where a running job can tell it."""
        return self.total_steps if self.accuracy is None else None


@dataclass(frozen=True, slots=True)
class Truth:
    """The world's figures. ``book`` holds the recorded profiles and nothing that was learned."""

    book: ProfileBook
    seed: int = 0
    spread: float = SPREAD
    device: DeviceTruth | None = None
    noise: float = NOISE
    curve_spread: float = CURVE_SPREAD
    curves: tuple[tuple[str, Curve], ...] = ()
    """Of job types, as fitted to the recorded accuracies; for jobs with a target accuracy."""

    @property
    def as_profiled(self) -> bool:
        """Whether every step takes what the profiles say."""
        return self.device is None and self.spread == 0.0

    def of(self, spec: JobSpec) -> JobTruth:
        """What a job really is. Raises ReplayError where nobody can know its length."""
        factor = 1.0
        if self.device is None and self.spread:
            factor += self.spread * (2.0 * drawn(self.seed, spec.name, "speed") - 1.0)
        total, per_epoch, accuracy = self._length(spec)
        return JobTruth(spec, total, per_epoch, factor, self.book, self.device, accuracy)

    def curve_of(self, spec: JobSpec) -> Curve:
        """How the job really learns. Raises ReplayError."""
        curve = dict(self.curves).get(spec.job_type or "")
        if curve is None:
            raise ReplayError(
                f"job {spec.name}: its time to the target is unknown; give the profile of "
                f"{spec.job_type} accuracies that rise, at five steps or more"
            )
        draw = 2.0 * drawn(self.seed, spec.name, "curve") - 1.0
        return Curve(curve.b0 * (1.0 + self.curve_spread * draw), curve.b1, curve.b2)

    def steps_per_epoch(self, spec: JobSpec) -> float | None:
        """Steps of an epoch of the job, unrounded."""
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
    """The truth that follows ``profiles``; ``more`` are fields of Truth."""
    return Truth(ProfileBook({profile.job_type: profile for profile in profiles}), **more)  # type: ignore[arg-type]
