"""Profiles as values: speed, accuracy and overhead of a job type. Standard library only.

Does: define the values of a profile (the paper's Tables IV and V and the times of its section
III.B.1), each with its source, and reject impossible ones. The source of a value without a
measurement says ``assumed`` and the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_sidecar.wire import Trajectory

ASSUMED = "assumed"
"""Begin of the source of a value that was not measured."""
STEP_MIN_S, SECONDS_MAX = 1e-9, 1e9
"""Range of the seconds of steps, starts and saves; sums of larger values overflow."""
DEFAULT_TYPE = "default"
"""Profile of jobs without a type; its overheads also apply to types without overheads."""
VERDICTS = tuple(verdict.value for verdict in Trajectory)
"""Verdicts of a verification, the best first."""
COSTS = ("job_init_s", "process_init_s", "checkpoint_s", "process_stop_s", "job_stop_s")
"""Names of the values of an ``Overhead``, in their order."""


@dataclass(frozen=True, slots=True)
class SpeedPoint:
    """Seconds of an iteration (a global batch) on ``gpus`` GPUs of a type, together on ``hosts``
    hosts."""

    gpu_type: str
    gpus: int
    seconds_per_step: float
    source: str = ASSUMED
    hosts: int = 1

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise ValueError(f"gpus is {self.gpus}, and must be at least 1")
        if not 1 <= self.hosts <= self.gpus:
            what = f"hosts is {self.hosts}, and must lie between 1 and gpus, {self.gpus}"
            raise ValueError(f"{what}: each host has a GPU")
        if not STEP_MIN_S <= self.seconds_per_step <= SECONDS_MAX:
            what = f"seconds_per_step is {self.seconds_per_step}"
            raise ValueError(f"{what}, and must lie between {STEP_MIN_S:g} and {SECONDS_MAX:g}")


@dataclass(frozen=True, slots=True)
class AccuracyPoint:
    """Validation accuracy (0 to 1) after a number of iterations."""

    step: int
    accuracy: float
    source: str = ASSUMED

    def __post_init__(self) -> None:
        if self.step < 0:
            raise ValueError(f"step is {self.step}, and must not be negative")
        if not 0.0 <= self.accuracy <= 1.0:
            raise ValueError(f"accuracy is {self.accuracy}, and must lie between 0 and 1")


@dataclass(frozen=True, slots=True)
class Overhead:
    """Seconds of starts, saves and stops (paper, III.B.1 and III.C)."""

    job_init_s: float
    """Time from the launch to the report ``initialized``: scheduling, image, container."""
    process_init_s: float
    """Time from the start of the training process to the end of its first step."""
    checkpoint_s: float
    """Time from the request for a checkpoint to its publication."""
    process_stop_s: float
    """Time from the checkpoint to the end of the process tree, when its GPUs are free."""
    job_stop_s: float
    """Time to end the container."""
    source: str = ASSUMED

    def __post_init__(self) -> None:
        for name in COSTS:
            value = getattr(self, name)
            if not 0.0 <= value <= SECONDS_MAX:
                raise ValueError(f"{name} is {value}, and must lie between 0 and {SECONDS_MAX:g}")


@dataclass(frozen=True, slots=True)
class Verification:
    """Measured effect of stops on the training of a job type (``reshape verify``)."""

    verdict: str
    """``exact``, ``steps-only`` or ``unknown``."""
    reason: str
    steps: int
    """Steps of each compared run."""
    sizes: tuple[int, ...]
    """Numbers of GPUs of the stopped run's processes, in their order."""
    date: str
    """Date of the measurement, as 2026-11-25."""
    versions: str
    """Versions of Python and of the frameworks."""

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict is {self.verdict!r}; use one of: {', '.join(VERDICTS)}")
        if self.steps < 1:
            raise ValueError(f"steps is {self.steps}, and must be at least 1")


@dataclass(frozen=True, slots=True)
class Profile:
    """All known values of a job type (model, dataset and hyperparameters).

    ``global_batch`` is the batch of the speeds: it is fixed and split over the GPUs.
    """

    job_type: str
    text: str = ""
    global_batch: int | None = None
    steps_per_epoch: int | None = None
    speed: tuple[SpeedPoint, ...] = ()
    accuracy: tuple[AccuracyPoint, ...] = ()
    overhead: Overhead | None = None
    verification: Verification | None = None

    def __post_init__(self) -> None:
        if not self.job_type:
            raise ValueError("job_type is empty; name the type as the job records do")
        for name in ("global_batch", "steps_per_epoch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}, and must be at least 1")
        seen: dict[tuple[str, int, int], None] = {}
        for point in self.speed:
            key = (point.gpu_type, point.gpus, point.hosts)
            if key in seen:
                where = "" if point.hosts == 1 else f" on {point.hosts} hosts"
                what = f"two speeds for {point.gpus} {point.gpu_type}{where}"
                raise ValueError(f"{what}; keep one")
            seen[key] = None
