"""Faults of the controller's own machine (no descriptor, no room, an I/O error) and a cluster that
does not tell its containers.

Does: tells them from errors of a job, has an effect that meets one wait and try again, and moves
the deadlines meanwhile, so that such a fault never counts as a failure of a job. State: the faults
that effects wait for now.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import TypeVar

import structlog

from reshape_controller.core import events as ev
from reshape_launcher.spec import ClusterUnseen

OWN = frozenset(
    {
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EIO,
        errno.ENOMEM,
        errno.EAGAIN,
        errno.EROFS,
        errno.ENOBUFS,
    }
)
"""Error numbers that say something of this machine, and nothing of the job."""
AGAIN_S = 1.0
"""Pause before an effect is tried again."""
MOVE_S = 5.0
"""Time by which the deadlines move at once, as long as an effect waits."""
LOG_AGAIN_S = 60.0
"""Least time between two log entries about faults."""

T = TypeVar("T")
log = structlog.get_logger("reshape.effects")


def own_fault(error: BaseException) -> OSError | None:
    """Return the fault of this machine that caused ``error``; None if there is none."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and found.errno in OWN:
            return found
        found = found.__cause__ or found.__context__
    return None


def _described(error: BaseException) -> tuple[str, str]:
    """Return the fault behind ``error`` and its remedy; both empty if it is none of these."""
    if isinstance(error, ClusterUnseen):
        return f"the cluster: {error}", "see the API server; reshape doctor names the call"
    fault = own_fault(error)
    if fault is None:
        return "", ""
    where = f" ({fault.filename})" if fault.filename else ""
    what = os.strerror(fault.errno or 0)
    return f"this machine: {what}{where}", "free files, room or memory"


class OwnFaults:
    """One per daemon. ``post`` gives events to the loop."""

    def __init__(
        self, post: Callable[[ev.Event], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._post = post
        self._clock = clock
        self._waiting: dict[Hashable, str] = {}
        self._moved_until_s = 0.0
        self._log_at_s = 0.0

    @property
    def problem(self) -> str:
        """The fault that an effect waits for now; empty if there is none."""
        return next(iter(self._waiting.values()), "")

    async def ride_out(
        self,
        key: Hashable,
        effect: Callable[[], Awaitable[T]],
        wanted: Callable[[], bool] = lambda: True,
    ) -> T:
        """Return what ``effect`` returns; try it again while this machine is at fault.

        ``wanted``: false once nothing depends on the effect any more; then its error is raised.
        """
        try:
            while True:
                try:
                    return await effect()
                except Exception as error:
                    fault, remedy = _described(error)
                    if not fault or not wanted():
                        raise
                    self._note(key, fault, remedy)
                await asyncio.sleep(AGAIN_S)
        finally:
            self._waiting.pop(key, None)

    def _note(self, key: Hashable, fault: str, remedy: str) -> None:
        now_s = self._clock()
        self._waiting[key] = f"{fault}; remedy: {remedy}"
        if now_s >= self._log_at_s:
            self._log_at_s = now_s + LOG_AGAIN_S
            consequence = "no job fails for it; effects are tried again each second"
            log.error("own-fault", error=fault, effect=str(key), consequence=consequence)
        if now_s >= self._moved_until_s:
            # Before the time has passed, so that no deadline comes first.
            self._moved_until_s = now_s + MOVE_S
            self._post(ev.ControllerHeldUp(MOVE_S))
