"""Pauses of the calls that an API server cannot serve, and which of them fail now.

Does: after a call that the server could not serve, answers the same call with the same error and
without a request, until its pause is over: the server's Retry-After, or a time that grows with each
failure in a row. Never: delays a call that the server refused for its content.
State: the calls that fail now.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from reshape_launcher.kubernetes import backoff
from reshape_launcher.kubernetes.values import CONFLICT, KubernetesError

PAUSE_MIN_S = 1.0
"""Pause after the second failure in a row; the first has none. Each further failure doubles it."""
PAUSE_MAX_S = 5.0
FORGET_S = 60.0
"""Time after which a call that failed, and was not repeated, is no problem any more."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that failed each time since ``since_s``."""

    error: KubernetesError
    since_s: float
    newest_s: float
    until_s: float
    """End of its pause."""
    times: int


class CallPauses:
    """One per client, for any number of threads. ``monotonic_s`` is any steady clock."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._failures: dict[str, Failure] = {}

    def run(self, what: str, ask: Callable[[], T]) -> T:
        """Return the result of ``ask``; ``what`` names the call. Raises KubernetesError."""
        with self._lock:
            failure = self._failures.get(what)
            if failure is not None and self._monotonic_s() < failure.until_s:
                raise failure.error.copy()
        try:
            found = ask()
        except KubernetesError as error:
            if error.away and error.status != CONFLICT:
                self._note(what, error)
            else:
                self._forget(what)
            raise
        self._forget(what)
        return found

    def problem(self) -> str:
        """Return which call has failed for the longest time, and why; empty if none fails."""
        now_s = self._monotonic_s()
        with self._lock:
            recent = [f for f in self._failures.values() if now_s - f.newest_s <= FORGET_S]
        if not recent:
            return ""
        first = min(recent, key=lambda failure: failure.since_s)
        status = f"HTTP {first.error.status}, " if first.error.status else ""
        return f"{first.error} ({status}{first.times} times in {now_s - first.since_s:.0f} s)"

    def _note(self, what: str, error: KubernetesError) -> None:
        now_s = self._monotonic_s()
        with self._lock:
            before = self._failures.get(what)
            times = 1 if before is None else before.times + 1
            since_s = now_s if before is None else before.since_s
            pause_s = backoff.pause_s(PAUSE_MIN_S, PAUSE_MAX_S, times - 2) if times > 1 else 0.0
            until_s = now_s + max(pause_s, error.retry_after_s)
            old = [key for key, f in self._failures.items() if now_s - f.newest_s > FORGET_S]
            for key in old:
                del self._failures[key]
            self._failures[what] = Failure(error, since_s, now_s, until_s, times)

    def _forget(self, what: str) -> None:
        with self._lock:
            self._failures.pop(what, None)
