"""An upper bound on what more GPUs bring to running jobs, which prunes most of them.

Does: bounds, for each running job, the saving of every size that it could get, in a few operations;
the jobs that pass are cached with their classes, because a job that fails stays pruned until its
view, its type's speeds or the idle GPUs change. Tests compare the bound with every option.

A job with ``r`` seconds of training left whose iterations get shorter by the part ``f`` ends
``r * f`` seconds sooner, less the costs of a reshape. The bound takes the largest ``f`` of the
sizes that the job could get, so the saving is never underestimated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from reshape_controller.core.job_estimate import JobEstimate
from reshape_controller.core.model import Mechanism
from reshape_controller.core.plan import JobView, Snapshot
from reshape_controller.scheduling.cluster_index import ClusterIndex
from reshape_controller.scheduling.predictor import Predictor, to_ms
from reshape_controller.scheduling.running_classes import (
    NO_SIZE_S,
    ROUNDING_MS,
    RunningClass,
    RunningEntry,
)

MaxIdle = tuple[tuple[str, int], ...]
"""GPU types, each with the most GPUs that a job could get on one host of the type."""


@dataclass(frozen=True, slots=True, eq=False)
class GrowthKey:
    """The values beside idle GPUs on which the cached candidates of a class depend."""

    min_saving_ms: Callable[[int], int]
    tables: object
    """The speed tables of the class's job type."""


class GrowthBounds:
    """Bounds for the running jobs of one decision, with the GPUs that are idle now."""

    def __init__(
        self, snapshot: Snapshot, predictor: Predictor, min_saving_ms: Callable[[int], int]
    ) -> None:
        """``min_saving_ms`` gives what a reshape has to save, from the time until the job has
        left. No forecast is needed: most decisions without a queue end here."""
        self._predictor, self.min_saving_ms = predictor, min_saving_ms
        self._now_s, self._now_ms = snapshot.now_s, to_ms(snapshot.now_s)
        self._speedups: dict[tuple[RunningClass, int], float] = {}
        self._mechanism = snapshot.mechanism
        index = ClusterIndex.of(snapshot, predictor)
        self._running_index, numbers = index.running_index, index.numbering.numbers
        self._idle = {numbers[host.id]: host.idle for host in snapshot.idle}
        """Idle GPUs by the number of the host; hosts without any are left out."""
        most = dict.fromkeys(index.numbering.types, 0)
        for host in snapshot.idle:
            if host.idle > most[host.gpu_type]:
                most[host.gpu_type] = host.idle
        self._max_idle: MaxIdle = tuple(most.items())
        self._max_idle_of_all = max(most.values(), default=0)

    @property
    def count(self) -> int:
        """The number of running jobs that may get more GPUs."""
        return sum([len(job_class.entries) for job_class in self._growable()])

    @cached_property
    def candidates(self) -> list[JobView]:
        """The jobs for which growth may save enough.

        Why a pruned job stays pruned while it trains: its saving and what it has to save both fall
        linearly with time. At the end of its training the saving is negative, by the costs of a
        reshape, and what it has to save is not. The first line lies below the second at both ends
        of the interval, so it lies below it in between. The job needs another look only when it
        has another view, its type has other speeds, or more GPUs are idle.
        """
        candidates: list[JobView] = []
        for job_class in self._growable():
            entries: list[RunningEntry] = []
            if not job_class.trains:
                entries = [entry for _, _, entry in job_class.entries]
            elif job_class.size <= self._max_idle_of_all:
                entries = self._class_candidates(job_class)
            candidates += [entry.job for entry in entries if entry.host_number not in self._idle]
        for number in self._idle:  # there a job can also keep its host
            for entry in self._running_index.on_host[number].values():
                if _is_growable(entry) and self._shortfall_ms(entry) <= 0:
                    candidates.append(entry.job)
        return candidates

    def _class_candidates(self, job_class: RunningClass) -> list[RunningEntry]:
        """The jobs of a class that are not pruned, from the cache if its key still holds."""
        tables = self._predictor.answers(job_class.entries[0][2].job).tables
        key = job_class.growth_key
        if (
            not isinstance(key, GrowthKey)
            or key.tables is not tables
            or key.min_saving_ms != self.min_saving_ms
        ):
            job_class.growth_key = GrowthKey(self.min_saving_ms, tables)
            job_class.growth_candidates.clear()
        sizes = tuple([_largest_within(job_class.sizes, most) for _, most in self._max_idle])
        entries = job_class.growth_candidates.get(sizes)
        if entries is None:
            entries = [entry for _, _, entry in job_class.entries]
        elif not entries:
            return entries
        candidates: list[RunningEntry] = []
        for entry in entries:
            if self._running_index.by_job.get(entry.job.id) is entry:
                # With costs this small, rounding could decide at the end of training.
                is_cheap = entry.in_place_s * 1000.0 <= ROUNDING_MS
                if is_cheap or self._shortfall_ms(entry) <= 0:
                    candidates.append(entry)
        job_class.growth_candidates[sizes] = candidates
        return candidates

    def pruned(self) -> list[tuple[int, JobView]]:
        """Return the jobs that fail the bound, each with its shortfall (ms)."""
        entries = [entry for job_class in self._growable() for _, _, entry in job_class.entries]
        shortfalls = [(self._shortfall_ms(entry), entry.job) for entry in entries]
        return [pair for pair in shortfalls if pair[0] > 0]

    def _growable(self) -> list[RunningClass]:
        return [
            job_class for job_class in self._running_index.classes.values() if job_class.growable
        ]

    def _shortfall_ms(self, entry: RunningEntry) -> int:
        """What a job's saving lacks at its best size, at least; 0 if its end is unknown."""
        if entry.job_class is None or not entry.job_class.trains:
            return 0
        train_s = entry.train_end_s - self._now_s
        if train_s < 0.0:
            train_s = 0.0
        saving_s = train_s * self._max_speedup(entry, entry.job_class, 0) - entry.restart_s
        idle = self._idle.get(entry.host_number, 0)
        if idle:
            in_place = self._mechanism is not Mechanism.TERMINATE
            here_s = train_s * self._max_speedup(entry, entry.job_class, idle)
            saving_s = max(saving_s, here_s - (entry.in_place_s if in_place else entry.restart_s))
        min_saving = self.min_saving_ms(entry.end_from_now_ms(self._now_ms))
        return min_saving - int(saving_s * 1000.0) - ROUNDING_MS

    def _max_speedup(self, entry: RunningEntry, job_class: RunningClass, idle: int) -> float:
        """By what part an iteration gets shorter at most: with ``idle`` more GPUs of the job's own
        host, or on another host if that is 0. Without own speeds it is the same for the class."""
        if job_class.own_speeds:
            return self._compute_speedup(entry.job, idle)
        key = (job_class, idle)
        speedup = self._speedups.get(key)
        if speedup is None:
            speedup = self._speedups[key] = self._compute_speedup(entry.job, idle)
        return speedup

    def _compute_speedup(self, job: JobView, idle: int) -> float:
        estimate = self._predictor.estimate(job)
        max_idle = ((job.gpu_type, job.size + idle),) if idle else self._max_idle
        return _max_step_saving_s(self._predictor, job, estimate, max_idle) / estimate.step_s


def _largest_within(sizes: tuple[int, ...], gpus: int) -> int:
    """The largest of ascending ``sizes`` that is at most ``gpus``; 0 if there is none."""
    largest = 0
    for size in sizes:
        if size <= gpus:
            largest = size
    return largest


def _is_growable(entry: RunningEntry) -> bool:
    return entry.job_class is not None and entry.job_class.growable


def _max_step_saving_s(
    predictor: Predictor, job: JobView, estimate: JobEstimate, max_idle: MaxIdle
) -> float:
    """By how many seconds an iteration gets shorter at most, with the GPUs of ``max_idle``."""
    shortest_s, largest = NO_SIZE_S, job.sizes[-1] if job.sizes else 0
    for gpu_type, most in max_idle:
        key = (gpu_type, most if most < largest else largest)
        step_s = estimate.min_step_s.get(key)
        if step_s is None:
            times_s = predictor.step_times_s(job, gpu_type)
            possible = [times_s[size] for size in job.sizes if job.size <= size <= most]
            step_s = estimate.min_step_s[key] = min(possible, default=NO_SIZE_S)
        if step_s < shortest_s:
            shortest_s = step_s
    return estimate.step_s - shortest_s
