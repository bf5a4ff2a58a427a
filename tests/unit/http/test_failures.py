"""The failures of the last day are found in the history, read back from its end."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reshape_controller.core.model import JobState
from reshape_controller.core.record import HistoryEntry
from reshape_controller.http import history_parts as module
from reshape_controller.http.failures import DayEnds
from reshape_controller.http.timeline import TimelineReader
from reshape_controller.store.protocol import Changes
from reshape_controller.store.sqlite.store import SqliteStore
from tests.support.store_values import job_row


class GapReader(TimelineReader):
    """Remembers no record, as after a long time without a reader."""

    async def changes(self, *_: Any) -> None:
        return None


class WatchedStore(SqliteStore):
    """Notes which parts of the history are read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.parts: list[tuple[int, int]] = []

    async def history_between(self, after_seq: int, up_to_seq: int) -> Any:
        self.parts.append((after_seq, up_to_seq))
        return await super().history_between(after_seq, up_to_seq)


async def fails(store: SqliteStore, seq: int, at_s: float) -> None:
    """Let the job of this number fail."""
    row = job_row(seq, seq, state=JobState.FAILED)
    assert row.job is not None
    row = replace(row, job=replace(row.job, finished_at_s=at_s))
    entry = HistoryEntry(row.id, at_s, "failed", "no such layer")
    await store.project(Changes(seq, at_s, (row,), history=(entry,)))


def test_a_gap_is_read_back_from_its_end_and_nothing_older_than_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RECORDS", 1)
    monkeypatch.setattr(module, "RECORDS_MAX", 1)

    async def test() -> None:
        store, timeline, failures = (
            WatchedStore(tmp_path / "s"),
            GapReader(),
            DayEnds(),
        )
        await store.open()
        for seq, at_s in enumerate((10.0, 20.0, 30.0, 200.0, 300.0), 1):
            await fails(store, seq, at_s)
        found = await failures.read(store, timeline, 5, 150.0)
        assert [line.at_s for line in found] == [300.0, 200.0]
        assert store.parts == [(4, 5), (3, 4), (2, 3)], "an older one ends it"
        store.parts.clear()
        await fails(store, 6, 400.0)
        await fails(store, 7, 500.0)
        found = await failures.read(store, timeline, 7, 250.0)
        assert [line.at_s for line in found] == [500.0, 400.0, 300.0]
        assert store.parts == [(6, 7), (5, 6)], "the gap alone"
        await store.close()

    asyncio.run(test())
