"""How much of something each name may have a second: one bucket for each, which fills steadily.

Does: counts what is taken, and says how long to wait for what is too much. State: when each bucket
will be full again, of at most ``NAMES_MAX`` names.
"""

from __future__ import annotations

import time
from collections.abc import Callable

NAMES_MAX = 10_000
"""With more names, the one that was quiet longest is forgotten."""
_ROUNDING_S = 1e-6
"""Sums of times are off by less."""


class Pace:
    """``rate`` a second on average, ``burst`` at once. What is larger than a whole bucket is let
    through by a full one."""

    def __init__(
        self, rate: float, burst: float, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.rate, self._burst_s = rate, burst / rate
        self._monotonic_s = monotonic_s
        self._full_at_s: dict[str, float] = {}
        """The name that was quiet longest comes first."""

    def wait_s(self, name: str, amount: float = 1.0) -> float:
        """Take so much for ``name``, and return 0; or take nothing, and return after how many
        seconds there is so much."""
        now_s = self._monotonic_s()
        full_at_s = max(now_s, self._full_at_s.pop(name, now_s))
        then_s = full_at_s + amount / self.rate
        wait_s = min(then_s - self._burst_s, full_at_s) - now_s
        too_much = wait_s > _ROUNDING_S
        self._full_at_s[name] = full_at_s if too_much else then_s
        if len(self._full_at_s) > NAMES_MAX:
            del self._full_at_s[next(iter(self._full_at_s))]
        return wait_s if too_much else 0.0
