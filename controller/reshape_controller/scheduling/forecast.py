"""When every accepted job will have ended, if an option is taken.

Does: the makespan by its definition (docs/policies.md): running jobs at their sizes, the first
queued jobs list-scheduled at their smallest size in queue order, the others as an area spread over
all usable GPUs after them. What an option does not touch is computed once. Never: prefers an
option. State: figures of one snapshot. Times are whole milliseconds from now, so that sums do not
depend on their order.

Why the area is a mean: with f the time at which each of G GPUs is free and A the work to spread,
the water level over f is the mean (sum f + A) / G where it covers every f, and below the latest f
elsewhere; the latest f is a completion time and counts anyway.
"""

from __future__ import annotations

from functools import cached_property

from reshape_controller.core.job_estimate import QueuedWork
from reshape_controller.core.model import JobId
from reshape_controller.core.plan import JobView, Snapshot
from reshape_controller.scheduling.cluster_index import ClusterIndex
from reshape_controller.scheduling.list_schedule import (
    Change,
    FreeTimes,
    Reach,
    Schedule,
    Scheduler,
)
from reshape_controller.scheduling.predictor import Predictor, to_ms

LISTED_MAX = 64
"""Queued jobs that are list-scheduled one by one; the rest count by their area."""
LATEST = 3
"""So many of the jobs that end last are looked for at once."""


class Forecast:
    """One per decision; ``outlook`` of it for each newcomer. It holds until the next one of the
    same state is made: how the jobs stand is renewed in place."""

    def __init__(
        self, snapshot: Snapshot, predictor: Predictor, listed_max: int = LISTED_MAX
    ) -> None:
        """``listed_max``: queued jobs that are list-scheduled one by one."""
        self.snapshot = snapshot
        self.predictor = predictor
        self.now_ms = to_ms(snapshot.now_s)
        index = ClusterIndex.of(snapshot, predictor)
        self.running_index, self.queue_index = index.running_index, index.queue_index
        self.types = index.numbering.types
        self.numbers = index.numbering.numbers
        self.type_of = index.numbering.type_of
        self.free = FreeTimes(self.running_index, index.numbering, snapshot.hosts, self.now_ms)
        self.gpus = self.free.gpus
        self.free_sum_ms = self.ends_sum_ms = 0
        self.latest: list[tuple[int, JobId]] = []
        """The jobs that end last, the latest first; three of them, if there are so many."""
        self.listed: list[QueuedWork] = []
        """Queued jobs that are list-scheduled, and..."""
        self.names: list[JobId] = []
        """...who they are."""
        self.rest_ms = 0
        """The area of the others."""
        self._without: dict[int, Schedule] = {}
        self._see_running()
        if self.free.most:
            self._see_queued(listed_max)

    def running(self, job: JobId) -> JobView:
        """A running job by its id."""
        return self.running_index.by_job[job].job

    @cached_property
    def queue(self) -> tuple[Scheduler, Schedule]:
        """The first queued jobs if nobody of them is started now, and what schedules them."""
        scheduler = Scheduler(self.free, self.listed)
        return scheduler, scheduler.run(self.listed)

    def end_ms(self, job: JobView) -> int:
        """When a running job will have left, from now."""
        return self.running_index.by_job[job.id].end_from_now_ms(self.now_ms)

    def _see_running(self) -> None:
        running_index, now_ms = self.running_index, self.now_ms
        ends_sum = running_index.ends_sum_ms - running_index.absolute_count * now_ms
        free_sum = running_index.gpu_ends_sum_ms - running_index.gpu_count * now_ms
        third = -1
        for end, job_id in running_index.ends[-LATEST:]:
            third = self._is_late(end - now_ms, job_id)
        for entry in running_index.relative.values():
            end = entry.end_ms
            ends_sum += end
            if entry.host_number >= 0:
                free_sum += end * entry.job.size
            if end > third:
                third = self._is_late(end, entry.job.id)
        self.ends_sum_ms, self.free_sum_ms = ends_sum, free_sum

    def _is_late(self, end: int, job: JobId) -> int:
        """A job ends later than the third of the latest so far; when that ends now."""
        latest, entry = self.latest, (end, job)
        at = len(latest)
        while at and latest[at - 1] < entry:
            at -= 1
        latest.insert(at, entry)
        del latest[LATEST:]
        return latest[-1][0] if len(latest) == LATEST else -1

    def _see_queued(self, listed_max: int) -> None:
        listed, predictor, types = self.listed, self.predictor, self.types
        rest_ms = 0
        for job in self.snapshot.queued:
            if not self._counts(job):
                continue
            if len(listed) >= listed_max:
                rest_ms = self._queued_ms()
                break
            waiting = predictor.queued_work(job, types)
            listed.append(waiting)
            self.names.append(job.id)
        if rest_ms:
            for waiting in listed:
                rest_ms -= waiting.area_ms
        self.rest_ms = rest_ms

    def _queued_ms(self) -> int:
        """The area of all queued jobs."""
        area_ms = 0
        for same in self.queue_index.classes.values():
            if self._counts(same.job):
                area_ms += same.count * self.predictor.queued_work(same.job, self.types).area_ms
        return area_ms

    def _counts(self, job: JobView) -> bool:
        """Whether a queued job can start at all: some host can hold it, and, where its files can be
        reached from one host only, that one can be used."""
        sizes = job.sizes
        if not sizes or sizes[0] > self.free.most:
            return False
        return job.only_host is None or job.only_host in self.numbers

    def latest_end_without(self, changed: tuple[JobId, ...]) -> int:
        """The latest completion of the running jobs that are not ``changed``."""
        for end, name in self.latest:
            if name not in changed:
                return end
        running_index = self.running_index.by_job.values()
        rest = [
            entry.end_from_now_ms(self.now_ms)
            for entry in running_index
            if entry.job.id not in changed
        ]
        return max(rest, default=0)

    def outlook(self, newcomer: JobView | None = None) -> Outlook:
        """The queue as it counts while options of ``newcomer`` are weighed: it is one of those
        that are listed, wherever it stands."""
        at = None
        if newcomer is not None and newcomer.id in self.names:
            at = self.names.index(newcomer.id)
        if newcomer is None or at is not None or not self._counts(newcomer):
            return Outlook(self, self.listed, self.rest_ms, at)
        own = self.predictor.queued_work(newcomer, self.types)
        listed = [*self.listed[:-1], own]
        rest_ms = self.rest_ms - own.area_ms + self.listed[-1].area_ms
        return Outlook(self, listed, rest_ms, len(listed) - 1)

    def without(self, at: int) -> Schedule:
        """The schedule without one of those that are listed; the same for neighbours that are
        alike."""
        listed = self.listed
        while at and listed[at - 1] is listed[at]:
            at -= 1
        known = self._without.get(at)
        if known is None:
            scheduler, _ = self.queue
            known = self._without[at] = scheduler.run(listed[:at] + listed[at + 1 :])
        return known


class Outlook:
    """Weighs options for one newcomer (or, without one, for running jobs)."""

    def __init__(
        self, forecast: Forecast, listed: list[QueuedWork], rest_ms: int, at: int | None
    ) -> None:
        """``at``: where in ``listed`` the newcomer is; None: it is not there."""
        self.forecast = forecast
        self.rest_ms = rest_ms
        self.others = listed if at is None else listed[:at] + listed[at + 1 :]
        """Those that wait when the newcomer does not."""
        self._at = at
        self._usual = listed is forecast.listed
        if self._usual:
            self._scheduler, self.if_waiting = forecast.queue
        else:
            self._scheduler = Scheduler(forecast.free, listed)
            self.if_waiting = self._scheduler.run(listed)

    @cached_property
    def if_started(self) -> Schedule:
        """The schedule without the newcomer."""
        if self._at is None:
            return self.if_waiting
        if self._usual:
            return self.forecast.without(self._at)
        return self._scheduler.run(self.others)

    @cached_property
    def reach(self) -> Reach:
        """Which GPUs those can use that wait when the newcomer does not."""
        return Reach(self.if_started, len(self.forecast.types))

    @cached_property
    def _at_best(self) -> Schedule:
        """No schedule is better than this: nobody waits, and there are no gaps."""
        durations_ms = sum(min(job.durations_ms) for job in self.others)
        area_ms = sum(job.area_ms for job in self.others)
        return Schedule(sum_ms=durations_ms, busy_ms=area_ms, bound=bool(self.others))

    def waits(self) -> tuple[int, int]:
        """Makespan and sum of completion times if nothing is done."""
        return self._total((), (), self.if_waiting)

    def bound(
        self, ends: tuple[tuple[JobView, int], ...], changes: tuple[Change, ...]
    ) -> tuple[int, int]:
        """Neither makespan nor sum can be lower than this (see ``weigh``)."""
        return self._total(ends, changes, self._at_best)

    def known(self, changes: tuple[Change, ...]) -> bool:
        """Whether the queue fares as if nothing had changed: ``weigh`` is cheap then."""
        return not self.others or all(self._out_of_reach(change) for change in changes)

    def evaluate(
        self, ends: tuple[tuple[JobView, int], ...], changes: tuple[Change, ...]
    ) -> tuple[int, int]:
        """Makespan and sum of completion times of an option.

        ``ends``: new completion times of running jobs, and that of the newcomer; ``changes``: what
        that does to the GPUs of each host.
        """
        if self.known(changes):
            return self._total(ends, changes, self.if_started)
        return self._total(ends, changes, self._scheduler.run(self.others, changes))

    def _total(
        self, ends: tuple[tuple[JobView, int], ...], changes: tuple[Change, ...], listed: Schedule
    ) -> tuple[int, int]:
        forecast = self.forecast
        makespan, total = listed.last_ms, forecast.ends_sum_ms + listed.sum_ms
        for job, end in ends:
            if end > makespan:
                makespan = end
            total += end - forecast.end_ms(job) if job.size else end
        others = forecast.latest_end_without(tuple([job.id for job, _ in ends]))
        if others > makespan:
            makespan = others
        if (self.rest_ms or listed.bound) and forecast.gpus:
            busy = forecast.free_sum_ms + listed.busy_ms + self.rest_ms
            for _, gone, come in changes:
                busy += sum(come) - sum(gone)
            makespan = max(makespan, -(-busy // forecast.gpus))
        return makespan, total

    def _out_of_reach(self, change: Change) -> bool:
        """Whether no listed job would see the difference: every time that changes is later than
        any listed job could use, or the host was and stays of no use to any."""
        host, gone, come = change
        base, gpu_type = self.reach, self.forecast.type_of[host]
        late = base.limits_ms[gpu_type]
        if (not gone or min(gone) > late) and (not come or min(come) > late):
            return True
        if base.touched is None or host in base.touched:
            return False
        times = self.forecast.free.after((change,))[host]
        for size, limit in base.late_by_size_ms[gpu_type].items():
            if size <= len(times) and times[size - 1] <= limit:
                return False
        return True
