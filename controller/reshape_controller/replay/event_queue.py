"""Virtual time: a queue of entries by time, and for equal times in the order of insertion.

Times are whole multiples of 1/1024 s, so that sums of times are exact in any order.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import Generic, TypeVar

TICKS = 1024
"""Ticks in a second. A power of two, so that sums of times are exact as binary fractions."""

Entry = TypeVar("Entry")


def ticks_up(seconds: float) -> float:
    """Return the first whole tick at or after ``seconds``."""
    return math.ceil(seconds * TICKS) / TICKS


class EventQueue(Generic[Entry]):
    """The events of a replay that are to come.

    The heap has each time once, because numbers compare faster than entries.
    """

    def __init__(self) -> None:
        self._moments: list[float] = []
        self._entries: dict[float, list[Entry]] = {}

    def put(self, at_s: float, entry: Entry) -> None:
        """Add an entry at ``at_s``, after earlier entries of that time."""
        here = self._entries.get(at_s)
        if here is None:
            self._entries[at_s] = [entry]
            heappush(self._moments, at_s)
        else:
            here.append(entry)

    def next_s(self) -> float | None:
        """Return the time of the next entry; None if the queue is empty."""
        return self._moments[0] if self._moments else None

    def take(self, now_s: float) -> list[Entry]:
        """Remove and return all entries up to ``now_s``, in order."""
        found: list[Entry] = []
        while self._moments and self._moments[0] <= now_s:
            at_s = heappop(self._moments)
            found += self._entries[at_s]
            del self._entries[at_s]
        return found
