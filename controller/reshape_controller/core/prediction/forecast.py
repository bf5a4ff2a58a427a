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

from collections.abc import Sequence
from functools import cached_property

from reshape_controller.core.model import JobId
from reshape_controller.core.plan import JobView, Snapshot
from reshape_controller.core.prediction.free import Free
from reshape_controller.core.prediction.list_schedule import Listed, Reach, Scheduler
from reshape_controller.core.prediction.pace import Waiting
from reshape_controller.core.prediction.predictor import Predictor, end_ms

LISTED_MAX = 64
"""Queued jobs that are list-scheduled one by one; the rest count by their area."""

Change = tuple[int, tuple[int, ...], tuple[int, ...]]
"""On one host (by number): times at which GPUs no longer become free, and new ones."""


class Forecast:
    """One per decision; ``outlook`` of it for each newcomer. Of two forecasts of the same views
    the newer one counts: when a job ends is put down with what is kept of it."""

    def __init__(self, snapshot: Snapshot, predictor: Predictor) -> None:
        self.snapshot = snapshot
        self.predictor = predictor
        self._places = snapshot.places
        self.types = self._places.types
        self.numbers = self._places.numbers
        self.type_of = self._places.type_of
        self.free = [Free() for _ in snapshot.hosts]
        """For each host, when its usable GPUs are free."""
        self.gpus = self._most = 0
        """Usable GPUs, and the most of one host."""
        self.free_sum_ms = 0
        self.ends_sum_ms = 0
        self.latest: list[tuple[int, JobId]] = []
        """The jobs that end last, the latest first; three of them, if there are so many."""
        self.listed: list[Waiting] = []
        """Queued jobs that are list-scheduled, and..."""
        self.names: list[JobId] = []
        """...who they are."""
        self.rest_ms = 0
        """The area of the others."""
        self._without: dict[int, Listed] = {}
        self._see_running()
        self._see_hosts()
        self._see_queued()

    @cached_property
    def running(self) -> dict[JobId, JobView]:
        """Running jobs by id."""
        return {job.id: job for job in self.snapshot.running}

    @cached_property
    def queue(self) -> tuple[Scheduler, Listed]:
        """The first queued jobs if nobody of them is started now, and what schedules them."""
        scheduler = Scheduler(self.free, self.type_of, len(self.types), self.listed)
        return scheduler, scheduler.run(self.listed, {})

    def _see_running(self) -> None:
        """One loop on purpose: every decision needs it of all."""
        predictor, places, free = self.predictor, self._places, self.free
        ends_sum = free_sum = 0
        third = -1
        for job in self.snapshot.running:
            pace = predictor.look(job)
            end = pace.end_ms
            ends_sum += end
            if end > third:
                third = self._is_late(end, job.id)
            if pace.places is not places:
                pace.places = places
                pace.number = places.numbers.get(job.host, -1) if job.host is not None else -1
            if pace.number >= 0:
                free[pace.number].used_by(pace, job.size)
                free_sum += end * job.size
        self.ends_sum_ms, self.free_sum_ms = ends_sum, free_sum

    def _is_late(self, end: int, job: JobId) -> int:
        """A job ends later than the third of the latest so far; when that ends now."""
        self.latest.append((end, job))
        self.latest.sort(reverse=True)
        if len(self.latest) > 3:
            self.latest.pop()
        return self.latest[2][0] if len(self.latest) == 3 else -1

    def _see_hosts(self) -> None:
        for host, free in zip(self.snapshot.hosts, self.free, strict=True):
            usable = host.usable if host.usable > host.idle else host.idle
            free.idle(usable - free.count)
            self.gpus += free.count
            if free.count > self._most:
                self._most = free.count

    def _see_queued(self) -> None:
        if not self._most:
            return
        listed, predictor, types, rest_ms = self.listed, self.predictor, self.types, 0
        for job in self.snapshot.queued:
            if not self._counts(job):
                continue
            waiting = predictor.waiting(job, types)
            if len(listed) < LISTED_MAX:
                listed.append(waiting)
                self.names.append(job.id)
            else:
                rest_ms += waiting.area_ms
        self.rest_ms = rest_ms

    def _counts(self, job: JobView) -> bool:
        """Whether a queued job can start at all: some host can hold it, and, where its files can be
        reached from one host only, that one can be used."""
        sizes = job.sizes
        if not sizes or sizes[0] > self._most:
            return False
        return job.only_host is None or job.only_host in self.numbers

    def latest_but(self, changed: Sequence[JobId]) -> int:
        """The latest completion of the running jobs that are not ``changed``."""
        for end, name in self.latest:
            if name not in changed:
                return end
        rest = (end_ms(job) for job in self.snapshot.running if job.id not in changed)
        return max(rest, default=0)

    def outlook(self, newcomer: JobView | None = None) -> Outlook:
        """The queue as it counts while options of ``newcomer`` are weighed: it is one of those
        that are listed, wherever it stands."""
        at = None
        if newcomer is not None and newcomer.id in self.names:
            at = self.names.index(newcomer.id)
        if newcomer is None or at is not None or not self._counts(newcomer):
            return Outlook(self, self.listed, self.rest_ms, at)
        own = self.predictor.waiting(newcomer, self.types)
        listed = [*self.listed[:-1], own]
        rest_ms = self.rest_ms - own.area_ms + self.listed[-1].area_ms
        return Outlook(self, listed, rest_ms, len(listed) - 1)

    def without(self, at: int) -> Listed:
        """The schedule without one of those that are listed; the same for neighbours that are
        alike."""
        listed = self.listed
        while at and listed[at - 1] is listed[at]:
            at -= 1
        known = self._without.get(at)
        if known is None:
            scheduler, _ = self.queue
            known = self._without[at] = scheduler.run(listed[:at] + listed[at + 1 :], {})
        return known


class Outlook:
    """Weighs options for one newcomer (or, without one, for running jobs)."""

    def __init__(
        self, forecast: Forecast, listed: list[Waiting], rest_ms: int, at: int | None
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
            types = len(forecast.types)
            self._scheduler = Scheduler(forecast.free, forecast.type_of, types, listed)
            self.if_waiting = self._scheduler.run(listed, {})

    @cached_property
    def if_started(self) -> Listed:
        """The schedule without the newcomer."""
        if self._at is None:
            return self.if_waiting
        if self._usual:
            return self.forecast.without(self._at)
        return self._scheduler.run(self.others, {})

    @cached_property
    def reach(self) -> Reach:
        """Which GPUs those can use that wait when the newcomer does not."""
        return Reach(self.if_started, len(self.forecast.types))

    @cached_property
    def _at_best(self) -> Listed:
        """No schedule is better than this: nobody waits, and there are no gaps."""
        takes_ms = sum(min(job.takes_ms) for job in self.others)
        area_ms = sum(job.area_ms for job in self.others)
        return Listed(sum_ms=takes_ms, busy_ms=area_ms, bound=bool(self.others))

    def waits(self) -> tuple[int, int]:
        """Makespan and sum of completion times if nothing is done."""
        return self._total((), (), self.if_waiting)

    def bound(
        self, ends: Sequence[tuple[JobView, int]], changes: Sequence[Change]
    ) -> tuple[int, int]:
        """Neither makespan nor sum can be lower than this (see ``weigh``)."""
        return self._total(ends, changes, self._at_best)

    def known(self, changes: Sequence[Change]) -> bool:
        """Whether the queue fares as if nothing had changed: ``weigh`` is cheap then."""
        return not self.others or all(self._out_of_reach(change) for change in changes)

    def weigh(
        self, ends: Sequence[tuple[JobView, int]], changes: Sequence[Change]
    ) -> tuple[int, int]:
        """Makespan and sum of completion times of an option.

        ``ends``: new completion times of running jobs, and that of the newcomer; ``changes``: what
        that does to the GPUs of each host.
        """
        if self.known(changes):
            return self._total(ends, changes, self.if_started)
        overlay: dict[int, list[int]] = {}
        for host, gone, come in changes:
            times = list(overlay.get(host) or self.forecast.free[host].times_ms)
            for time in gone:
                times.remove(time)
            overlay[host] = sorted([*times, *come])
        return self._total(ends, changes, self._scheduler.run(self.others, overlay))

    def _total(
        self, ends: Sequence[tuple[JobView, int]], changes: Sequence[Change], listed: Listed
    ) -> tuple[int, int]:
        forecast = self.forecast
        makespan, total = listed.last_ms, forecast.ends_sum_ms + listed.sum_ms
        for job, end in ends:
            if end > makespan:
                makespan = end
            total += end - end_ms(job) if job.size else end
        others = forecast.latest_but([job.id for job, _ in ends])
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
        late = base.late_ms[gpu_type]
        if (not gone or min(gone) > late) and (not come or min(come) > late):
            return True
        if host in base.touched:
            return False
        times = list(self.forecast.free[host].times_ms)
        for time in gone:
            times.remove(time)
        times += come
        times.sort()
        for size, limit in base.late_by_size_ms[gpu_type].items():
            if size <= len(times) and times[size - 1] <= limit:
                return False
        return True
