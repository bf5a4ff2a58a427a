"""A longest time for one decision of a policy, so that one that hangs does not stop the controller.

Does: interrupts a call in the main thread by a signal, also in the middle of a loop or a read, and
does not call again for a pause. Code in C that does not return to Python cannot be interrupted.
State: by when the call under way has to end, for one thread that looks now and then.
"""

from __future__ import annotations

import math
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
LOOK_EVERY_S = 1.0
"""Pause between two looks whether a call takes too long; one that goes on is interrupted again."""

T = TypeVar("T")


class DecidesTooLong(ReshapeError):
    """The policy has not decided in time."""


class _TimeIsOver(BaseException):
    """Raised in the middle of a call; no handler of ordinary errors takes it."""


class _Watch:
    """The thread that looks, and the signal's handler; one of each for the process."""

    def __init__(self) -> None:
        self.until_s = math.inf
        """Steady time by which the call under way has to end."""
        self._begun = False

    def begin(self) -> None:
        """Start to look, once."""
        if not self._begun:
            self._begun = True
            signal.signal(signal.SIGVTALRM, self._interrupt)
            threading.Thread(target=self._look, name="policy-limit", daemon=True).start()

    def _look(self) -> None:
        main = threading.main_thread().ident or 0
        while True:
            time.sleep(LOOK_EVERY_S)
            if time.monotonic() > self.until_s:
                signal.pthread_kill(main, signal.SIGVTALRM)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if time.monotonic() > self.until_s:  # otherwise the call has just ended
            raise _TimeIsOver


_WATCH = _Watch()


class PolicyLimit:
    """One per planner."""

    def __init__(self) -> None:
        self._not_before_s = 0.0
        """Steady time before which the policy is not asked."""

    def of(self, call: Callable[[], T]) -> T:
        """Return what ``call`` returns. Raises DecidesTooLong."""
        now_s = time.monotonic()
        if now_s < self._not_before_s:
            raise DecidesTooLong(f"it did not decide within {DECIDE_MAX_S:g} s, and has a pause")
        if threading.current_thread() is not threading.main_thread():
            return call()  # only the main thread gets signals
        _WATCH.begin()
        try:
            try:
                _WATCH.until_s = now_s + DECIDE_MAX_S
                return call()
            finally:
                _WATCH.until_s = math.inf
        except _TimeIsOver:  # also if it comes within the line above
            _WATCH.until_s = math.inf
            self._not_before_s = time.monotonic() + PAUSE_S
            raise DecidesTooLong(f"it has not decided within {DECIDE_MAX_S:g} s") from None
