"""Where the live shell gets its time from; the only module that reads a clock for the engine.

Does: gives Unix time in seconds that runs like a stopwatch and follows the machine's clock little
by little. A jump of that clock would make deadlines hours early or late.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

FOLLOW_RATIO = 0.1
"""Largest relative correction of the rate at which time passes, to follow the machine's clock."""


class Clock(Protocol):
    def now_s(self) -> float:
        """Unix time in seconds."""

    def not_before(self, at_s: float) -> None:
        """Go on from ``at_s`` if that is later."""


class WallClock:
    """The machine's clock without its jumps. ``wall_s`` and ``steady_s`` are its two clocks."""

    def __init__(
        self,
        wall_s: Callable[[], float] = time.time,
        steady_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall_s = wall_s
        self._steady_s = steady_s
        self._latest_s = wall_s()
        self._read_at_s = steady_s()

    def now_s(self) -> float:
        """Unix time in seconds; never decreases."""
        steady_s = self._steady_s()
        passed_s = steady_s - self._read_at_s
        self._read_at_s = steady_s
        self._latest_s += passed_s
        behind_s = self._wall_s() - self._latest_s
        most_s = passed_s * FOLLOW_RATIO
        self._latest_s += max(-most_s, min(most_s, behind_s))
        return self._latest_s

    def not_before(self, at_s: float) -> None:
        """Go on from ``at_s`` if that is later: the log holds times only of the past."""
        self._latest_s = max(self.now_s(), at_s)
