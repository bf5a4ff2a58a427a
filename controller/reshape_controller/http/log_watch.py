"""Wakes requests that wait for a log to grow: one look at each log for all of them.

Does: looks at every awaited log each ``LOOK_EVERY_S`` seconds while a request waits, and wakes
those whose log has changed. State: the awaited logs, and the task that looks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

LOOK_EVERY_S = 0.2
"""Pause between two looks at the same log."""

Look = Callable[[], object]


@dataclass(slots=True)
class _Awaited:
    look: Look
    seen: object
    waiting: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class LogWatch:
    """One per daemon."""

    def __init__(self) -> None:
        self._awaited: dict[Hashable, _Awaited] = {}
        self._looking: asyncio.Task[None] | None = None

    async def changes(self, log: Hashable, look: Look, before: object, wait_s: float) -> None:
        """Wait until ``look`` returns something else than ``before``, at most ``wait_s`` seconds.

        ``log`` names what is looked at: requests with the same name share one look.
        """
        entry = self._awaited.setdefault(log, _Awaited(look, before))
        if entry.seen != before:
            return  # it has changed since the caller read
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_while_awaited(), name="log-watch")
        entry.waiting += 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await entry.changed.wait()
        finally:
            entry.waiting -= 1
            if not entry.waiting and self._awaited.get(log) is entry:
                del self._awaited[log]

    async def _look_while_awaited(self) -> None:
        while self._awaited:
            await asyncio.sleep(LOOK_EVERY_S)
            for log, entry in list(self._awaited.items()):
                seen = entry.look()
                if seen != entry.seen:
                    entry.seen = seen
                    entry.changed.set()
                    self._awaited.pop(log, None)
