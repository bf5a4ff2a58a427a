"""The cached part of a job's prediction: all of it that does not change as time passes.

``scheduling.predictor`` fills an estimate and is the only reader that checks whether it still
holds; a planner's index has the estimates from one decision to the next. Queued jobs that have not
begun and whose predictions depend on the same values share one estimate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from reshape_controller.core.model import JobId, Length
from reshape_controller.core.profile_book import Answers, ProfileBook
from reshape_profiles.schema import Overhead
from reshape_sidecar.wire import StartKind

NO_COST = Overhead(0.0, 0.0, 0.0, 0.0, 0.0)
"""The cost of an estimate that the predictor has not filled yet."""
NO_ANSWERS = Answers()
"""The answers of an estimate that the predictor has not filled yet: those of no type."""

Likeness = tuple[str | None, Length | None, int | None, tuple[int, ...], tuple[int, ...], int]
"""All that the prediction of a job that has not begun depends on: its type, length and batch, its
optional numbers of GPUs, those of them that are not excluded, and of a job that may be on several
hosts its workers (1 of any other)."""


@dataclass(frozen=True, slots=True)
class GangWork:
    """A queued job on several hosts as the list schedule counts it."""

    workers: int
    each: int
    """GPUs of each worker, which are on one host."""
    durations_ms: tuple[int, ...]
    """Milliseconds from its start until it has left, on as few hosts as hold it (two at least), by
    the number of the GPU type."""


@dataclass(frozen=True, slots=True)
class QueuedWork:
    """A queued job as the list schedule counts it, at its smallest size. Jobs that share an
    estimate share this value."""

    size: int
    """GPUs that the job needs."""
    durations_ms: tuple[int, ...]
    """Milliseconds from its start until it has left, by the number of the GPU type: on one host,
    or on several where no host of the type is large enough."""
    area_ms: int
    """GPU milliseconds that it takes on the fastest GPU type."""
    gang: GangWork | None = None
    """The job on several hosts, if it may be on several."""

    @property
    def shortest_ms(self) -> tuple[int, ...]:
        """Milliseconds as in ``durations_ms``, on one host or on several."""
        if self.gang is None:
            return self.durations_ms
        return tuple(map(min, self.durations_ms, self.gang.durations_ms))


class SmallerSize(NamedTuple):
    """A size to which a running job may shrink."""

    keeps: int
    """The GPUs that the job keeps."""
    releases: int
    """The GPUs that it releases."""
    step_s: float
    """Seconds of one iteration there."""
    lost_part: float
    """The part of its iterations that it does not do there."""
    shrinks: tuple[tuple[JobId, int]]
    """The job with the size, as an option has them."""


@dataclass(slots=True, eq=False)
class JobEstimate:
    """The time-independent figures from which the predictor computes a job's times."""

    book: ProfileBook
    """The profile book with which the predictor last checked that the estimate holds."""
    answers: Answers
    """The book's cached answers about the job's type; other answers make the estimate void."""
    trains: bool = False
    """True if the job's steps move and its remaining steps are known; the next three need it."""
    own_end: bool = False
    """True if ``train_end_s`` follows from the job's own measurements only, so that it does not
    move when the type's speeds change."""
    reported_at_s: float = 0.0
    """When the job's steps were seen to move last (Unix seconds)."""
    step_s: float = 1.0
    """Seconds of one iteration at the job's present size."""
    train_end_s: float = 0.0
    """Predicted end of training (Unix seconds)."""
    exit_s: float = 0.0
    """Seconds from the end of training until the job has left: last checkpoint and stops."""
    in_place_s: float = 0.0
    """Seconds without training in a reshape whose container stays."""
    restart_s: float = 0.0
    """Seconds without training in a reshape whose container ends; its process starts cold."""
    remaining_steps: float = 0.0
    """Iterations left at the last report; of a job that does not train, iterations left now."""
    cost: Overhead = NO_COST
    """Times of starts, stops and checkpoints of the job's type, with a process that starts as the
    job's SideCar promises."""
    cold_init_s: float = 0.0
    """Seconds of a cold start of a process."""
    step_times_s: dict[tuple[str, int], dict[int, float]] = field(default_factory=dict)
    """Seconds of one iteration by GPU type and number of hosts, and by size."""
    train_times_s: dict[tuple[str, int, int], float] = field(default_factory=dict)
    """Seconds of training left by GPU type, size and number of hosts, of a job that does not train.
    """
    queued_work: QueuedWork | None = None
    """The job as the list schedule counts it on ``gpu_types``; None until it is computed."""
    gpu_types: tuple[str, ...] = ()
    """The GPU types to which ``queued_work`` refers."""
    gang_work: QueuedWork | None = None
    """The same of a job that may be on several hosts of ``gang_room``; None until it is computed.
    """
    gang_room: object = None
    """The room to which ``gang_work`` refers."""
    smaller: list[SmallerSize] | None = None
    """The smaller sizes of a running job; None until they are computed."""
    min_step_s: dict[tuple[int, tuple[tuple[str, int], ...]], float] = field(default_factory=dict)
    """Shortest iteration (seconds) that the job could have, by the smallest size, and the largest
    one on each GPU type, that it could get."""

    best_step_s: float = 0.0
    """Shortest iteration (seconds) of a queued job at any size on any host of ``best_among``."""
    best_among: tuple[tuple[str, int], ...] | None = None
    """The GPU types, each with the GPUs of its largest host, to which ``best_step_s`` refers; None
    until it is computed."""
    best_room: object = None
    """The room to which it refers, of a job that may be on several hosts."""

    def reset(
        self, book: ProfileBook, answers: Answers, job_type: str | None, start: StartKind
    ) -> None:
        """Forget every figure, because the type's speeds or lengths are others now."""
        self.set_costs(book, answers, job_type, start)
        self.trains = self.own_end = False
        self.best_among = self.smaller = None
        for figures in (self.step_times_s, self.train_times_s, self.min_step_s):
            if figures:
                figures.clear()

    def set_costs(
        self, book: ProfileBook, answers: Answers, job_type: str | None, start: StartKind
    ) -> None:
        """Replace the type's costs, for a job whose next process starts as ``start``; the figures
        that do not depend on them stay."""
        costs = answers.overheads or book.overheads(job_type)
        cost, cold = costs[start], costs[StartKind.COLD]
        self.book, self.answers, self.cost = book, answers, cost
        self.exit_s, self.in_place_s = _exit_and_reshape_s(cost)
        in_place_s = self.in_place_s if cost is cold else _exit_and_reshape_s(cold)[1]
        self.restart_s = in_place_s + cold.job_stop_s + cold.job_init_s
        self.cold_init_s = cold.process_init_s
        self.queued_work = self.gang_work = None


@dataclass(slots=True, eq=False)
class Estimates:
    """The estimates of a snapshot's jobs."""

    by_job: dict[JobId, JobEstimate] = field(default_factory=dict)
    shared: dict[Likeness, JobEstimate] = field(default_factory=dict)
    """Estimates for all jobs of a likeness that have not begun."""


def _exit_and_reshape_s(cost: Overhead) -> tuple[float, float]:
    """Seconds of a job's exit, and of a reshape whose container stays."""
    save_s = cost.checkpoint_s + cost.process_stop_s
    return save_s + cost.job_stop_s, save_s + cost.process_init_s
