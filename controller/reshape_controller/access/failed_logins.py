"""The bound on failed logins of one address.

Does: after ``FAILURES_MAX`` failures within ``SPAN_S``, says how long the address has to wait. A
token cannot be guessed; the bound keeps a program that tries from costing the daemon anything.
State: the newest failures of at most ``ADDRESSES_MAX`` addresses.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

FAILURES_MAX = 10
SPAN_S = 60.0
ADDRESSES_MAX = 10_000
"""With more, the address that failed longest ago is forgotten."""


class FailedLogins:
    """The newest failures by address."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._failures: dict[str, deque[float]] = {}
        """The address that failed longest ago comes first."""

    def add(self, address: str) -> None:
        """Count a failure."""
        failures = self._failures.pop(address, deque(maxlen=FAILURES_MAX))
        failures.append(self._monotonic_s())
        self._failures[address] = failures
        if len(self._failures) > ADDRESSES_MAX:
            del self._failures[next(iter(self._failures))]

    def wait_s(self, address: str) -> float:
        """Return the time until the address may try again; 0 if it may now."""
        failures = self._failures.get(address)
        if failures is None or len(failures) < FAILURES_MAX:
            return 0.0
        return max(0.0, failures[0] + SPAN_S - self._monotonic_s())
