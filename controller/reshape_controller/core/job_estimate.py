"""What is kept of the prediction of a job from one decision to the next.

Does: holds what does not change with time, and takes in other costs. Never: predicts (that is
``predictor``), or outlives the job's view. State: this is the cache; a view holds it. Queued jobs
that have not begun and are alike share one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reshape_controller.core.profile_book import Answers, ProfileBook
from reshape_profiles.schema import Overhead

NO_COST = Overhead(0.0, 0.0, 0.0, 0.0, 0.0)
"""Until it is looked at."""


@dataclass(frozen=True, slots=True)
class QueuedWork:
    """Queued jobs in a list schedule, at their smallest size: milliseconds on each GPU type, and
    the smallest area. Those that are alike are one value."""

    size: int
    takes_ms: tuple[int, ...]
    area_ms: int


@dataclass(slots=True, eq=False)
class JobEstimate:
    """What of the prediction of a job does not change with time."""

    book: ProfileBook
    """The book with which it was found to hold last; with another one it is looked at again."""
    answers: Answers
    """Of its type; with others, this is void."""
    trains: bool = False
    """Its steps were seen to move, and the next three are known."""
    own: bool = False
    """These do not depend on the speeds that its type learns."""
    since_s: float = 0.0
    """When that was."""
    step_s: float = 1.0
    """Seconds of an iteration at its size."""
    until_s: float = 0.0
    """When it will have trained."""
    tail_s: float = 0.0
    """Last checkpoint and stops."""
    stay_s: float = 0.0
    """Without training, in a reshape whose container stays."""
    left: float = 0.0
    """Iterations left at its last report; now, if it does not train."""
    cost: Overhead = NO_COST
    speeds_s: dict[str, dict[int, float]] = field(default_factory=dict)
    """Seconds of an iteration by GPU type and size."""
    incoming_s: dict[tuple[str, int], float] = field(default_factory=dict)
    """Training that is left to a job that does not train, by GPU type and size."""
    waiting: QueuedWork | None = None
    """How a queued job counts in a list schedule, on..."""
    gpu_types: tuple[str, ...] = ()
    """...these GPU types."""
    shortest_s: dict[tuple[str, int], float] = field(default_factory=dict)
    """Seconds of an iteration at best, on GPUs of a type of which there are so many."""

    def begin(self, book: ProfileBook, answers: Answers, cost: Overhead) -> None:
        """Other speeds of its type were learned: nothing holds any more."""
        self.costs_are(book, answers, cost)
        self.trains = self.own = False
        for figures in (self.speeds_s, self.incoming_s, self.shortest_s):
            if figures:
                figures.clear()

    def costs_are(self, book: ProfileBook, answers: Answers, cost: Overhead) -> None:
        """Other costs of its type were learned, and nothing else."""
        self.book, self.answers, self.cost = book, answers, cost
        self.tail_s, self.stay_s = sums_s(cost)
        self.waiting = None


def sums_s(cost: Overhead) -> tuple[float, float]:
    """The end of a job, and a reshape whose container stays."""
    kept = cost.checkpoint_s + cost.process_stop_s
    return kept + cost.job_stop_s, kept + cost.process_init_s
