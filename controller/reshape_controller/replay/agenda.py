"""Virtual time: what happens when, and in which order what happens at once.

Does: keeps entries by time, and of equal times by the order in which they were put. Times are whole
multiples of 1/1024 s, so that sums of times are exact and do not depend on their order. Never:
reads a clock. State: the heap, and how many entries were put.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import Generic, TypeVar

TICKS = 1024
"""In a second. A power of two: sums of such times are exact as binary fractions."""

Entry = TypeVar("Entry")


def ticks_up(seconds: float) -> float:
    """The next whole tick, never earlier than ``seconds``."""
    return math.ceil(seconds * TICKS) / TICKS


class Agenda(Generic[Entry]):
    """One per replay."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Entry]] = []
        self._count = 0

    def put(self, at_s: float, entry: Entry) -> None:
        """``entry`` happens at ``at_s``, after what was put there before."""
        self._count += 1
        heappush(self._heap, (at_s, self._count, entry))

    def next_s(self) -> float | None:
        """When the next entry happens; None: nothing more will."""
        return self._heap[0][0] if self._heap else None

    def take(self, now_s: float) -> list[Entry]:
        """Remove and give every entry up to ``now_s``, in order."""
        heap, found = self._heap, []
        while heap and heap[0][0] <= now_s:
            found.append(heappop(heap)[2])
        return found
