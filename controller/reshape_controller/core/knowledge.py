"""What jobs teach the controller, as values: measured speeds, accuracy curves, trends of progress.

Does: blends a new measurement into the earlier ones, and tells a report with news from an expected
report. ``core.learning`` says when that happens; ``core.profile_book`` looks the values up.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_sidecar.wire import Progress

STEP_MAX = 1e12
"""A job record has no more steps either."""
NEWS = 0.01
"""A report tells something new if its speed, or the steps since the trend, are other than expected
by more than this part."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds per step as measured at one size, after ``count`` measurements."""

    gpu_type: str
    gpus: int
    seconds_per_step: float
    count: int = 1


@dataclass(frozen=True, slots=True)
class Curve:
    """1 - accuracy = 1 / (b0 * step + b1) + b2, the form of Optimus. Fitted outside the engine."""

    b0: float
    b1: float
    b2: float
    points: int = 0

    def step_of(self, accuracy: float) -> float | None:
        """The step at which ``accuracy`` is reached; None: never, or beyond ``STEP_MAX``."""
        gap = 1.0 - accuracy - self.b2
        if gap <= 0.0 or self.b0 <= 0.0:
            return None
        step = max(0.0, (1.0 / gap - self.b1) / self.b0)
        return step if step <= STEP_MAX else None


@dataclass(frozen=True, slots=True)
class Learned:
    """What running jobs taught about a type; beside its profile, never over it."""

    job_type: str
    speed: tuple[Measured, ...] = ()
    """What predictions use; they are not made anew for each job that was heard."""
    job_init_s: float | None = None
    process_init_s: float | None = None
    checkpoint_s: float | None = None
    process_stop_s: float | None = None
    job_stop_s: float | None = None
    curve: Curve | None = None
    heard: tuple[Measured, ...] = ()
    """What ``speed`` becomes as soon as it is other by more than a little."""


@dataclass(frozen=True, slots=True)
class Trend:
    """Where a job was, and how fast. Later reports are expected to lie on this line."""

    progress: Progress
    at_s: float
    """When ``progress.step`` was seen to move."""
    measured: tuple[Measured, ...]
    """Seconds per step at the sizes that it has trained on."""

    def expects(
        self,
        progress: Progress,
        at_s: float,
        measured: tuple[Measured, ...],
        gpu_type: str,
        gpus: int,
    ) -> bool:
        """Whether a report says what was to be expected: the job trains on ``gpus`` GPUs of a type,
        and its step was seen to move at ``at_s``."""
        before = self.progress
        length = progress.total_steps, progress.steps_per_epoch
        if length != (before.total_steps, before.steps_per_epoch):
            return False
        if not as_before(self.measured, measured):
            return False
        own = at_size(self.measured, gpu_type, gpus)
        if own is None:
            return False
        steps = (at_s - self.at_s) / own.seconds_per_step
        return abs(progress.step - before.step - steps) <= 1.0 + NEWS * steps


def as_before(old: tuple[Measured, ...], new: tuple[Measured, ...]) -> bool:
    """Whether measurements of the same sizes tell nothing new."""
    if len(old) != len(new):
        return False
    for number, one in enumerate(old):
        other = new[number]
        if other.gpus != one.gpus or other.gpu_type != one.gpu_type:
            return False
        if abs(other.seconds_per_step - one.seconds_per_step) > NEWS * one.seconds_per_step:
            return False
    return True


def blend(old: float | None, new: float, weight: float) -> float:
    """``old`` moved towards ``new`` by a bounded weight; ``new`` where nothing was known."""
    return new if old is None else old + weight * (new - old)


def measure(
    known: tuple[Measured, ...],
    gpu_type: str,
    gpus: int,
    seconds: float,
    *,
    prior_s: float | None,
    weight: float,
) -> tuple[Measured, ...]:
    """``known`` with one more measurement at a size, blended into what was believed there.

    ``prior_s`` is the belief before the first measurement; None takes that one as it is.
    """
    for number, entry in enumerate(known):
        if (entry.gpu_type, entry.gpus) == (gpu_type, gpus):
            mean = blend(entry.seconds_per_step, seconds, weight)
            entry = Measured(gpu_type, gpus, mean, entry.count + 1)
            return (*known[:number], entry, *known[number + 1 :])
    return (*known, Measured(gpu_type, gpus, blend(prior_s, seconds, weight)))


def at_size(measured: tuple[Measured, ...], gpu_type: str, gpus: int) -> Measured | None:
    """What was measured at a size, if anything was."""
    for entry in measured:
        if entry.gpus == gpus and entry.gpu_type == gpu_type:
            return entry
    return None
