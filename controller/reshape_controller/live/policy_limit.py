"""A longest time for one decision of a policy, so that one that hangs does not stop the controller.

Does: interrupts a call in the main thread by a signal, also in the middle of a loop or a read, and
does not call again for a pause. Code in C that does not return to Python cannot be interrupted.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

from reshape_controller.core.errors import ReshapeError

DECIDE_MAX_S = 30.0
"""Longest time for one decision. Then: the policy has failed."""
PAUSE_S = 60.0
"""Time after that in which the policy is not asked: others get their answers."""
AGAIN_S = 1.0
"""Time after which a call that went on all the same is interrupted again."""

T = TypeVar("T")


class DecidesTooLong(ReshapeError):
    """The policy has not decided in time."""


class _TimeIsOver(BaseException):
    """Raised in the middle of a call; no handler of ordinary errors takes it."""


class PolicyLimit:
    """One per planner."""

    def __init__(self) -> None:
        self._not_before_s = 0.0
        """Steady time before which the policy is not asked."""

    def of(self, call: Callable[[], T]) -> T:
        """Return what ``call`` returns. Raises DecidesTooLong."""
        if time.monotonic() < self._not_before_s:
            raise DecidesTooLong(f"it did not decide within {DECIDE_MAX_S:g} s, and has a pause")
        try:
            return _at_most(DECIDE_MAX_S, call)
        except _TimeIsOver:
            self._not_before_s = time.monotonic() + PAUSE_S
            raise DecidesTooLong(f"it has not decided within {DECIDE_MAX_S:g} s") from None


def _at_most(limit_s: float, call: Callable[[], T]) -> T:
    """Return what ``call`` returns within so long. Raises _TimeIsOver."""
    if threading.current_thread() is not threading.main_thread():
        return call()  # only the main thread gets signals
    began_s = time.monotonic()
    handler = signal.signal(signal.SIGALRM, _interrupt)
    left_s, every_s = signal.setitimer(signal.ITIMER_REAL, limit_s, AGAIN_S)
    try:
        return call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, handler)
        if left_s:  # somebody else's timer
            left_s = max(0.001, left_s - (time.monotonic() - began_s))
            signal.setitimer(signal.ITIMER_REAL, left_s, every_s)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise _TimeIsOver
