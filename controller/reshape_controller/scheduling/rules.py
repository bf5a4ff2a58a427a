"""The rules by which ``adaptive`` decides, as values, so that each can be left out."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

GAIN = 0.05
"""A reshape has to save this part of the remaining time of the job that is reshaped."""
COOL_DOWN = 5.0
"""After a reshape a job is not shrunk for so many times the cost of the reshape."""
MAX_WAIT_S = 3600.0
"""A queued job without a ``max_wait_s`` of its own is started at any price after so long."""


class Objective(Enum):
    """What decides between two options: the makespan, or the sum of completion times."""

    MAKESPAN = "makespan"
    SUM = "sum"

    def in_order(self, makespan_ms: int, total_ms: int) -> tuple[int, int]:
        """Return the figure that decides, then the one that breaks ties; or, from these two, the
        makespan and the sum."""
        return (makespan_ms, total_ms) if self is Objective.MAKESPAN else (total_ms, makespan_ms)


class QueueOrder(Enum):
    """In which order queued jobs of one priority have their turn."""

    PLACE = "place"
    """As they came."""
    RATIO = "ratio"
    """By (wait + own best time) / own best time, the highest first."""
    SHORTEST = "shortest"
    """By own best time, the shortest first."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a policy. The default values are those of ``adaptive-v1``."""

    gain: float = GAIN
    """Part of its remaining time that the reshape of a job has to save."""
    cool_down: float = COOL_DOWN
    """A job is not shrunk for so many times the cost of its last reshape."""
    max_wait_s: float = MAX_WAIT_S
    """Shortest wait of an overdue job that has no ``max_wait_s`` of its own."""
    moves_to_any_size: bool = False
    """A job may move to fewer GPUs if they are of another type."""

    objective: Objective = Objective.MAKESPAN
    queue_order: QueueOrder = QueueOrder.PLACE
    critical_first: bool = False
    """Of one priority, jobs whose own best time reaches the time in which the GPUs could do all
    work come first."""
    lends: bool = False
    """A donor whose newcomer ends before it gets its GPUs back, and loses only the newcomer's stay
    and two reshapes. Several donors give the cheapest GPU first."""
    guard_lengths: float = 0.0
    """A job without a ``max_wait_s`` of its own is overdue after so many times its own best time at
    the earliest; at 0 its wait alone counts, and overdue jobs keep the order of the queue."""
    preempts_by_ratio: bool = False
    """A job that waits far longer than it trains may send one job back to the queue
    (``ratio_preemption``)."""
    preempts_overdue: bool = False
    """An overdue job that fits nowhere may send jobs of its own priority back to the queue
    (``outranking.equal_start``)."""
    gangs: bool = False
    """Jobs start, give and get GPUs on several hosts (``gang_options``)."""
    gain_ppm: int = field(init=False, default=0)
    """``gain`` in millionths."""

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if not 0.0 <= self.gain < 1.0:
            raise ValueError(f"gain is {self.gain:g}, and must lie between 0 and 1")
        for name in ("cool_down", "max_wait_s"):
            if not 0.0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} is {getattr(self, name):g}, and must be 0 or more")
        object.__setattr__(self, "gain_ppm", round(self.gain * 1e6))

    def min_saving_ms(self, left_ms: int) -> int:
        """Return what the reshape of a job has to save if the job will have left in ``left_ms``;
        at least 1."""
        return -(-self.gain_ppm * left_ms // 1_000_000) or 1


V1 = Rules()
"""The rules of ``adaptive-v1``."""


def saves_enough(first: int, second: int, baseline: tuple[int, int], min_saving: int) -> bool:
    """Return whether an option saves ``min_saving`` in the figure that decides, or in the other one
    while the first does not rise."""
    saved = baseline[0] - first
    return saved >= min_saving or (saved >= 0 and baseline[1] - second >= min_saving)
