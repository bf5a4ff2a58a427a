"""Greedy list scheduling of queued jobs, at their smallest size and in the order of the queue.

Does: places each job where it ends first, in whole milliseconds from now, and tells which GPUs
could not have been of use to any. Never: prefers an order, or predicts how long a job takes: it is
told. State: when GPUs are free, as given.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heapify, heappop, heappush

from reshape_controller.core.host_numbering import HostNumbering
from reshape_controller.core.job_estimate import QueuedWork
from reshape_controller.core.plan import HostView
from reshape_controller.scheduling.cluster_index import RunningIndex

Change = tuple[int, tuple[int, ...], tuple[int, ...]]
"""On one host (by number): times at which GPUs no longer become free, and new ones."""


class FreeTimes:
    """The usable GPUs of all hosts."""

    def __init__(
        self,
        running_index: RunningIndex,
        numbering: HostNumbering,
        hosts: tuple[HostView, ...],
        now_ms: int,
    ) -> None:
        self.numbering, self.now_ms = numbering, now_ms
        self.counts = running_index.gpus_on_host.copy()
        """GPUs by host."""
        self._running_index = running_index
        self._idle = [0] * len(hosts)
        self._idle_of_type = [0] * len(numbering.types)
        self._of_host: dict[int, list[int]] = {}
        self._moments: list[list[int]] = []
        self._asked = -1
        """So many GPUs of each type are in there."""
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
        self.gpus, self.most = gpus, most
        """All of them, and the most of one host."""

    def of_host(self, host: int) -> list[int]:
        """When each GPU of a host is free, ascending."""
        times = self._of_host.get(host)
        if times is None:
            times = [0] * self._idle[host]
            for entry in self._running_index.on_host[host].values():
                times += [entry.end_from_now_ms(self.now_ms)] * entry.job.size
            times.sort()
            self._of_host[host] = times
        return times

    def after(self, changes: tuple[Change, ...]) -> dict[int, list[int]]:
        """The same of the hosts that change, with the changes."""
        found: dict[int, list[int]] = {}
        for host, gone, come in changes:
            times = list(found.get(host) or self.of_host(host))
            for time in gone:
                times.remove(time)
            found[host] = sorted([*times, *come])
        return found

    def moments(self, kind: int, count: int) -> list[int]:
        """At which the first so many GPUs of a type (or more, or all that there are) are free,
        ascending."""
        if self._asked < count:
            self._asked = count + self.most
            self._moments = self._first(self._asked)
        return self._moments[kind]

    def _first(self, count: int) -> list[list[int]]:
        running_index, now_ms = self._running_index, self.now_ms
        rows = [
            [now_ms] * self._idle_of_type[kind] + row[:count]
            for kind, row in enumerate(running_index.gpu_ends)
        ]
        for entry in running_index.relative.values():
            if entry.host_number >= 0:
                for _ in range(entry.job.size):
                    rows[entry.type_number].append(now_ms + entry.end_ms)
        for row in rows:
            row.sort()
            del row[count:]
        return rows


NEVER_MS = 1 << 60
"""No GPU is free then."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """What came of a list schedule."""

    jobs: list[QueuedWork] = field(default_factory=list)
    ends_ms: list[int] = field(default_factory=list)
    """When each of the jobs ends; -1: no host can hold it."""
    sum_ms: int = 0
    last_ms: int = 0
    busy_ms: int = 0
    """By how much the sum of the times at which GPUs are free grew."""
    touched: frozenset[int] | None = frozenset()
    """Hosts that got jobs; None: it was not looked who did."""
    bound: bool = False
    """No schedule, but what none can be better than."""


class Reach:
    """Which GPUs a list schedule could use: one that is free later than this was of no use."""

    def __init__(self, listed: Schedule, types: int) -> None:
        self._listed = listed
        self._types = types
        self.touched = listed.touched
        self.limits_ms: list[int] = []
        """For each GPU type."""
        jobs, ends_ms = listed.jobs, listed.ends_ms
        for kind in range(types):
            late = -1
            for place, end in enumerate(ends_ms):
                start = end - jobs[place].durations_ms[kind]
                if start > late:
                    late = start
            self.limits_ms.append(late)

    @cached_property
    def late_by_size_ms(self) -> list[dict[int, int]]:
        """For each GPU type, and each size of a listed job."""
        found: list[dict[int, int]] = [{} for _ in range(self._types)]
        ends_ms = self._listed.ends_ms
        for place, job in enumerate(self._listed.jobs):
            for number in range(self._types) if ends_ms[place] >= 0 else ():
                start = ends_ms[place] - job.durations_ms[number]
                known = found[number]
                if start > known.get(job.size, start - 1):
                    known[job.size] = start
        return found


class Scheduler:
    """Greedy list scheduling: each job in turn where and when it ends first, at its smallest size;
    of equals on the GPU type that comes first in the alphabet, and there on the host with the lower
    number.

    For each size and GPU type there is a heap of hosts by when so many of their GPUs are free. Time
    and host are one whole number: comparing pairs would take longer than all the rest.
    """

    def __init__(self, free: FreeTimes, listed: list[QueuedWork]) -> None:
        """``listed``: every job that will ever be scheduled."""
        self._free = free
        self._sizes = sorted({job.size for job in listed})
        self._single = self._sizes == [1]
        self._heads: dict[int, list[list[int]]] = {}
        if not self._single:
            self._heads = {size: self._heads_of(size) for size in self._sizes}

    def _heads_of(self, size: int) -> list[list[int]]:
        free, type_of, hosts = self._free, self._free.numbering.type_of, len(self._free.counts)
        heads: list[list[int]] = [[] for _ in free.numbering.types]
        for host, count in enumerate(free.counts):
            if count >= size:
                heads[type_of[host]].append(free.of_host(host)[size - 1] * hosts + host)
        for head in heads:
            heapify(head)
        return heads

    def run(self, listed: list[QueuedWork], changes: tuple[Change, ...] = ()) -> Schedule:
        """Schedule ``listed``, with ``changes`` of when GPUs are free."""
        if self._single:
            return self._run_singles(listed, changes)
        hosts, all_free = len(self._free.counts), self._free
        free = all_free.after(changes)
        changed = dict.fromkeys(free)
        heads = {size: [head.copy() for head in of] for size, of in self._heads.items()}
        for host in changed:
            self._push(heads, host, free[host])
        touched: dict[int, None] = {}
        ends: list[int] = []
        busy = total = last = 0
        for job in listed:
            size, durations_ms = job.size, job.durations_ms
            end = chosen = -1
            for kind, head in enumerate(heads[size]):
                while head:
                    start = head[0] // hosts
                    host = head[0] - start * hosts
                    if host not in free or free[host][size - 1] == start:
                        start += durations_ms[kind]
                        if chosen < 0 or start < end:
                            end, chosen = start, host
                        break
                    heappop(head)  # it is free at another time since
            ends.append(end)
            if chosen < 0:
                continue
            touched[chosen] = None
            if chosen not in free:
                free[chosen] = all_free.of_host(chosen).copy()
            times = free[chosen]
            busy += size * end - sum(times[:size])
            del times[:size]
            at = bisect_right(times, end)
            times[at:at] = [end] * size
            self._push(heads, chosen, times)
            total += end
            if end > last:
                last = end
        return Schedule(listed, ends, total, last, busy, frozenset(touched).difference(changed))

    def _run_singles(self, listed: list[QueuedWork], changes: tuple[Change, ...]) -> Schedule:
        """The same where every job takes one GPU. It does not matter then which of a type that is:
        those that become free come one after the other, beside those of jobs that are placed."""
        rows, now_ms = self._rows(len(listed), changes), self._free.now_ms
        pools = [_Pool(row, len(listed)) for row in rows]
        ends: list[int] = []
        busy = total = last = 0
        for job in listed:
            durations_ms = job.durations_ms
            end, chosen = NEVER_MS, -1
            for kind, pool in enumerate(pools):
                done = pool.first_ms + durations_ms[kind]
                if done < end:
                    end, chosen = done, kind
            if chosen < 0:
                ends.append(-1)
                continue
            pools[chosen].take(end)
            end -= now_ms
            ends.append(end)
            busy += durations_ms[chosen]
            total += end
            if end > last:
                last = end
        return Schedule(listed, ends, total, last, busy, None)

    def _rows(self, count: int, changes: tuple[Change, ...]) -> list[list[int]]:
        """By GPU type, the moments at which the first so many GPUs are free."""
        free, type_of, now_ms = self._free, self._free.numbering.type_of, self._free.now_ms
        more = sum([len(gone) for _, gone, _ in changes])
        rows = [free.moments(kind, count + more) for kind in range(len(free.numbering.types))]
        copied: dict[int, None] = {}
        for host, gone, come in changes:
            kind = type_of[host]
            if kind not in copied:
                copied[kind] = None
                rows[kind] = rows[kind].copy()
            row = rows[kind]
            for time in gone:
                at = bisect_left(row, now_ms + time)
                if at < len(row):
                    del row[at]
            for time in come:
                insort(row, now_ms + time)
        return rows

    def _push(self, heads: dict[int, list[list[int]]], host: int, times: list[int]) -> None:
        kind, hosts = self._free.numbering.type_of[host], len(self._free.counts)
        for size in self._sizes:
            if len(times) >= size:
                heappush(heads[size][kind], times[size - 1] * hosts + host)


class _Pool:
    """The GPUs of a type, each free at a moment of ``row`` or when the job that has it ends."""

    def __init__(self, row: list[int], count: int) -> None:
        """``count``: no more of them are taken."""
        self.first_ms = row[0] if row else NEVER_MS
        """When the next one is free."""
        self._row = row
        self._place = 0
        self._placed = [NEVER_MS]
        self._late_ms = row[count - 1] if count <= len(row) else NEVER_MS
        """Until then enough of the row are free."""

    def take(self, end: int) -> None:
        """The next one has a job until ``end``."""
        row, placed = self._row, self._placed
        if placed[0] == self.first_ms:
            heappop(placed)
        else:
            self._place += 1
        if end < self._late_ms:
            heappush(placed, end)
        again = placed[0]
        at = row[self._place] if self._place < len(row) else NEVER_MS
        self.first_ms = again if again < at else at
