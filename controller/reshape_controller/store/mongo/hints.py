"""A change stream as a hint that something was asked: it shortens the wait for the next poll.

Does: wakes whoever waits when a document is inserted or a request field is written. Never: is
relied on (servers without change streams are polled alone), raises, or reads what was written.
State: whether the stream works; the task that reads it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from pymongo.errors import PyMongoError

from reshape_controller.store.mongo.log import Database

RETRY_S = 60.0
"""Pause before a stream that broke is opened again."""
CANCEL_AGAIN_S = 0.05
_ASKED: list[dict[str, Any]] = [
    {
        "$match": {
            "ns.coll": {"$in": ["jobs", "hosts", "inbox"]},
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

    def __init__(self) -> None:
        self.working = False
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, database: Database) -> None:
        """Begin to watch, in a task of its own."""
        self._task = asyncio.create_task(self._watch(database), name="store hints")

    async def stop(self) -> None:
        """End watching; harmless without."""
        task, self._task = self._task, None
        while task is not None and not task.done():
            # Again and again: a cancellation can be lost inside the driver (asyncio.wait_for).
            task.cancel()
            await asyncio.wait((task,), timeout=CANCEL_AGAIN_S)

    async def wait(self, wait_s: float) -> None:
        """Wait until something was asked, at most ``wait_s`` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._asked.wait()
        self._asked.clear()

    async def _watch(self, database: Database) -> None:
        while True:
            try:
                async with await database.watch(_ASKED) as stream:
                    self.working = True
                    async for _ in stream:
                        self._asked.set()
            except PyMongoError:
                self.working = False  # it broke, or this server has none: polling is enough
            await asyncio.sleep(RETRY_S)
