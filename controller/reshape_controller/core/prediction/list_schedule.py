"""Greedy list scheduling of queued jobs, at their smallest size and in the order of the queue.

Does: places each job where it ends first, in whole milliseconds from now, and tells which GPUs
could not have been of use to any. Never: prefers an order, or predicts how long a job takes: it is
told. State: where each host's GPUs are free, as given.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush, heapreplace

from reshape_controller.core.prediction.free import Free
from reshape_controller.core.prediction.pace import Waiting


@dataclass(frozen=True, slots=True)
class Listed:
    """What came of a list schedule."""

    jobs: Sequence[Waiting] = ()
    ends_ms: Sequence[int] = ()
    """When each of the jobs ends; -1: no host can hold it."""
    sum_ms: int = 0
    last_ms: int = 0
    busy_ms: int = 0
    """By how much the sum of the times at which GPUs are free grew."""
    touched: frozenset[int] = frozenset()
    """Hosts that got jobs."""
    bound: bool = False
    """No schedule, but what none can be better than."""


class Reach:
    """Which GPUs a list schedule could use: one that is free later than this was of no use."""

    def __init__(self, listed: Listed, types: int) -> None:
        self._listed = listed
        self._types = types
        self.touched = listed.touched
        self.late_ms = [-1] * types
        """For each GPU type."""
        ends_ms = listed.ends_ms
        for number in range(types):
            late = -1
            for place, job in enumerate(listed.jobs):
                start = ends_ms[place] - job.takes_ms[number]
                if start > late:
                    late = start
            self.late_ms[number] = late

    @cached_property
    def late_by_size_ms(self) -> list[dict[int, int]]:
        """For each GPU type, and each size of a listed job."""
        found: list[dict[int, int]] = [{} for _ in range(self._types)]
        ends_ms = self._listed.ends_ms
        for place, job in enumerate(self._listed.jobs):
            for number in range(self._types) if ends_ms[place] >= 0 else ():
                start = ends_ms[place] - job.takes_ms[number]
                known = found[number]
                if start > known.get(job.size, start - 1):
                    known[job.size] = start
        return found


class Scheduler:
    """Greedy list scheduling: each job in turn where and when it ends first, at its smallest size;
    of equals the host with the lower number.

    For each size and GPU type there is a heap of hosts by when so many of their GPUs are free. Time
    and host are one whole number: comparing pairs would take longer than all the rest.
    """

    def __init__(
        self, free: list[Free], type_of: Sequence[int], types: int, listed: list[Waiting]
    ) -> None:
        """``free``: for each host; ``type_of``: the number of its GPU type, of ``types``;
        ``listed``: every job that will ever be scheduled."""
        self._free = free
        self._type_of = type_of
        self._sizes = sorted({job.size for job in listed})
        self._heads: dict[int, list[list[int]]] = {}
        hosts = len(free)
        for size in self._sizes:
            heads: list[list[int]] = [[] for _ in range(types)]
            for host, gpus in enumerate(free):
                if gpus.count >= size:
                    heads[type_of[host]].append(gpus.nth_ms(size) * hosts + host)
            for head in heads:
                heapify(head)
            self._heads[size] = heads

    def run(self, listed: Sequence[Waiting], overlay: dict[int, list[int]]) -> Listed:
        """Schedule ``listed``; ``overlay`` has the hosts whose GPUs are free at other times."""
        if self._sizes == [1]:
            return self._run_singles(listed, overlay)
        hosts = len(self._free)
        free = {host: times.copy() for host, times in overlay.items()}
        heads = {size: [head.copy() for head in of] for size, of in self._heads.items()}
        for host, times in overlay.items():
            self._push(heads, host, times)
        touched: dict[int, None] = {}
        ends: list[int] = []
        busy = total = last = 0
        for job in listed:
            size, takes_ms = job.size, job.takes_ms
            end = chosen = -1
            for kind, head in enumerate(heads[size]):
                while head:
                    start = head[0] // hosts
                    host = head[0] - start * hosts
                    if host not in free or free[host][size - 1] == start:
                        start += takes_ms[kind]
                        if chosen < 0 or start < end or (start == end and host < chosen):
                            end, chosen = start, host
                        break
                    heappop(head)  # it is free at another time since
            ends.append(end)
            if chosen < 0:
                continue
            touched[chosen] = None
            if chosen not in free:
                free[chosen] = self._free[chosen].times_ms.copy()
            times = free[chosen]
            busy += size * end - sum(times[:size])
            del times[:size]
            at = bisect_right(times, end)
            times[at:at] = [end] * size
            self._push(heads, chosen, times)
            total += end
            if end > last:
                last = end
        return Listed(listed, ends, total, last, busy, frozenset(touched).difference(overlay))

    def _run_singles(self, listed: Sequence[Waiting], overlay: dict[int, list[int]]) -> Listed:
        """The same where every job takes one GPU. It does not matter then which of a host that is,
        so each is in the heap by itself: a job's once it is placed, the others of a host one after
        the other. An odd number is a job's."""
        all_free, type_of, width = self._free, self._type_of, 2 * len(self._free)
        put, put_first = heappush, heapreplace  # a name of the module takes longer to find
        heads: list[list[int]] = []
        for head in self._heads[1]:
            heads.append([2 * first for first in head])
        for host, times in overlay.items():
            head = heads[type_of[host]]
            if all_free[host].count:
                head.remove(all_free[host].first_ms * width + 2 * host)
                heapify(head)
            if times:
                put(head, times[0] * width + 2 * host)
        taken = [0] * len(all_free)
        ends: list[int] = []
        busy = total = last = 0
        for job in listed:
            takes_ms = job.takes_ms
            end = start = chosen = kind = -1
            for number, head in enumerate(heads):
                if head:
                    at = head[0] // width
                    place = head[0] - at * width
                    done = at + takes_ms[number]
                    if chosen < 0 or done < end or (done == end and place < chosen):
                        end, start, chosen, kind = done, at, place, number
            ends.append(end)
            if chosen < 0:
                continue
            host = chosen // 2
            busy += end - start
            total += end
            if end > last:
                last = end
            put_first(heads[kind], end * width + 2 * host + 1)
            if chosen % 2 == 0:
                number = taken[host] = taken[host] + 1
                times = overlay[host] if host in overlay else all_free[host].times_ms
                if number < len(times):
                    put(heads[kind], times[number] * width + chosen)
        touched = [host for host, count in enumerate(taken) if count and host not in overlay]
        return Listed(listed, ends, total, last, busy, frozenset(touched))

    def _push(self, heads: dict[int, list[list[int]]], host: int, times: list[int]) -> None:
        kind, hosts = self._type_of[host], len(self._free)
        for size in self._sizes:
            if len(times) >= size:
                heappush(heads[size][kind], times[size - 1] * hosts + host)
