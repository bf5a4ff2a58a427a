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

from reshape_controller.core.model import HostId, JobId
from reshape_controller.core.plan import JobView, Snapshot
from reshape_controller.core.prediction.list_schedule import (
    Listed,
    Reach,
    Scheduler,
    Waiting,
)
from reshape_controller.core.prediction.predictor import Predictor

LISTED_MAX = 64
"""Queued jobs that are list-scheduled one by one; the rest count by their area."""

Change = tuple[int, tuple[int, ...], tuple[int, ...]]
"""On one host (by number): times at which GPUs no longer become free, and new ones."""


class Forecast:
    """One per decision; ``outlook`` of it for each newcomer."""

    def __init__(self, snapshot: Snapshot, predictor: Predictor) -> None:
        self.snapshot = snapshot
        self.predictor = predictor
        self.types = tuple(sorted({host.gpu_type for host in snapshot.hosts}))
        number_of = {gpu_type: number for number, gpu_type in enumerate(self.types)}
        self.numbers = {host.id: number for number, host in enumerate(snapshot.hosts)}
        self.type_of = [number_of[host.gpu_type] for host in snapshot.hosts]
        self.ends_ms = predictor.ends_ms(snapshot.running)
        self.free_ms = self._free()
        self.gpus = sum(map(len, self.free_ms))
        self.free_sum_ms = sum(map(sum, self.free_ms))
        self.ends_sum_ms = sum(self.ends_ms.values())
        third = min(sorted(self.ends_ms.values())[-3:], default=0)
        last = ((end, job) for job, end in self.ends_ms.items() if end >= third)
        self.latest = sorted(last, reverse=True)[:3]
        waiting = self._waiting()
        self.listed, self.rest = waiting[:LISTED_MAX], waiting[LISTED_MAX:]
        self.rest_ms = sum(job.area_ms for job in self.rest)

    @cached_property
    def running(self) -> dict[JobId, JobView]:
        """Running jobs by id."""
        return {job.id: job for job in self.snapshot.running}

    @cached_property
    def queue(self) -> tuple[Scheduler, Listed]:
        """The first queued jobs if nobody of them is started now, and what schedules them."""
        scheduler = Scheduler(self.free_ms, self.type_of, len(self.types), self.listed)
        return scheduler, scheduler.run(self.listed, {})

    def _free(self) -> list[list[int]]:
        """For each host, when each of its usable GPUs is free, in ascending order."""
        found: dict[HostId | None, list[int]] = {host.id: [] for host in self.snapshot.hosts}
        for job, end in zip(self.snapshot.running, self.ends_ms.values(), strict=True):
            times = found.get(job.host)
            if times is not None:
                times += (end,) * job.size
        for host in self.snapshot.hosts:
            times = found[host.id]
            usable = host.usable if host.usable > host.idle else host.idle
            if usable > len(times):
                times += (0,) * (usable - len(times))
            times.sort()
        return list(found.values())

    def _waiting(self) -> list[Waiting]:
        """Queued jobs for the list; without those that no host can hold, or that can be on one host
        only and that one cannot be used."""
        most = max(map(len, self.free_ms), default=0)
        if not most:
            return []
        queued = [
            j for j in self.snapshot.queued if j.only_host is None or j.only_host in self.numbers
        ]
        listed = self.predictor.waiting(queued, self.types)
        return [job for job in listed if job.size <= most]

    def latest_but(self, job: JobId) -> int:
        """The latest completion of a running job other than ``job``."""
        for end, other in self.latest:
            if other != job:
                return end
        return 0

    def outlook(self, newcomer: JobId | None = None) -> Outlook:
        """The queue as it counts while options of ``newcomer`` are weighed: it is one of those
        that are listed, wherever it stands."""
        if newcomer is None or any(job.id == newcomer for job in self.listed):
            return Outlook(self, self.listed, self.rest_ms, newcomer)
        own = next((job for job in self.rest if job.id == newcomer), None)
        if own is None:
            return Outlook(self, self.listed, self.rest_ms, newcomer)
        listed = [*self.listed[:-1], own]
        rest_ms = self.rest_ms - own.area_ms + self.listed[-1].area_ms
        return Outlook(self, listed, rest_ms, newcomer)


class Outlook:
    """Weighs options for one newcomer (or, without one, for running jobs)."""

    def __init__(
        self, forecast: Forecast, listed: list[Waiting], rest_ms: int, newcomer: JobId | None
    ) -> None:
        self.forecast = forecast
        self.rest_ms = rest_ms
        self.others = [job for job in listed if job.id != newcomer]
        self._listed = len(listed)
        if listed is forecast.listed:
            self._scheduler, self.if_waiting = forecast.queue
        else:
            free_ms, type_of = forecast.free_ms, forecast.type_of
            self._scheduler = Scheduler(free_ms, type_of, len(forecast.types), listed)
            self.if_waiting = self._scheduler.run(listed, {})

    @cached_property
    def if_started(self) -> Listed:
        """The schedule without the newcomer."""
        alone = len(self.others) < self._listed
        return self._scheduler.run(self.others, {}) if alone else self.if_waiting

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
        self, ends: Sequence[tuple[JobId, int]], changes: Sequence[Change]
    ) -> tuple[int, int]:
        """Neither makespan nor sum can be lower than this (see ``weigh``)."""
        return self._total(ends, changes, self._at_best)

    def known(self, changes: Sequence[Change]) -> bool:
        """Whether the queue fares as if nothing had changed: ``weigh`` is cheap then."""
        return not self.others or all(self._out_of_reach(change) for change in changes)

    def weigh(
        self, ends: Sequence[tuple[JobId, int]], changes: Sequence[Change]
    ) -> tuple[int, int]:
        """Makespan and sum of completion times of an option.

        ``ends``: new completion times of running jobs, and that of the newcomer; ``changes``: what
        that does to the GPUs of each host.
        """
        if self.known(changes):
            return self._total(ends, changes, self.if_started)
        overlay: dict[int, list[int]] = {}
        for host, gone, come in changes:
            times = list(overlay.get(host) or self.forecast.free_ms[host])
            for time in gone:
                times.remove(time)
            overlay[host] = sorted([*times, *come])
        return self._total(ends, changes, self._scheduler.run(self.others, overlay))

    def _total(
        self, ends: Sequence[tuple[JobId, int]], changes: Sequence[Change], listed: Listed
    ) -> tuple[int, int]:
        forecast = self.forecast
        makespan, total = listed.last_ms, forecast.ends_sum_ms + listed.sum_ms
        for job, end in ends:
            makespan = max(makespan, end)
            total += end - forecast.ends_ms.get(job, 0)
        for end, job in forecast.latest:
            if all(job != changed for changed, _ in ends):
                makespan = max(makespan, end)
                break
        else:
            changed = dict(ends)
            rest = (end for job, end in forecast.ends_ms.items() if job not in changed)
            makespan = max(makespan, max(rest, default=0))
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
        times = list(self.forecast.free_ms[host])
        for time in gone:
            times.remove(time)
        times = sorted([*times, *come])
        return all(
            size > len(times) or times[size - 1] > limit
            for size, limit in base.late_by_size_ms[gpu_type].items()
        )
