"""Virtual time: what happens when, and in which order what happens at once.

Does: keeps entries by time, and of equal times by the order in which they were put. Times are whole
multiples of 1/1024 s, so that sums of times are exact and do not depend on their order. Never:
reads a clock. State: moments, and what happens then.
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
    """One per replay. The heap has each moment once: numbers are compared more quickly than what
    would tell entries of one moment apart."""

    def __init__(self) -> None:
        self._moments: list[float] = []
        self._entries: dict[float, list[Entry]] = {}

    def put(self, at_s: float, entry: Entry) -> None:
        """``entry`` happens at ``at_s``, after what was put there before."""
        here = self._entries.get(at_s)
        if here is None:
            self._entries[at_s] = [entry]
            heappush(self._moments, at_s)
        else:
            here.append(entry)

    def next_s(self) -> float | None:
        """When the next entry happens; None: nothing more will."""
        return self._moments[0] if self._moments else None

    def take(self, now_s: float) -> list[Entry]:
        """Remove and give every entry up to ``now_s``, in order."""
        found: list[Entry] = []
        while self._moments and self._moments[0] <= now_s:
            at_s = heappop(self._moments)
            found += self._entries[at_s]
            del self._entries[at_s]
        return found
