"""What is known of a job type beforehand: speed, accuracy, overhead. Values, standard library only.

Does: names the figures of a profile (the paper's Tables IV and V and the times of its section
III.B.1), each with its source, and refuses figures that cannot be. Never: reads a file, measures,
or invents a figure: one without a measurement says ``assumed`` and why.
"""

from __future__ import annotations

from dataclasses import dataclass

ASSUMED = "assumed"
"""How the source of a figure begins that nobody measured."""
STEP_MIN_S, SECONDS_MAX = 1e-9, 1e9
"""No step is shorter, and neither step nor start or save longer: what is beyond is no figure, and
sums of it are no numbers."""
DEFAULT_TYPE = "default"
"""The profile of jobs without a type; its overheads stand in for every type that has none."""
COSTS = ("job_init_s", "process_init_s", "checkpoint_s", "process_stop_s", "job_stop_s")
"""The figures of an ``Overhead``, in their order."""


@dataclass(frozen=True, slots=True)
class SpeedPoint:
    """Seconds of one iteration (one global batch) on ``gpus`` GPUs of a type."""

    gpu_type: str
    gpus: int
    seconds_per_step: float
    source: str = ASSUMED

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise ValueError(f"gpus is {self.gpus}, and must be at least 1")
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
    """Seconds of everything that is not training (paper, III.B.1 and III.C)."""

    job_init_s: float
    """Launch until the SideCar says ``initialized``: scheduling, image, container."""
    process_init_s: float
    """Start of the training process until its first step is done."""
    checkpoint_s: float
    """A checkpoint is asked for until it is published."""
    process_stop_s: float
    """From then until the process tree is gone and its GPUs are empty."""
    job_stop_s: float
    """End of the container."""
    source: str = ASSUMED

    def __post_init__(self) -> None:
        for name in COSTS:
            value = getattr(self, name)
            if not 0.0 <= value <= SECONDS_MAX:
                raise ValueError(f"{name} is {value}, and must lie between 0 and {SECONDS_MAX:g}")


@dataclass(frozen=True, slots=True)
class Profile:
    """Everything known of one job type (model, dataset and hyperparameters).

    ``global_batch`` is the batch that the speeds hold for: it is fixed and split over the GPUs.
    """

    job_type: str
    text: str = ""
    global_batch: int | None = None
    steps_per_epoch: int | None = None
    speed: tuple[SpeedPoint, ...] = ()
    accuracy: tuple[AccuracyPoint, ...] = ()
    overhead: Overhead | None = None

    def __post_init__(self) -> None:
        if not self.job_type:
            raise ValueError("job_type is empty; name the type as the job records do")
        for name in ("global_batch", "steps_per_epoch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}, and must be at least 1")
        seen: dict[tuple[str, int], None] = {}
        for point in self.speed:
            if (point.gpu_type, point.gpus) in seen:
                raise ValueError(f"two speeds for {point.gpus} {point.gpu_type}; keep one")
            seen[point.gpu_type, point.gpus] = None
