"""When to save while nobody asks: often enough to lose little, seldom enough to cost little.

Does: learns what a save costs and spaces saves so that they take less than SAVE_RATIO_MAX of the
time. Never: saves. State: the learned cost and the time of the last save.
"""

from __future__ import annotations

SAVE_RATIO_MAX = 0.02
SAVE_RATIO_AIM = 0.015
"""Aimed at, so that a save that is slower than the learned cost stays under the maximum."""
INTERVAL_MIN_S = 5.0
COST_WEIGHT = 0.5
COST_FLOOR_S = 0.05
FIRST_COST_BYTES_PER_S = 100e6
"""Assumed speed of a disk before the first save was measured."""


class SaveInterval:
    """Tells when the next periodic save is due."""

    def __init__(self, now_s: float) -> None:
        self._last_s = now_s
        self._cost_s: float | None = None

    def expect(self, state_bytes: int) -> None:
        """Assume a cost from the size of the state until a save was measured."""
        if self._cost_s is None:
            self._cost_s = max(COST_FLOOR_S, state_bytes / FIRST_COST_BYTES_PER_S)

    def interval_s(self) -> float:
        """Seconds between the end of one save and the start of the next."""
        return max(INTERVAL_MIN_S, (self._cost_s or COST_FLOOR_S) / SAVE_RATIO_AIM)

    def due(self, now_s: float) -> bool:
        """Whether a periodic save is due."""
        return now_s - self._last_s >= self.interval_s()

    def affordable(self, now_s: float) -> bool:
        """Whether a save now would still be within the ratio."""
        return now_s - self._last_s >= (self._cost_s or COST_FLOOR_S) / SAVE_RATIO_AIM

    def saved(self, now_s: float, took_s: float) -> None:
        """A save ended and took so long; a slower one counts at once, a faster one by weight."""
        known = self._cost_s
        if known is None or took_s > known:
            self._cost_s = took_s
        else:
            self._cost_s = known + COST_WEIGHT * (took_s - known)
        self._last_s = now_s

    def failed(self, now_s: float) -> None:
        """A save failed: try again after a whole interval."""
        self._last_s = now_s
