"""Greedy list scheduling of queued jobs, at their smallest size and in the order of the queue.

Does: places each job where it ends first, in whole milliseconds from now, and tells beside it which
GPUs could not have been of use to any. Never: prefers an order, or predicts how long a job takes:
it is told. State: where each host's GPUs are free, as given.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from reshape_controller.core.model import JobId


@dataclass(frozen=True, slots=True)
class Waiting:
    """A queued job at its smallest size: milliseconds on each GPU type, and its smallest area."""

    id: JobId
    size: int
    takes_ms: tuple[int, ...]
    area_ms: int


@dataclass(frozen=True, slots=True)
class Listed:
    """What came of a list schedule."""

    ends_ms: dict[JobId, int]
    sum_ms: int = 0
    last_ms: int = 0
    busy_ms: int = 0
    """By how much the sum of the times at which GPUs are free grew."""
    late_ms: tuple[int, ...] = ()
    """For each GPU type: a GPU that is free later than this was of no use to any listed job."""
    late_by_size_ms: tuple[dict[int, int], ...] = ()
    touched: frozenset[int] = frozenset()
    bound: bool = False
    """No schedule, but what none can be better than."""


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
        self._types = types
        self._sizes = sorted({job.size for job in listed})
        self._heads: dict[tuple[int, int], list[tuple[int, int]]] = {
            (gpu_type, size): [] for gpu_type in range(self._types) for size in self._sizes
        }
        for host, times in enumerate(self._free):
            for size in self._sizes:
                if len(times) >= size:
                    self._heads[self._type_of[host], size].append((times[size - 1], host))
        for head in self._heads.values():
            heapify(head)

    def run(self, listed: Sequence[Waiting], overlay: dict[int, list[int]]) -> Listed:
        """Schedule ``listed``; ``overlay`` has the hosts whose GPUs are free at other times."""
        free = dict(overlay)
        heads = {key: head.copy() for key, head in self._heads.items()}
        for host, times in overlay.items():
            self._push(heads, host, times)
        ends: dict[JobId, int] = {}
        busy = 0
        late = [-1] * self._types
        by_size: tuple[dict[int, int], ...] = tuple({} for _ in range(self._types))
        for job in listed:
            placed = self._place(job, heads, free)
            if placed is None:
                continue
            end, host = placed
            before = free.get(host) or self._free[host]
            after = before[job.size :]
            at = bisect_right(after, end)
            after[at:at] = [end] * job.size
            busy += job.size * end - sum(before[: job.size])
            free[host] = after
            self._push(heads, host, after)
            ends[job.id] = end
            for gpu_type in range(self._types):
                start = end - job.takes_ms[gpu_type]
                known = by_size[gpu_type]
                if start > late[gpu_type]:
                    late[gpu_type] = start
                if start > known.get(job.size, start - 1):
                    known[job.size] = start
        return Listed(
            ends,
            sum(ends.values()),
            max(ends.values(), default=0),
            busy,
            tuple(late),
            by_size,
            frozenset(free) - frozenset(overlay),
        )

    def _place(
        self,
        job: Waiting,
        heads: dict[tuple[int, int], list[tuple[int, int]]],
        free: dict[int, list[int]],
    ) -> tuple[int, int] | None:
        best: tuple[int, int] | None = None
        for gpu_type in range(self._types):
            head = heads[gpu_type, job.size]
            while head:
                start, host = head[0]
                times = free.get(host) or self._free[host]
                if times[job.size - 1] == start:
                    found = (start + job.takes_ms[gpu_type], host)
                    best = found if best is None else min(best, found)
                    break
                heappop(head)
        return best

    def _push(
        self, heads: dict[tuple[int, int], list[tuple[int, int]]], host: int, times: list[int]
    ) -> None:
        for size in self._sizes:
            if len(times) >= size:
                heappush(heads[self._type_of[host], size], (times[size - 1], host))
