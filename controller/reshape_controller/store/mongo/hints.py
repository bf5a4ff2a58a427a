"""A change stream as a hint of new requests: it shortens the wait for the next poll.

Does: ends a wait when a document is inserted or a request field is written. It reads no request and
raises nothing; a server without change streams is polled only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from pymongo.errors import PyMongoError

from reshape_controller.store.mongo.log import Database
from reshape_controller.store.protocol import StoreError

RETRY_S = 60.0
"""Pause before a broken stream is opened again."""
CANCEL_AGAIN_S = 0.05
"""Pause between two attempts to cancel the watching task."""
_COLLECTIONS = ("jobs", "hosts", "inbox")


def _pipeline(collections: tuple[str, ...]) -> list[dict[str, Any]]:
    return [
        {
            "$match": {
                "ns.coll": {"$in": list(collections)},
                "$or": [
                    {"operationType": "insert", "fullDocument.reshape": {"$exists": False}},
                    {"updateDescription.updatedFields.request": {"$exists": True}},
                ],
            }
        },
        {"$project": {"_id": 1}},
    ]


class Hints:
    """One per open store."""

    def __init__(self, inboxes: tuple[str, ...] = ()) -> None:
        """``inboxes``: collections of requests beside those of all."""
        self._pipeline = _pipeline((*_COLLECTIONS, *inboxes))
        self.working = False
        """Whether the stream is open."""
        self._request = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, database: Callable[[], Database]) -> None:
        """Begin to watch, in a task of its own. ``database``: the one in use at that time."""
        self._task = asyncio.create_task(self._watch(database), name="store hints")

    async def stop(self) -> None:
        """End watching; no effect if it did not begin."""
        task, self._task = self._task, None
        while task is not None and not task.done():
            # Repeated, because the driver can lose a cancellation (asyncio.wait_for).
            task.cancel()
            await asyncio.wait((task,), timeout=CANCEL_AGAIN_S)

    async def wait(self, wait_s: float) -> None:
        """Wait for a new request, at most ``wait_s`` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._request.wait()
        self._request.clear()

    async def _watch(self, database: Callable[[], Database]) -> None:
        while True:
            try:
                async with await database().watch(self._pipeline) as stream:
                    self.working = True
                    async for _ in stream:
                        self._request.set()
            except (PyMongoError, StoreError):
                self.working = False  # it broke, or the server has none: polling is enough
            await asyncio.sleep(RETRY_S)
