"""Classes of running jobs that differ in their times only, and a donor's bound for a whole class.

Does: keeps each class sorted by the predicted end of training, and says which of its jobs pass the
bound on what taking GPUs from them can save. The bound is an upper bound on the saving, so a job
that fails it has no option that saves enough; tests compare it with every option.

Why one comparison can reject a class. A job with ``r`` seconds of training left whose steps take
``s`` times longer on fewer GPUs loses ``r * s`` seconds and the costs of a reshape. The class uses
the smallest ``s`` of its jobs' smaller sizes, so the loss is never overestimated, and grows with
``r``. So do the job's end and what its reshape has to save. If the job that ends its training first
fails the bound, all jobs of the class fail it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from reshape_controller.core.model import JobId
from reshape_controller.core.plan import JobView
from reshape_controller.scheduling.predictor import Predictor

ROUNDING_MS = 6
"""How far a sum of whole milliseconds may lie from the exact one; bounds give way by so much."""
NO_SIZE_S = 1e9
"""Stands for the seconds of an iteration, or of its difference, where there is no such size."""
UNKNOWN_LOSS_MS = -(10**15)
"""The loss of a job whose slowdown is unknown: it passes every bound."""


class ClassKey(NamedTuple):
    """The values in which all jobs of a class agree."""

    type_number: int
    """The GPU type, by number."""
    job_type: str | None
    size: int
    sizes: tuple[int, ...]
    trains: bool
    """Whether the jobs train and their remaining steps are known."""
    growable: bool
    """Whether their lengths are known."""
    own_speeds: bool
    """Whether each job was measured at several sizes, so that its slowdown is its own."""


@dataclass(slots=True, eq=False)
class RunningEntry:
    """A running job in the index: the GPUs that it has, and its predicted times."""

    job: JobView
    host_number: int
    """The number of its host; -1 if the host cannot be used."""
    type_number: int
    """The number of its GPU type; without a usable host, the number after the last type."""
    end_ms: int
    """When it will have left: Unix milliseconds if ``is_absolute``, else milliseconds from now."""
    is_absolute: bool
    train_end_s: float
    """Predicted end of training (Unix seconds)."""
    own_end: bool
    """True if ``train_end_s`` follows from the job's own measurements only."""
    in_place_s: float
    """Seconds without training in a reshape whose container stays."""
    restart_s: float
    """Seconds without training in a reshape whose container ends."""
    min_slowdown: float = -1.0
    """By what part an iteration gets longer at the job's best smaller size, if its speeds are its
    own; negative if it is unknown."""
    job_class: RunningClass | None = None
    """The class of the job; None if no plan may name it."""

    def end_from_now_ms(self, now_ms: int) -> int:
        """Return when the job will have left, in milliseconds from now."""
        return self.end_ms - now_ms if self.is_absolute else self.end_ms


class Exclusions:
    """Running jobs that are no donors in a search, with their number in each class."""

    def __init__(self, entries: list[RunningEntry]) -> None:
        """``entries`` may contain a job twice; it counts once."""
        self.entries = entries
        self.job_ids: dict[JobId, None] = {}
        self.count_by_class: dict[RunningClass, int] = {}
        for entry in entries:
            job_class = entry.job_class
            if job_class is not None and entry.job.id not in self.job_ids:
                self.job_ids[entry.job.id] = None
                self.count_by_class[job_class] = self.count_by_class.get(job_class, 0) + 1


@dataclass(frozen=True, slots=True, eq=False)
class BoundContext:
    """The values of a decision on which a donor's threshold depends."""

    now_s: float
    now_ms: int
    min_saving_ms: Callable[[int], int]
    """What a reshape has to save, as a function of the time until the job has left."""


@dataclass(frozen=True, slots=True, eq=False)
class MaxGain:
    """Upper bounds on what the GPUs of one donor bring, in milliseconds."""

    total_ms: int
    """Saved in the sum of completion times; the donor's own loss is not deducted."""
    queue_limit_ms: int
    """Until then other queued jobs have use for GPUs that become free."""
    makespan_ms: int
    """Saved in the makespan."""


@dataclass(frozen=True, slots=True, eq=False)
class DonorThreshold:
    """What a gain has to reach before it is worth evaluating the options of a donor."""

    end_ms: int
    """When the donor will have left, from now."""
    min_saving_ms: int
    """What its reshape has to save."""
    min_total_ms: int
    """A lower bound on what the newcomer has to save: the donor's loss and ``min_saving_ms``."""

    def is_met_by(self, gain: MaxGain) -> bool:
        """Whether an option of the donor could save enough: in the sum of completion times, by
        GPUs that the queue could use, or in the makespan."""
        return (
            self.min_total_ms <= gain.total_ms
            or self.end_ms <= gain.queue_limit_ms
            or self.min_saving_ms <= gain.makespan_ms
        )


class RunningClass:
    """The running jobs with one key, sorted by the predicted end of their training."""

    def __init__(self, key: ClassKey) -> None:
        self.key = key
        self.type_number, self.size, self.sizes = key.type_number, key.size, key.sizes
        self.trains, self.growable, self.own_speeds = key.trains, key.growable, key.own_speeds
        self.releases = tuple([self.size - keeps for keeps in self.sizes if keeps < self.size])
        """How many GPUs each of the jobs can release, the most first."""
        self.release_key = (self.type_number, self.releases)
        """What the gain of a donor depends on."""
        self.entries: list[tuple[float, JobId, RunningEntry]] = []
        """End of training, id and entry of each job, ascending."""
        self._min_slowdown = -1.0
        """By what part an iteration gets longer for each of the jobs, at least."""
        self._pending: list[RunningEntry] = []
        """Entries whose own slowdown is not computed yet."""
        self._tables: object = None
        """The type's speed tables from which the slowdowns were computed."""
        self.growth_candidates: dict[tuple[int, ...], list[RunningEntry]] = {}
        """Jobs that growth may be worth it for, by the largest size that is idle on each GPU
        type; ``GrowthBounds`` fills and reads it."""
        self.growth_key: object = None
        """The other values for which ``growth_candidates`` holds."""

    def add(self, entry: RunningEntry) -> None:
        """Add a job."""
        insort(self.entries, (entry.train_end_s, entry.job.id, entry))
        for sizes, jobs in list(self.growth_candidates.items()):
            if len(jobs) > len(self.entries):
                del self.growth_candidates[sizes]  # unused for long: it holds jobs that have left
            else:
                jobs.append(entry)
        if self.own_speeds:
            self._pending.append(entry)
            if len(self._pending) > 2 * len(self.entries):
                self._tables, self._pending = None, []

    def remove(self, entry: RunningEntry) -> None:
        """Remove a job."""
        del self.entries[bisect_left(self.entries, (entry.train_end_s, entry.job.id, entry))]

    def refresh_slowdowns(self, predictor: Predictor) -> None:
        """Compute the slowdowns again if the type's speeds have changed, and those of new jobs.

        Without speeds of their own all jobs have the slowdown of the first.
        """
        if not self.trains or not self.releases:
            return
        tables = predictor.answers(self.entries[0][2].job).tables
        if self._tables is not tables:
            self._tables = tables
            if self.own_speeds:
                self._min_slowdown = NO_SIZE_S
                self._pending = [entry for _, _, entry in self.entries]
            else:
                self._min_slowdown = _min_slowdown(predictor, self.entries[0][2].job)
        if self._pending:
            for entry in self._pending:
                entry.min_slowdown = _min_slowdown(predictor, entry.job)
                self._min_slowdown = min(self._min_slowdown, entry.min_slowdown)
            self._pending = []

    def jobs(self, exclusions: Exclusions) -> list[JobView]:
        """Return all jobs but the excluded ones."""
        return [entry.job for _, job_id, entry in self.entries if job_id not in exclusions.job_ids]

    def count(self, exclusions: Exclusions) -> int:
        """Return the number of jobs without the excluded ones."""
        return len(self.entries) - exclusions.count_by_class.get(self, 0)

    def lowest_threshold(self, context: BoundContext) -> DonorThreshold:
        """Return the threshold of the first job, which is the lowest of the class."""
        return _threshold(self.entries[0][2], self._min_slowdown, context)

    def candidates(
        self, gain: MaxGain, context: BoundContext, exclusions: Exclusions
    ) -> list[JobView]:
        """Return the jobs whose threshold ``gain`` meets, without the excluded ones.

        Thresholds rise along ``entries``, so the first that is not met ends the search.
        """
        candidates: list[JobView] = []
        for _, job_id, entry in self.entries:
            if not _threshold(entry, self._min_slowdown, context).is_met_by(gain):
                break
            if self.own_speeds and not _threshold(entry, entry.min_slowdown, context).is_met_by(
                gain
            ):
                continue
            if job_id not in exclusions.job_ids:
                candidates.append(entry.job)
        return candidates

    def pruned(
        self, gain: MaxGain, context: BoundContext, exclusions: Exclusions
    ) -> list[tuple[int, JobView]]:
        """Return the jobs whose threshold ``gain`` does not meet, without the excluded ones, each
        with what a newcomer would have to save at least (ms)."""
        pruned: list[tuple[int, JobView]] = []
        for _, job_id, entry in self.entries:
            slowdown = entry.min_slowdown if self.own_speeds else self._min_slowdown
            threshold = _threshold(entry, slowdown, context)
            if job_id not in exclusions.job_ids and not threshold.is_met_by(gain):
                pruned.append((threshold.min_total_ms, entry.job))
        return pruned


def _threshold(entry: RunningEntry, slowdown: float, context: BoundContext) -> DonorThreshold:
    """The threshold of a job whose iterations get longer by the part ``slowdown``."""
    end = entry.end_from_now_ms(context.now_ms)
    min_saving = context.min_saving_ms(end)
    if slowdown < 0.0:
        return DonorThreshold(end, min_saving, UNKNOWN_LOSS_MS)
    train_s = entry.train_end_s - context.now_s
    loss_s = train_s * slowdown if train_s > 0.0 else 0.0
    loss_ms = int((loss_s + entry.in_place_s) * 1000.0) - ROUNDING_MS
    return DonorThreshold(end, min_saving, loss_ms + min_saving)


def _min_slowdown(predictor: Predictor, job: JobView) -> float:
    """By what part an iteration gets longer at the best of the job's smaller sizes."""
    step_s = predictor.estimate(job).step_s
    times_s = predictor.step_times_s(job, job.gpu_type)
    return (min([times_s[size] for size in job.sizes if size < job.size]) - step_s) / step_s
