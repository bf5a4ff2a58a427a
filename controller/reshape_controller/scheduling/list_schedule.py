"""Greedy list scheduling of queued jobs, at their smallest size and in the order of the queue.

A job that may be on several hosts counts against the whole worker slots of a GPU type: each of its
workers takes the slot that is free first, wherever it is.

``FreeTimes`` says when each usable GPU becomes free. ``Scheduler`` places each job where it ends
first and returns a ``Schedule``; ``QueueReach`` says up to which free times GPUs were of use to its
jobs. Times are whole milliseconds from now unless a docstring says otherwise. How long a job takes
is given (``QueuedWork``).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heapify, heappop, heappush, heapreplace

from reshape_controller.core.job_estimate import GangWork, QueuedWork
from reshape_controller.core.plan import HostView
from reshape_controller.scheduling.cluster_index import HostNumbering, RunningIndex

HostChange = tuple[int, tuple[int, ...], tuple[int, ...]]
"""What an option changes on one host: the host's number, free times that GPUs no longer have, and
free times that they have instead."""

NEVER_MS = 1 << 60
"""The free time of a GPU that does not exist."""


class FreeTimes:
    """When the usable GPUs of all hosts become free, if no queued job starts."""

    def __init__(
        self,
        running_index: RunningIndex,
        numbering: HostNumbering,
        hosts: tuple[HostView, ...],
        now_ms: int,
    ) -> None:
        """``now_ms``: Unix milliseconds."""
        self.numbering, self.now_ms = numbering, now_ms
        self.counts = running_index.gpus_on_host.copy()
        """The number of GPUs, by host."""
        self._running_index = running_index
        self._idle = [0] * len(hosts)
        self._idle_of_type = [0] * len(numbering.types)
        self._of_host: dict[int, list[int]] = {}
        self._slots: dict[tuple[int, int], list[int]] = {}
        self._first: list[list[int]] = []
        """The result of ``first_free_times`` for ``_first_count`` GPUs."""
        self._first_count = -1
        gpus = most = 0
        for number, host in enumerate(hosts):
            count, usable = self.counts[number], host.usable
            if host.idle > usable:
                usable = host.idle
            if usable > count:
                self._idle[number] = usable - count
                self._idle_of_type[numbering.type_of[number]] += usable - count
                self.counts[number] = count = usable
            gpus += count
            if count > most:
                most = count
        self.gpus = gpus
        """The number of all GPUs."""
        self.most = most
        """The most GPUs of one host."""

    def of_host(self, host: int) -> list[int]:
        """Return when each GPU of a host is free, ascending."""
        times = self._of_host.get(host)
        if times is None:
            times = [0] * self._idle[host]
            for entry in self._running_index.on_host[host].values():
                times += [entry.end_from_now_ms(self.now_ms)] * entry.gpus_on(host)
            times.sort()
            self._of_host[host] = times
        return times

    def worker_slots(self, type_number: int, each: int) -> list[int]:
        """Return when each group of ``each`` GPUs of a host is free, over all hosts of a GPU type,
        ascending: ``time * hosts + host``."""
        slots = self._slots.get((type_number, each))
        if slots is None:
            slots, type_of, hosts = [], self.numbering.type_of, len(self.counts)
            for host in [n for n in range(hosts) if type_of[n] == type_number]:
                slots += [time * hosts + host for time in self.of_host(host)[each - 1 :: each]]
            slots.sort()
            self._slots[type_number, each] = slots
        return slots

    def with_changes(self, changes: tuple[HostChange, ...]) -> dict[int, list[int]]:
        """Return the free times of the hosts that ``changes`` name, with the changes."""
        changed: dict[int, list[int]] = {}
        for host, removed, added in changes:
            times = list(changed.get(host) or self.of_host(host))
            for time in removed:
                times.remove(time)
            changed[host] = sorted([*times, *added])
        return changed

    def first_free_times(self, type_number: int, count: int) -> list[int]:
        """Return the earliest free times of GPUs of a type (Unix milliseconds), ascending: at
        least ``count`` of them, or those of all its GPUs."""
        if self._first_count < count:
            self._first_count = count + self.most
            self._first = self._compute_first(self._first_count)
        return self._first[type_number]

    def _compute_first(self, count: int) -> list[list[int]]:
        running_index, now_ms = self._running_index, self.now_ms
        by_type = [
            [now_ms] * self._idle_of_type[type_number] + gpu_ends[:count]
            for type_number, gpu_ends in enumerate(running_index.gpu_ends)
        ]
        for entry in running_index.relative.values():
            if entry.gpus:
                by_type[entry.type_number] += [now_ms + entry.end_ms] * entry.gpus
        for times in by_type:
            times.sort()
            del times[count:]
        return by_type


@dataclass(frozen=True, slots=True)
class Schedule:
    """The result of list scheduling."""

    jobs: list[QueuedWork] = field(default_factory=list)
    ends_ms: list[int] = field(default_factory=list)
    """When each of the jobs ends; -1: no host can hold it."""
    sum_ms: int = 0
    """The sum of the ends."""
    last_ms: int = 0
    """The last of the ends."""
    busy_ms: int = 0
    """By how much the jobs raise the sum of the times at which GPUs are free."""
    hosts: frozenset[int] | None = frozenset()
    """Hosts that got jobs, but for those with changes; None: the schedule does not say."""
    is_bound: bool = False
    """True for no real schedule, but for a lower bound on the figures of every schedule."""


class QueueReach:
    """The latest free times of GPUs that a schedule could use. A GPU that is free later than the
    limit was of no use to any of its jobs: each starts no later than that."""

    def __init__(self, schedule: Schedule, type_count: int) -> None:
        self._schedule = schedule
        self._type_count = type_count
        self.hosts = schedule.hosts
        self.limits_ms: list[int] = []
        """The limit for each GPU type; -1: no job could use any."""
        jobs, ends_ms = schedule.jobs, schedule.ends_ms
        shortest_ms = [job.shortest_ms for job in jobs]
        for number in range(type_count):
            starts = [end - ms[number] for ms, end in zip(shortest_ms, ends_ms, strict=True)]
            self.limits_ms.append(max([-1, *starts]))

    @cached_property
    def limits_by_size_ms(self) -> list[dict[int, int]]:
        """The limit for each GPU type and each size of a job; of a job on several hosts, for the
        GPUs of a worker."""
        by_type: list[dict[int, int]] = [{} for _ in range(self._type_count)]
        ends_ms = self._schedule.ends_ms
        for index, job in enumerate(self._schedule.jobs):
            wants = [(job.size, job.durations_ms)]
            if job.gang is not None:
                wants.append((job.gang.each, job.gang.durations_ms))
            for size, durations_ms in wants if ends_ms[index] >= 0 else ():
                for type_number in range(self._type_count):
                    start = ends_ms[index] - durations_ms[type_number]
                    limits = by_type[type_number]
                    if start > limits.get(size, start - 1):
                        limits[size] = start
        return by_type


class Scheduler:
    """Greedy list scheduling: each job in turn where it ends first, at its smallest size. Of equal
    ends the GPU type that comes first in the alphabet wins, and there the host with the lower
    number.

    For each size and GPU type there is a heap of hosts by when so many of their GPUs are free. An
    entry is one whole number, ``time * hosts + host``: comparing pairs would take most of the time.
    """

    def __init__(self, free_times: FreeTimes, jobs: list[QueuedWork]) -> None:
        """``jobs``: every job that ``run`` may be given."""
        self._free_times = free_times
        self._sizes = sorted({job.size for job in jobs})
        self._all_single = self._sizes == [1]
        self._heaps: dict[int, list[list[int]]] = {}
        """By size: for each GPU type the heap of hosts without changes."""
        if not self._all_single:
            self._heaps = {size: self._make_heaps(size) for size in self._sizes}

    def _make_heaps(self, size: int) -> list[list[int]]:
        free_times, hosts = self._free_times, len(self._free_times.counts)
        type_of = free_times.numbering.type_of
        heaps: list[list[int]] = [[] for _ in free_times.numbering.types]
        for host, count in enumerate(free_times.counts):
            if count >= size:
                heaps[type_of[host]].append(free_times.of_host(host)[size - 1] * hosts + host)
        for heap in heaps:
            heapify(heap)
        return heaps

    def run(self, jobs: list[QueuedWork], changes: tuple[HostChange, ...] = ()) -> Schedule:
        """Schedule ``jobs`` in their order, with ``changes`` of when GPUs are free."""
        if self._all_single:
            return self._run_single_gpu(jobs, changes)
        hosts, free_times = len(self._free_times.counts), self._free_times
        free = free_times.with_changes(changes)
        changed = dict.fromkeys(free)
        heaps = {size: [heap.copy() for heap in by_type] for size, by_type in self._heaps.items()}
        for host in changed:
            self._push(heaps, host, free[host])
        used: dict[int, None] = {}
        ends: list[int] = []
        busy = total = last = 0
        for job in jobs:
            size, durations_ms = job.size, job.durations_ms
            end = chosen = -1
            for type_number, heap in enumerate(heaps[size]):
                while heap:
                    start = heap[0] // hosts
                    host = heap[0] - start * hosts
                    if host not in free or free[host][size - 1] == start:
                        start += durations_ms[type_number]
                        if chosen < 0 or start < end:
                            end, chosen = start, host
                        break
                    heappop(heap)  # an old entry: the host's free times have changed since
            gpus_of = {chosen: size} if chosen >= 0 else {}
            if job.gang is not None:
                end, gpus_of = self._placed_gang(job.gang, free, end, gpus_of)
            ends.append(end)
            if not gpus_of:
                continue
            for host, count in gpus_of.items():
                used[host] = None
                if host not in free:
                    free[host] = free_times.of_host(host).copy()
                times = free[host]
                busy += count * end - sum(times[:count])
                del times[:count]
                at = bisect_right(times, end)
                times[at:at] = [end] * count
                self._push(heaps, host, times)
            total += end
            if end > last:
                last = end
        return Schedule(jobs, ends, total, last, busy, frozenset(used).difference(changed))

    def _placed_gang(
        self, gang: GangWork, free: dict[int, list[int]], end: int, gpus_of: dict[int, int]
    ) -> tuple[int, dict[int, int]]:
        """Return when a gang ends on several hosts, and its GPUs by host; or what is given, if it
        does not end before ``end`` there. Without ``gpus_of`` it ends nowhere else.

        ``free``: the free times of hosts that are no longer as at first.
        """
        hosts, type_of = len(self._free_times.counts), self._free_times.numbering.type_of
        for type_number, duration in enumerate(gang.durations_ms):
            slots: list[int] = []
            for slot in self._free_times.worker_slots(type_number, gang.each):
                if len(slots) == gang.workers:
                    break
                if slot % hosts not in free:
                    slots.append(slot)
            last = slots[-1] if len(slots) == gang.workers else NEVER_MS * hosts
            for host, times in free.items():
                if type_of[host] != type_number or len(times) < gang.each:
                    continue
                if times[gang.each - 1] * hosts + host < last:
                    of_host = times[gang.each - 1 :: gang.each]
                    slots += [time * hosts + host for time in of_host]
            if len(slots) < gang.workers:
                continue
            slots.sort()
            del slots[gang.workers :]
            end_here = slots[-1] // hosts + duration
            if not gpus_of or end_here < end:
                end, gpus_of = end_here, {}
                for slot in slots:
                    gpus_of[slot % hosts] = gpus_of.get(slot % hosts, 0) + gang.each
        return end, gpus_of

    def _run_single_gpu(self, jobs: list[QueuedWork], changes: tuple[HostChange, ...]) -> Schedule:
        """``run`` for jobs of one GPU each. The host does not matter then: of each GPU type the
        GPU that is free first is taken, whether a running or a scheduled job frees it."""
        times_by_type, now_ms = self._first_times(len(jobs), changes), self._free_times.now_ms
        # A list in ascending order is a heap.
        heaps = [times[: len(jobs)] or [NEVER_MS] for times in times_by_type]
        ends: list[int] = []
        busy = total = last = 0
        for job in jobs:
            durations_ms = job.durations_ms
            end, chosen = NEVER_MS, -1
            for type_number, heap in enumerate(heaps):
                end_here = heap[0] + durations_ms[type_number]
                if end_here < end:
                    end, chosen = end_here, type_number
            if chosen < 0:
                ends.append(-1)
                continue
            heapreplace(heaps[chosen], end)
            end -= now_ms
            ends.append(end)
            busy += durations_ms[chosen]
            total += end
            if end > last:
                last = end
        return Schedule(jobs, ends, total, last, busy, None)

    def _first_times(self, count: int, changes: tuple[HostChange, ...]) -> list[list[int]]:
        """By GPU type, when the first ``count`` GPUs are free (Unix milliseconds)."""
        free_times, now_ms = self._free_times, self._free_times.now_ms
        type_of, type_count = free_times.numbering.type_of, len(free_times.numbering.types)
        more = sum([len(removed) for _, removed, _ in changes])
        by_type = [
            free_times.first_free_times(type_number, count + more)
            for type_number in range(type_count)
        ]
        copies: dict[int, None] = {}
        for host, removed, added in changes:
            type_number = type_of[host]
            if type_number not in copies:
                copies[type_number] = None
                by_type[type_number] = by_type[type_number].copy()
            times = by_type[type_number]
            for time in removed:
                at = bisect_left(times, now_ms + time)
                if at < len(times):
                    del times[at]
            for time in added:
                insort(times, now_ms + time)
        return by_type

    def _push(self, heaps: dict[int, list[list[int]]], host: int, times: list[int]) -> None:
        """Add a host with new free times to the heaps."""
        type_number = self._free_times.numbering.type_of[host]
        hosts = len(self._free_times.counts)
        for size in self._sizes:
            if len(times) >= size:
                heappush(heaps[size][type_number], times[size - 1] * hosts + host)
