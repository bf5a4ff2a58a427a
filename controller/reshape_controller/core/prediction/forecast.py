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

from reshape_controller.core.model import HostId, JobId
from reshape_controller.core.plan import JobView, Snapshot
from reshape_controller.core.prediction.list_schedule import Listed, Scheduler, Waiting
from reshape_controller.core.prediction.predictor import Predictor

LISTED_MAX = 64
"""Queued jobs that are list-scheduled one by one; the rest count by their area."""

Change = tuple[int, tuple[int, ...], tuple[int, ...]]
"""On one host (by number): times at which GPUs no longer become free, and new ones."""


def to_ms(seconds: float) -> int:
    """Whole milliseconds."""
    return round(seconds * 1000.0)


class Forecast:
    """One per decision; ``outlook`` of it for each newcomer."""

    def __init__(self, snapshot: Snapshot, predictor: Predictor) -> None:
        self.snapshot = snapshot
        self.predictor = predictor
        types = sorted({host.gpu_type for host in snapshot.hosts})
        self.types = {gpu_type: number for number, gpu_type in enumerate(types)}
        self.numbers = {host.id: number for number, host in enumerate(snapshot.hosts)}
        self.type_of = [self.types[host.gpu_type] for host in snapshot.hosts]
        self.ends_ms = {job.id: to_ms(predictor.unchanged_s(job)) for job in snapshot.running}
        self.free_ms = self._free()
        self.gpus = sum(len(times) for times in self.free_ms)
        self.free_sum_ms = sum(sum(times) for times in self.free_ms)
        self.ends_sum_ms = sum(self.ends_ms.values())
        self.running = {job.id: job for job in snapshot.running}
        self.latest = sorted(((end, job) for job, end in self.ends_ms.items()), reverse=True)[:3]
        self.waiting = [entry for job in snapshot.queued if (entry := self._waiting(job))]

    def _free(self) -> list[list[int]]:
        """For each host, when each of its usable GPUs is free, in ascending order."""
        held: dict[HostId, list[int]] = {host.id: [] for host in self.snapshot.hosts}
        for job in self.snapshot.running:
            if job.host in held:
                held[job.host] += [self.ends_ms[job.id]] * job.size
        found = []
        for host in self.snapshot.hosts:
            times = held[host.id]
            times += [0] * (max(host.usable, host.idle) - len(times))
            found.append(sorted(times))
        return found

    def _waiting(self, job: JobView) -> Waiting | None:
        """A queued job for the list; None where no host can hold it."""
        if not job.sizes or not self.types:
            return None
        size = min(job.sizes)
        if all(len(times) < size for times in self.free_ms):
            return None
        takes = tuple(
            to_ms(self.predictor.incoming_s(job, gpu_type, size)) for gpu_type in self.types
        )
        return Waiting(job.id, size, takes, size * min(takes))

    def latest_but(self, job: JobId) -> int:
        """The latest completion of a running job other than ``job``."""
        for end, other in self.latest:
            if other != job:
                return end
        return 0

    def outlook(self, newcomer: JobId | None = None) -> Outlook:
        """The queue as it counts while options of ``newcomer`` are weighed: it is one of those
        that are listed, wherever it stands."""
        listed, rest = self.waiting[:LISTED_MAX], self.waiting[LISTED_MAX:]
        own = next((job for job in rest if job.id == newcomer), None)
        if own is not None:
            rest = [listed[-1], *(job for job in rest if job is not own)]
            listed = [*listed[:-1], own]
        return Outlook(self, listed, sum(job.area_ms for job in rest), newcomer)


class Outlook:
    """Weighs options for one newcomer (or, without one, for running jobs)."""

    def __init__(
        self, forecast: Forecast, listed: list[Waiting], rest_ms: int, newcomer: JobId | None
    ) -> None:
        self.forecast = forecast
        self.rest_ms = rest_ms
        self._all = listed
        self.others = [job for job in listed if job.id != newcomer]
        self._scheduler = Scheduler(
            forecast.free_ms, forecast.type_of, len(forecast.types), self._all
        )
        self.if_waiting = self._scheduler.run(self._all, {})
        self.if_started = (
            self._scheduler.run(self.others, {}) if newcomer is not None else self.if_waiting
        )
        self._area_ms = sum(job.area_ms for job in self.others)
        self._takes_ms = sum(min(job.takes_ms) for job in self.others)

    def waits(self) -> tuple[int, int]:
        """Makespan and sum of completion times if nothing is done."""
        return self._total((), (), self.if_waiting)

    def bound(
        self, ends: Sequence[tuple[JobId, int]], changes: Sequence[Change]
    ) -> tuple[int, int]:
        """Neither makespan nor sum can be lower than this (see ``weigh``)."""
        at_best = Listed({}, self._takes_ms, busy_ms=self._area_ms, bound=bool(self.others))
        return self._total(ends, changes, at_best)

    def known(self, changes: Sequence[Change]) -> bool:
        """Whether the queue fares as if nothing had changed: ``weigh`` is cheap then."""
        base = self.if_started
        return not self.others or all(self._out_of_reach(base, change) for change in changes)

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

    def _out_of_reach(self, base: Listed, change: Change) -> bool:
        """Whether no listed job would see the difference: every time that changes is later than
        any listed job could use, or the host was and stays of no use to any."""
        host, gone, come = change
        gpu_type = self.forecast.type_of[host]
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
