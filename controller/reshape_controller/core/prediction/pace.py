"""What is kept of the prediction of a job from one decision to the next.

Does: holds what does not change with time, and takes in other costs. Never: predicts (that is
``predictor``), or outlives the job's view or what it says of its type. State: this is the cache; a
view holds it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reshape_controller.core.prediction.list_schedule import Waiting
from reshape_controller.core.prediction.profiles import Answers
from reshape_profiles.schema import Overhead


@dataclass(slots=True)
class Pace:
    """What of the prediction of a job does not change with time."""

    answers: Answers
    """Of its type; with others, this is void."""
    job_type: str
    cost: Overhead
    tail_s: float
    """Last checkpoint and stops."""
    stay_s: float
    """Without training, in a reshape whose container stays."""
    left: float
    """Iterations left at its last report; now, if it does not train."""
    since_s: float | None
    """When that was, if it trains."""
    step_s: float
    """Seconds of an iteration at its size, if it trains."""
    until_s: float = 0.0
    """When it will have trained, if it trains."""
    speeds_s: dict[str, dict[int, float]] = field(default_factory=dict)
    """Seconds of an iteration by GPU type and size."""
    starting_ms: int | None = None
    """When a job that does not train yet will have left, from whenever it is asked."""
    waiting: Waiting | None = None
    """How a queued job counts in a list schedule."""
    gifts: tuple[int, ...] | None = None
    """How many GPUs it can give, the most first (see ``bounds``; with the next)."""
    slower_s: float = 0.0
    """By how much a step is longer at least, at any smaller size."""
    faster_s: dict[tuple[tuple[str, int], ...], float] = field(default_factory=dict)
    """By how much a step is shorter at most, on GPUs of types of which there are so many."""
    no_growth: object = None
    """With which idle GPUs more of them would save too little, from then on (see ``bounds``)."""

    def costs_are(self, answers: Answers, cost: Overhead) -> None:
        """Other costs of its type were learned, and nothing else."""
        self.answers, self.cost = answers, cost
        self.tail_s, self.stay_s = sums_s(cost)
        self.starting_ms = self.waiting = self.no_growth = None


def sums_s(cost: Overhead) -> tuple[float, float]:
    """The end of a job, and a reshape whose container stays."""
    kept = cost.checkpoint_s + cost.process_stop_s
    return kept + cost.job_stop_s, kept + cost.process_init_s
