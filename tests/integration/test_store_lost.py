"""A store that lost what was acknowledged stops the daemon; it is not retried."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.model import GpuId, HostId
from reshape_controller.live.clock import WallClock
from reshape_controller.live.loop import Loop, Settings
from reshape_controller.store.protocol import StoreBehind
from reshape_controller.store.sqlite.store import SqliteStore
from tests.support.live_fakes import Nothing


def test_a_store_behind_what_was_acknowledged_stops_the_loop_with_both_seqs(
    tmp_path: Path,
) -> None:
    path = tmp_path / "reshape.db"

    async def main() -> None:
        store = SqliteStore(path)
        await store.open()
        loop = Loop(store, Settings(Nothing()), WallClock())
        await loop.start(Nothing())
        running = asyncio.create_task(loop.run())
        try:
            await loop.commit(ev.HostAdded(HostId("h"), "V100", (GpuId("g"),)))
            last = loop.journal.seq
            with closing(sqlite3.connect(path)) as somebody, somebody:
                somebody.execute("DELETE FROM log WHERE seq = ?", (last,))
            loop.post(ev.HostDrained(HostId("h")))
            with pytest.raises(StoreBehind, match=rf"ends at seq {last - 1}, but seq {last} was"):
                await asyncio.wait_for(running, 30)
            assert f"seq {last} was acknowledged" in loop.problem
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await store.close()

    asyncio.run(main())
