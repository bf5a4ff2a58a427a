"""What jobs teach the controller, as values: measured speeds, accuracy curves, trends of progress.

Does: blends a new measurement into the earlier ones, and tells a report with news from an expected
report. ``core.learning`` says when that happens; ``core.profile_book`` looks the values up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from reshape_controller.core.fast_replace import fast_init
from reshape_sidecar.wire import Progress, StartKind

STEP_MAX = 1e12
"""Most steps of a job. Job records have the same bound."""
ARRAY_TYPE = "array-"
"""Begins the job type of the members of an array whose record names none."""
NEWS = 0.01
"""A report has news if its speed, or its steps since the trend, differ from the expected ones by
more than this part."""


@dataclass(frozen=True, slots=True)
class AccuracySeen:
    """Result of one evaluation: the accuracy of a job after a number of steps."""

    step: int
    accuracy: float


@fast_init
@dataclass(frozen=True, slots=True)
class Measured:
    """Measured seconds per step at one size, on so many hosts, blended from ``count``
    measurements."""

    gpu_type: str
    gpus: int
    seconds_per_step: float
    count: int = 1
    hosts: int = 1
    is_median: bool = False
    """Whether it is of medians of a minute, with what evaluations and ends of epochs take; if not,
    of means of a few steps alone, as earlier releases measured."""


@dataclass(frozen=True, slots=True)
class Curve:
    """1 - accuracy = 1 / (b0 * step + b1) + b2, the form of Optimus. Fitted outside the engine."""

    b0: float
    b1: float
    b2: float
    points: int = 0

    def step_of(self, accuracy: float) -> float | None:
        """Return the step at which ``accuracy`` is reached; None if not up to ``STEP_MAX``."""
        gap = 1.0 - accuracy - self.b2
        if gap <= 0.0 or self.b0 <= 0.0:
            return None
        step = max(0.0, (1.0 / gap - self.b1) / self.b0)
        return step if step <= STEP_MAX else None


@dataclass(frozen=True, slots=True)
class StartPhase:
    """Learned seconds of one phase within the start of a process."""

    how: StartKind
    phase: str
    seconds: float


@dataclass(frozen=True)
class Learned:
    """What running jobs taught about a job type; it stands beside the recorded profile."""

    job_type: str
    speed: tuple[Measured, ...] = ()
    """The speeds that predictions use. They change only when ``heard`` has news."""
    job_init_s: float | None = None
    process_init_s: float | None = None
    """Seconds of a cold start of a process."""
    checkpoint_s: float | None = None
    process_stop_s: float | None = None
    job_stop_s: float | None = None
    curve: Curve | None = None
    heard: tuple[Measured, ...] = ()
    """The speeds with every measurement blended in."""
    zygote_init_s: float | None = None
    """Seconds of a start of a process by a zygote."""
    successor_init_s: float | None = None
    """Seconds from the end of a process to the end of its successor's first step."""
    prepare_s: float | None = None
    """Seconds in which a successor is prepared."""
    total_steps: float | None = None
    """Steps of a job of an array, as those that have completed made them; a program that reports no
    steps counts as one of a single step. Only of ``ARRAY_TYPE``s, whose jobs are alike."""
    start_phases: tuple[StartPhase, ...] = ()
    """What the starts of processes consist of, for people alone: no decision depends on it."""

    def start_phase_s(self, how: StartKind, phase: str) -> float | None:
        """Return the learned seconds of a phase of such a start; None if there are none."""
        for known in self.start_phases:
            if (known.how, known.phase) == (how, phase):
                return known.seconds
        return None


@dataclass(frozen=True, slots=True)
class Voice:
    """What the jobs of one user taught about a job type, whatever those of others say."""

    user: str
    taught: Learned


INIT_FIELDS = {
    StartKind.COLD: "process_init_s",
    StartKind.ZYGOTE: "zygote_init_s",
    StartKind.SUCCESSOR: "successor_init_s",
}
"""Name of the figure of ``Learned`` that each kind of start teaches."""


@fast_init
@dataclass(frozen=True, slots=True)
class Trend:
    """A job's progress and speed at its last report with news. Predictions use it, and later
    reports are expected to lie on its line."""

    progress: Progress
    at_s: float
    """When the job was at ``progress.step`` (seconds)."""
    measured: tuple[Measured, ...]
    """The job's own measurements at that time."""

    def expects(
        self,
        progress: Progress,
        at_s: float,
        measured: tuple[Measured, ...],
        gpu_type: str,
        gpus: int,
        hosts: int = 1,
    ) -> bool:
        """Whether a report has no news.

        The job trains on ``gpus`` GPUs of type ``gpu_type``, on so many hosts, and was at
        ``progress.step`` at ``at_s`` (seconds).
        """
        before = self.progress
        length = progress.total_steps, progress.steps_per_epoch
        if length != (before.total_steps, before.steps_per_epoch):
            return False
        if not as_before(self.measured, measured):
            return False
        own = at_size(self.measured, gpu_type, gpus, hosts)
        if own is None:
            return False
        steps = (at_s - self.at_s) / own.seconds_per_step
        return abs(progress.step - before.step - steps) <= 1.0 + NEWS * steps


def as_before(old: tuple[Measured, ...], new: tuple[Measured, ...]) -> bool:
    """Whether ``new`` measures the same sizes as ``old``, without news."""
    if len(old) != len(new):
        return False
    for number, before in enumerate(old):
        after = new[number]
        if after.gpus != before.gpus or after.gpu_type != before.gpu_type:
            return False
        if after.hosts != before.hosts:
            return False
        if abs(after.seconds_per_step - before.seconds_per_step) > NEWS * before.seconds_per_step:
            return False
    return True


def blend(old: float | None, new: float, weight: float) -> float:
    """Return ``old`` moved towards ``new`` by ``weight`` (0 to 1); ``new`` if ``old`` is None."""
    return new if old is None else old + weight * (new - old)


def with_start_phases(
    known: Learned, how: StartKind, seconds: Mapping[str, float], weight: float
) -> Learned:
    """Return ``known`` with the measured seconds of each phase of a start blended in."""
    others = [
        each for each in known.start_phases if each.how is not how or each.phase not in seconds
    ]
    moved = [
        StartPhase(how, phase, blend(known.start_phase_s(how, phase), measured_s, weight))
        for phase, measured_s in seconds.items()
    ]
    return replace(known, start_phases=(*others, *moved))


def measure(
    known: tuple[Measured, ...],
    gpu_type: str,
    gpus: int,
    seconds: float,
    *,
    prior_s: float | None,
    weight: float,
    hosts: int = 1,
    is_median: bool = False,
) -> tuple[Measured, ...]:
    """Return ``known`` with one more measurement, on so many hosts, blended in. The first median at
    a size replaces what means of a few steps said; later means change it no more.

    ``prior_s``: seconds per step expected before the first measurement at this size on as many
    hosts; None takes the first measurement as it is.
    """
    for number, entry in enumerate(known):
        if (entry.gpu_type, entry.gpus, entry.hosts) == (gpu_type, gpus, hosts):
            if entry.is_median and not is_median:
                return known
            count, mean = entry.count + 1, blend(entry.seconds_per_step, seconds, weight)
            if is_median and not entry.is_median:
                count, mean = 1, seconds
            entry = Measured(gpu_type, gpus, mean, count, hosts, is_median)
            return (*known[:number], entry, *known[number + 1 :])
    mean = blend(prior_s, seconds, weight)
    return (*known, Measured(gpu_type, gpus, mean, hosts=hosts, is_median=is_median))


def at_size(
    measured: tuple[Measured, ...], gpu_type: str, gpus: int, hosts: int = 1
) -> Measured | None:
    """Return the measurement at a size on so many hosts; None if there is none."""
    for entry in measured:
        if entry.gpus == gpus and entry.gpu_type == gpu_type and entry.hosts == hosts:
            return entry
    return None
