"""Reads of what the job wrote, in threads that the agent leaves behind when the attempt must end.

Does: runs a read beside the loop, as the job's user, and gives it up at the deadline of the end. A
thread that hangs in the kernel then dies with the agent: init kills it, so it holds no GPU.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from reshape_sidecar import foreign
from reshape_sidecar.user import User, run_as

POLL_S = 0.1
"""Interval at which a read in progress is compared with the deadline."""
LEAVE_S = 0.3
"""Time for a read to stop by itself after the deadline; then it is left behind."""
READ_MIN_S = 1.0
"""Time that each read has, even if it begins at the deadline."""
T = TypeVar("T")
Stop = Callable[[], bool]


class Reads:
    """``end_by_s`` returns the deadline of the end (monotonic); None while the attempt goes on."""

    def __init__(self, user: User | None, end_by_s: Callable[[], float | None]) -> None:
        self._user = user
        self._end_by_s = end_by_s

    async def run(self, work: Callable[[Stop], T]) -> T:
        """Return the result of ``work``, which gets a function that says whether to stop.

        Raises foreign.Stopped at the deadline, and what ``work`` raises.
        """
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()
        began_s, left = time.monotonic(), threading.Event()

        def is_late() -> bool:
            end_by_s, now_s = self._end_by_s(), time.monotonic()
            return end_by_s is not None and now_s > max(end_by_s, began_s + READ_MIN_S)

        def stop() -> bool:
            return left.is_set() or is_late()

        def read() -> None:
            try:
                done = functools.partial(_set_result, result, run_as(self._user, work, stop))
            except BaseException as error:
                done = functools.partial(_set_error, result, error)
            with contextlib.suppress(RuntimeError):  # the agent has ended meanwhile
                loop.call_soon_threadsafe(done)

        threading.Thread(target=read, name="read", daemon=True).start()
        try:
            while not result.done() and not is_late():
                await asyncio.wait((result,), timeout=POLL_S)
            await asyncio.wait((result,), timeout=LEAVE_S)
        finally:
            left.set()
        if not result.done():
            raise foreign.Stopped(errno.ETIMEDOUT, "a read of what the job wrote hangs")
        return result.result()


def _set_result(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)


def _set_error(future: asyncio.Future[T], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
