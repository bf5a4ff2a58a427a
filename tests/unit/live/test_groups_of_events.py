"""Events that belong together are in one append, whatever is queued around them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from reshape_controller.core import events as ev
from reshape_controller.core.limits import BATCH_EVENTS_MAX
from reshape_controller.core.model import JobId, Mechanism
from reshape_controller.live.clock import WallClock
from reshape_controller.live.loop import Loop, Settings
from reshape_controller.policies import make_policy
from reshape_controller.store.sqlite.store import SqliteStore


def events(count: int, name: str) -> list[ev.Event]:
    return [ev.SideCarFellSilent(JobId(name), number) for number in range(count)]


def test_a_batch_without_room_for_a_group_ends_before_it(tmp_path: Path) -> None:
    async def test() -> None:
        store = SqliteStore(tmp_path / "store.sqlite")
        loop = Loop(store, Settings(make_policy("adaptive"), Mechanism.SIDECAR), WallClock())
        for event in events(300, "before"):
            loop.post(event)
        waits = asyncio.create_task(loop.commit(*events(BATCH_EVENTS_MAX - 100, "group")))
        await asyncio.sleep(0)
        for event in events(300, "after"):
            loop.post(event)
        batches = []
        while loop._queue:
            batches.append([entry.event for entry in loop._drain(0.0)])
        assert [len(batch) for batch in batches] == [300, BATCH_EVENTS_MAX, 200]
        assert batches[1][: BATCH_EVENTS_MAX - 100] == events(BATCH_EVENTS_MAX - 100, "group")
        waits.cancel()

    asyncio.run(test())
