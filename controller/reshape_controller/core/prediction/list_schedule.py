"""Greedy list scheduling of queued jobs, at their smallest size and in the order of the queue.

Does: places each job where it ends first, in whole milliseconds from now, and tells which GPUs
could not have been of use to any. Never: prefers an order, or predicts how long a job takes: it is
told. State: where each host's GPUs are free, as given.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush

from reshape_controller.core.model import JobId


@dataclass(frozen=True, slots=True)
class Waiting:
    """A queued job at its smallest size: milliseconds on each GPU type, and its smallest area."""

    id: JobId
    size: int
    gpu_types: tuple[str, ...]
    takes_ms: tuple[int, ...]
    area_ms: int


@dataclass(frozen=True, slots=True)
class Listed:
    """What came of a list schedule."""

    placed: tuple[tuple[Waiting, int], ...] = ()
    """Jobs with the time at which each ends."""
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
        self._placed = listed.placed
        self.touched = listed.touched
        self.late_ms = [
            max([-1, *[end - job.takes_ms[number] for job, end in listed.placed]])
            for number in range(types)
        ]
        """For each GPU type."""

    @cached_property
    def late_by_size_ms(self) -> list[dict[int, int]]:
        """For each GPU type, and each size of a listed job."""
        found: list[dict[int, int]] = [{} for _ in self.late_ms]
        for job, end in self._placed:
            for known, takes_ms in zip(found, job.takes_ms, strict=True):
                start = end - takes_ms
                if start > known.get(job.size, start - 1):
                    known[job.size] = start
        return found


class Scheduler:
    """Greedy list scheduling: each job in turn where and when it ends first, at its smallest size;
    of equals the host with the lower number."""

    def __init__(
        self, free: list[list[int]], type_of: list[int], types: int, listed: list[Waiting]
    ) -> None:
        """``free``: for each host, when its GPUs are free, ascending; ``type_of``: the number of
        its GPU type, of ``types``; ``listed``: every job that will ever be scheduled."""
        self._free = free
        self._type_of = type_of
        self._sizes = sorted({job.size for job in listed})
        self._heads: dict[int, list[list[tuple[int, int]]]] = {
            size: [[] for _ in range(types)] for size in self._sizes
        }
        for host, times in enumerate(self._free):
            for size in self._sizes:
                if len(times) >= size:
                    self._heads[size][type_of[host]].append((times[size - 1], host))
        for heads in self._heads.values():
            for head in heads:
                heapify(head)

    def run(self, listed: Sequence[Waiting], overlay: dict[int, list[int]]) -> Listed:
        """Schedule ``listed``; ``overlay`` has the hosts whose GPUs are free at other times."""
        at_first, type_of, one_size = self._free, self._type_of, len(self._sizes) == 1
        free = {host: times.copy() for host, times in overlay.items()}
        heads = {size: [head.copy() for head in of] for size, of in self._heads.items()}
        for host, times in free.items():
            self._push(heads, host, times)
        placed: list[tuple[Waiting, int]] = []
        busy = total = last = 0
        for job in listed:
            size = job.size
            end, chosen = -1, -1
            for head, takes_ms in zip(heads[size], job.takes_ms, strict=True):
                while head:
                    start, host = head[0]
                    times = free[host] if host in free else at_first[host]
                    if times[size - 1] == start:
                        start += takes_ms
                        if chosen < 0 or start < end or (start == end and host < chosen):
                            end, chosen = start, host
                        break
                    heappop(head)
            if chosen < 0:
                continue
            if chosen not in free:
                free[chosen] = at_first[chosen].copy()
            times = free[chosen]
            if size == 1:
                busy += end - times.pop(0)
                insort(times, end)
            else:
                busy += size * end - sum(times[:size])
                del times[:size]
                at = bisect_right(times, end)
                times[at:at] = [end] * size
            if one_size:
                heappush(heads[size][type_of[chosen]], (times[size - 1], chosen))
            else:
                self._push(heads, chosen, times)
            placed.append((job, end))
            total += end
            if end > last:
                last = end
        touched = frozenset(free) - frozenset(overlay)
        return Listed(tuple(placed), total, last, busy, touched)

    def _push(
        self, heads: dict[int, list[list[tuple[int, int]]]], host: int, times: list[int]
    ) -> None:
        for size in self._sizes:
            if len(times) >= size:
                heappush(heads[size][self._type_of[host]], (times[size - 1], host))
