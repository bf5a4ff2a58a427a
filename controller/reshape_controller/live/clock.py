"""Where the live shell gets its time from; the only module that reads a clock for the engine.

Does: Unix time in seconds, never decreasing within a process. Never: local time.
State: the latest time that was given out.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_s(self) -> float:
        """Unix time in seconds."""


class WallClock:
    """The machine's clock, clamped so that it never runs backwards."""

    def __init__(self) -> None:
        self._latest_s = 0.0

    def now_s(self) -> float:
        """Unix time in seconds; after a step backwards it stands still until time catches up."""
        self._latest_s = max(self._latest_s, time.time())
        return self._latest_s
