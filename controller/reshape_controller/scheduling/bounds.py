"""Bounds: which running jobs may be worth a reshape, before any of their options is evaluated.

Does: answers ``may_be_worth`` for donors (``DonorBounds``) and for jobs that grow
(``GrowthBounds``). A bound is an upper bound on the saving, so a job that fails it has no option
that saves enough; tests compare both with every option. It evaluates no option.

Why one comparison can reject a class of donors before any of its options is evaluated. A job with
``r`` seconds of training left whose steps take ``s`` times longer on fewer GPUs loses ``r * s``
seconds and the costs of a reshape. The class uses the smallest ``s`` of its jobs' smaller sizes, so
the loss is never overestimated, and grows with ``r``; if a donor gets its GPUs back, it is at most
the loss of the newcomer's stay. So do the job's end and what its reshape has to save. If the job
that ends its training first fails the bound, all jobs of the class fail it.

Why a job that failed the bound on growth stays out while it trains. Growth saves ``r * f`` seconds,
less the costs of a reshape, if the iterations get shorter by the part ``f``; the bound takes the
largest ``f`` of the sizes that the job could get, and
is negative if each of them is slower. The saving and what the job has to save both fall
linearly with time. At the end of its training the saving is negative, by the costs of a reshape,
and what it has to save is not. The first line lies below the second at both ends of the interval,
so it lies below it in between. The job needs another look only when it has another view, its type
has other speeds, or more GPUs are idle.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from reshape_controller.core.model import JobId, Mechanism
from reshape_controller.core.plan import HostView, JobView, Snapshot
from reshape_controller.scheduling.cluster_index import (
    BoundCache,
    ClusterIndex,
    RunningClass,
    RunningEntry,
    SettledGrowth,
)
from reshape_controller.scheduling.donor_gains import DonorRange, MaxGain, MaxGains
from reshape_controller.scheduling.donors import Donors, Exclusions
from reshape_controller.scheduling.forecast import Outlook
from reshape_controller.scheduling.predictor import (
    ROUNDING_MS,
    Predictor,
    hosts_of,
    lent_loss_ms,
    to_ms,
)
from reshape_controller.scheduling.rules import V1, Rules

NO_SIZE_S = 1e9
"""Stands for the seconds of an iteration, or of its difference, where there is no such size."""
PRUNED_SHOWN_MAX = 8
"""The most pruned jobs whose options are evaluated all the same, to be shown to users."""
UNKNOWN_LOSS_MS = -(10**15)
"""The loss of a job whose slowdown is unknown: it passes every bound."""

MaxIdle = tuple[tuple[str, int], ...]
"""GPU types, each with the most GPUs that a job could get on one host of the type."""
MinSaving = Callable[[int], int]
"""What a reshape has to save, as a function of the time until the job has left (ms)."""


class Threshold(NamedTuple):
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


@dataclass(slots=True)
class DonorSearch:
    """The result of a search for donors."""

    candidates: list[JobView]
    """Donors whose options have to be evaluated."""
    ranges: list[DonorRange]
    """Donors whose options are evaluated as far as they matter."""
    pruned: list[tuple[int, JobView]]
    """Donors that fail the bound, each with what a newcomer would have to save (ms): of each class
    those that come closest; filled only for a snapshot whose plan is explained."""
    pruned_count: int = 0
    """How many donors fail the bound."""


class DonorBounds:
    """Bounds for the donors of one decision."""

    def __init__(self, donors: Donors) -> None:
        self.donors = donors
        self._forecast, self._min_saving_ms = donors.forecast, donors.min_saving_ms
        self._now_s, self._now_ms = self._forecast.snapshot.now_s, self._forecast.now_ms

    def may_be_worth(self, entry: RunningEntry, slowdown: float, gain: MaxGain) -> bool:
        """Whether an option for which the job shrinks could save enough, if its iterations get
        longer by at least the part ``slowdown``."""
        end = entry.end_ms - self._now_ms if entry.is_absolute else entry.end_ms
        if end <= gain.queue_limit_ms:
            return True
        min_saving = self._min_saving_ms(end)
        if min_saving <= gain.makespan_ms:
            return True
        if min_saving - ROUNDING_MS > gain.total_ms and slowdown >= 0.0:  # so it loses time
            return False
        return self._min_loss_ms(entry, slowdown, gain.stay_ms) + min_saving <= gain.total_ms

    def find(
        self, outlook: Outlook, newcomer: JobView, hosts: list[HostView], baseline: tuple[int, int]
    ) -> DonorSearch:
        """Find the donors on ``hosts`` whose options for a newcomer may save enough against
        ``baseline``, the figures of the objective (ms).

        An option that does not change the schedule of the queue saves what it saves the newcomer,
        less the donor's loss. The bound relies on that. Where it may not hold, every donor is a
        candidate: on hosts with idle GPUs, and where the donor releases more than the newcomer
        takes.
        """
        search, forecast = DonorSearch([], [], []), self._forecast
        if not forecast.running_index.classes:
            return search
        any_host, donors = len(hosts) == len(forecast.numbers), self.donors
        beside_idle, exclusions = donors.split_of_all if any_host else donors.split_by_idle(hosts)
        search.candidates += beside_idle
        gains = MaxGains(outlook, newcomer, self._min_saving_ms, donors.min_release_s, baseline)
        for (type_number, releases), classes in self._classes.items():
            if releases[0] < newcomer.sizes[0]:
                continue
            gain = gains.of(type_number, releases)
            if gain is None:
                for job_class, _ in classes:
                    search.candidates += exclusions.rest_of(job_class)
            else:
                self._find_in(search, classes, gain, gains, exclusions)
        return search

    def _find_in(
        self,
        search: DonorSearch,
        classes: list[tuple[RunningClass, float]],
        gain: MaxGain,
        gains: MaxGains,
        exclusions: Exclusions,
    ) -> None:
        """Add the donors of classes that have the same gain to the search."""
        explains, excluded = self._forecast.snapshot.explain, exclusions.count_by_class
        for job_class, slowdown in classes:
            entries, end = job_class.entries, 0
            search.pruned_count += len(entries) - excluded.get(job_class, 0)
            if self.may_be_worth(entries[0][2], slowdown, gain):
                end = self._count_in_order(job_class, slowdown, gain)
                found = self._candidates(job_class, end, gain, exclusions)
                search.pruned_count -= len(found)
                in_order = gains.range_of(job_class, slowdown, found) if found else None
                if in_order is not None:
                    search.ranges.append(in_order)
                else:
                    search.candidates += [entry.job for entry in found]
            if explains:
                search.pruned += self._pruned(job_class, end, slowdown, gain, exclusions)

    @cached_property
    def _classes(self) -> dict[tuple[int, tuple[int, ...]], list[tuple[RunningClass, float]]]:
        """The classes whose jobs can release GPUs, each with its least slowdown, by what the gain
        of a donor depends on."""
        by_key: dict[tuple[int, tuple[int, ...]], list[tuple[RunningClass, float]]] = {}
        for job_class in self._forecast.running_index.classes.values():
            if job_class.releases:
                of_key = by_key.setdefault(job_class.release_key, [])
                of_key.append((job_class, self._least_slowdown(job_class)))
        return by_key

    def _least_slowdown(self, job_class: RunningClass) -> float:
        """By what part an iteration gets longer for each job of a class, at least; negative if
        that is unknown. Without speeds of their own all jobs have the slowdown of the first."""
        if not job_class.trains:
            return -1.0
        predictor = self._forecast.predictor
        cache = _cache_of(job_class, self._min_saving_ms)
        pending = cache.pending
        if not job_class.own_speeds:
            pending = [job_class.entries[0][2]] if cache.slowdown == NO_SIZE_S else []
        for entry in pending:
            entry.min_slowdown = _min_slowdown(predictor, entry.job)
            cache.slowdown = min(cache.slowdown, entry.min_slowdown)
        cache.pending.clear()
        return cache.slowdown

    def _count_in_order(self, job_class: RunningClass, slowdown: float, gain: MaxGain) -> int:
        """How many jobs of a class may be worth it, the first of which may, if each has the least
        slowdown. Thresholds rise along ``entries``, so the first that is not met ends them."""

        def fails(entry: tuple[float, JobId, RunningEntry]) -> bool:
            return not self.may_be_worth(entry[2], slowdown, gain)

        return bisect_left(job_class.entries, True, 1, key=fails)

    def _candidates(
        self, job_class: RunningClass, end: int, gain: MaxGain, exclusions: Exclusions
    ) -> list[RunningEntry]:
        """Those of the first ``end`` jobs of a class that may be worth it, without the excluded
        ones."""
        own_speeds, excluded = job_class.own_speeds, exclusions.job_ids
        return [
            entry
            for _, job_id, entry in job_class.entries[:end]
            if job_id not in excluded
            and not (own_speeds and not self.may_be_worth(entry, entry.min_slowdown, gain))
        ]

    def _pruned(
        self,
        job_class: RunningClass,
        end: int,
        slowdown: float,
        gain: MaxGain,
        exclusions: Exclusions,
    ) -> list[tuple[int, JobView]]:
        """The other jobs of a class, each with what a newcomer would have to save at least (ms).
        Without own speeds those are the jobs from ``end`` on, and the first of them are enough."""
        pruned: list[tuple[int, JobView]] = []
        for _, job_id, entry in job_class.entries[0 if job_class.own_speeds else end :]:
            own = entry.min_slowdown if job_class.own_speeds else slowdown
            threshold = self._threshold(entry, own, gain.stay_ms)
            if job_id not in exclusions.job_ids and not threshold.is_met_by(gain):
                least = threshold.min_total_ms
                is_enough = len(pruned) >= PRUNED_SHOWN_MAX and least > pruned[-1][0]
                if is_enough and not job_class.own_speeds:
                    break
                pruned.append((least, entry.job))
        return pruned

    def _threshold(self, entry: RunningEntry, slowdown: float, stay_ms: int) -> Threshold:
        end = entry.end_from_now_ms(self._now_ms)
        min_saving = self._min_saving_ms(end)
        return Threshold(end, min_saving, self._min_loss_ms(entry, slowdown, stay_ms) + min_saving)

    def _min_loss_ms(self, entry: RunningEntry, slowdown: float, stay_ms: int) -> int:
        """What a job loses at least if its iterations get longer by the part ``slowdown``, for good
        or (unless negative) for ``stay_ms``."""
        if slowdown < 0.0:
            return UNKNOWN_LOSS_MS
        train_s = entry.train_end_s - self._now_s
        loss_s = train_s * slowdown if train_s > 0.0 else 0.0
        loss_ms = int((loss_s + entry.in_place_s) * 1000.0)
        if stay_ms >= 0:
            lost_part = slowdown / (1.0 + slowdown)
            loss_ms = min(loss_ms, lent_loss_ms(to_ms(entry.in_place_s), lost_part, stay_ms))
        return loss_ms - ROUNDING_MS


class GrowthBounds:
    """Bounds for the jobs that could grow in one decision, with the GPUs that are idle now."""

    def __init__(
        self,
        snapshot: Snapshot,
        predictor: Predictor,
        min_saving_ms: MinSaving,
        rules: Rules = V1,
    ) -> None:
        """No forecast is needed: most decisions without a queue end here."""
        self._predictor, self.min_saving_ms, self._rules = predictor, min_saving_ms, rules
        self._now_s, self._now_ms = snapshot.now_s, to_ms(snapshot.now_s)
        self._speedups: dict[tuple[RunningClass, int], float] = {}
        self._in_place = snapshot.mechanism is not Mechanism.TERMINATE
        self._can_reshape = snapshot.mechanism is not Mechanism.NONE
        index = ClusterIndex.of(snapshot, predictor)
        self._running_index, numbers = index.running_index, index.numbering.numbers
        idle, most = snapshot.idle, dict.fromkeys(index.numbering.types, 0)
        self._idle = {numbers[host.id]: host.idle for host in idle}
        """Idle GPUs by the number of the host; hosts without any are left out."""
        for host in idle:
            if host.idle > most[host.gpu_type]:
                most[host.gpu_type] = host.idle
        self._max_idle: MaxIdle = tuple(most.items())
        self._max_idle_of_all = max(most.values(), default=0)
        self._largest_sizes: dict[tuple[int, ...], MaxIdle] = {}

    def may_be_worth(self, entry: RunningEntry) -> bool:
        """Whether growth of the job could save enough."""
        return self._shortfall_ms(entry) <= 0

    @property
    def any_pinned(self) -> bool:
        """Whether a user has pinned a running job that a plan may name to a size."""
        return any(key.pinned for key in self._running_index.classes)

    @property
    def may_span(self) -> list[JobView]:
        """The running jobs that a plan may name and that may be on several hosts."""
        entries = self._running_index.may_span.values() if self._can_reshape else ()
        return [entry.job for entry in entries if not entry.job.frozen]

    @property
    def unknown_length(self) -> list[JobView]:
        """The running jobs of unknown length that a plan may name, each on one host."""
        return [
            entry.job
            for job_class in self._running_index.classes.values()
            if not job_class.growable
            for _, _, entry in job_class.entries
        ]

    @property
    def count(self) -> int:
        """The number of running jobs that may get more GPUs."""
        return sum([len(job_class.entries) for job_class in self._growable()])

    @cached_property
    def candidates(self) -> list[JobView]:
        """The jobs for which growth may save enough."""
        if self._none_since_settled():
            return []
        candidates: list[JobView] = []
        may_settle = True
        for job_class in self._growable():
            entries: list[RunningEntry] = []
            if not job_class.trains:
                entries = [entry for _, _, entry in job_class.entries]
            elif self._least_elsewhere(job_class) <= self._max_idle_of_all:
                entries = self._class_candidates(job_class)
            candidates += [entry.job for entry in entries if entry.host_number not in self._idle]
        for number in self._idle:  # there a job can also keep its host
            for entry in self._running_index.on_host[number].values():
                growable = entry.job_class is not None and entry.job_class.growable
                may_settle = may_settle and not (growable and entry.is_cheap)
                if growable and self.may_be_worth(entry):
                    candidates.append(entry.job)
        if may_settle and not candidates:
            self._settle()
        return candidates

    def _none_since_settled(self) -> bool:
        """Whether growth was worth it for no job before, and is for none that has changed since or
        whose host has more idle GPUs now. Then these have been looked at as well."""
        index = self._running_index
        settled = index.settled_growth
        if settled is None or settled.min_saving_ms != self.min_saving_ms:
            return False
        if any(most > settled.most.get(gpu_type, 0) for gpu_type, most in self._max_idle):
            return False
        entries = [entry for entry in settled.added if index.by_job.get(entry.job.id) is entry]
        for number, idle in self._idle.items():
            if idle > settled.idle.get(number, 0):
                entries += index.on_host[number].values()
        for entry in entries:
            growable = entry.job_class is not None and entry.job_class.growable
            if growable and (entry.is_cheap or self.may_be_worth(entry)):
                return False
        self._settle()
        return True

    def _settle(self) -> None:
        idle, most = self._idle, dict(self._max_idle)
        self._running_index.settled_growth = SettledGrowth(self.min_saving_ms, idle, most)

    def _least_elsewhere(self, job: JobView | RunningClass) -> int:
        """The smallest size that a job, or one of a class, may have on another host."""
        return job.sizes[0] if self._rules.moves_to_any_size else job.size

    def _class_candidates(self, job_class: RunningClass) -> list[RunningEntry]:
        """The jobs of a class that may be worth it on another host, from the class's cache."""
        cache = _cache_of(job_class, self.min_saving_ms)
        largest = self._largest(job_class.sizes)
        entries = cache.growth.get(largest)
        if entries is None:
            entries = [entry for _, _, entry in job_class.entries]
        elif not entries:
            return entries
        by_job = self._running_index.by_job
        candidates: list[RunningEntry] = []
        for entry in entries:
            is_there = by_job.get(entry.job.id) is entry
            if is_there and (entry.is_cheap or self._shortfall_ms(entry) <= 0):
                candidates.append(entry)
        cache.growth[largest] = candidates
        return candidates

    def _largest(self, sizes: tuple[int, ...]) -> MaxIdle:
        """The largest of a job's sizes that is idle on one host, for each GPU type."""
        largest = self._largest_sizes.get(sizes)
        if largest is None:
            pairs = [(gpu_type, _largest_within(sizes, most)) for gpu_type, most in self._max_idle]
            largest = self._largest_sizes[sizes] = tuple(pairs)
        return largest

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
        job_class = entry.job_class
        if job_class is None or not job_class.trains:
            return 0
        train_s = entry.train_end_s - self._now_s
        if train_s < 0.0:
            train_s = 0.0
        saving_s = train_s * self._max_speedup(entry.job, job_class, 0) - entry.restart_s
        idle = self._idle.get(entry.host_number, 0)
        if idle:
            here_s = train_s * self._max_speedup(entry.job, job_class, idle)
            cost_s = entry.in_place_s if self._in_place else entry.restart_s
            saving_s = max(saving_s, here_s - cost_s)
        end = entry.end_ms - self._now_ms if entry.is_absolute else entry.end_ms
        return self.min_saving_ms(end) - int(saving_s * 1000.0) - ROUNDING_MS

    def _max_speedup(self, job: JobView, job_class: RunningClass, idle: int) -> float:
        """By what part an iteration gets shorter at most: with ``idle`` more GPUs of the job's own
        host, or on another host if that is 0. Without own speeds it is the same for the class."""
        if not job_class.own_speeds:
            speedup = self._speedups.get((job_class, idle))
            if speedup is not None:
                return speedup
        if idle:
            least = job.size
            largest: MaxIdle = ((job.gpu_type, _largest_within(job.sizes, job.size + idle)),)
        else:
            least, largest = self._least_elsewhere(job), self._largest(job.sizes)
        estimate = self._predictor.estimate(job)
        shortest_s = estimate.min_step_s.get((least, largest))
        if shortest_s is None:
            possible = [NO_SIZE_S]
            for gpu_type, most in largest:
                times_s = self._predictor.step_times_s(job, gpu_type)
                possible += [times_s[size] for size in job.sizes if least <= size <= most]
            shortest_s = estimate.min_step_s[least, largest] = min(possible)
        speedup = (estimate.step_s - shortest_s) / estimate.step_s
        if not job_class.own_speeds:
            self._speedups[job_class, idle] = speedup
        return speedup


def _cache_of(job_class: RunningClass, min_saving_ms: MinSaving) -> BoundCache:
    """Return the cache of a class, emptied if the policy is another. The index empties it if the
    speeds of its type change."""
    cache = job_class.bound_cache
    if cache is None or cache.min_saving_ms != min_saving_ms:
        pending = [entry for _, _, entry in job_class.entries]
        cache = job_class.bound_cache = BoundCache(min_saving_ms, NO_SIZE_S, pending)
    return cache


def _largest_within(sizes: tuple[int, ...], gpus: int) -> int:
    """The largest of ascending ``sizes`` that is at most ``gpus``; 0 if there is none."""
    return max([size for size in sizes if size <= gpus], default=0)


def _min_slowdown(predictor: Predictor, job: JobView) -> float:
    """By what part an iteration gets longer at the best of the job's smaller sizes."""
    step_s = predictor.estimate(job).step_s
    times_s = predictor.step_times_s(job, job.gpu_type, hosts_of(job))
    return (min([times_s[size] for size in job.sizes if size < job.size]) - step_s) / step_s
