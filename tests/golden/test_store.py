"""A store that a real daemon of 25 November 2026 (commit a1ec80c) wrote: this version opens it."""

from __future__ import annotations

import asyncio
import json
import lzma
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reshape_controller.core.state import State
from reshape_controller.live.audit import audit
from reshape_controller.live.recovery import recover
from reshape_controller.store.digest import body_of, record_of
from reshape_controller.store.sqlite.store import SqliteStore
from reshape_sidecar import codec
from tests.golden.sentences import without_sentences

PACKED = Path(__file__).with_name("store.sqlite.xz")
EXPECTED = Path(__file__).with_name("store.json")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    unpacked = tmp_path / "store.sqlite"
    unpacked.write_bytes(lzma.decompress(PACKED.read_bytes()))
    unpacked.chmod(0o600)
    return unpacked


async def contents(store: SqliteStore) -> dict[str, Any]:
    """Read the rows that users and the next start read, as ``store.json`` has them."""
    snapshot = await store.latest_snapshot()
    assert snapshot is not None
    return {
        "last_seq": await store.last_seq(),
        "snapshot": [snapshot[0], len(snapshot[1])],
        "jobs": [
            {
                "id": row.id,
                "state": row.state.value,
                "seq": row.seq,
                "size": len(row.job.gpus) if row.job is not None else 0,
                "attempt": row.job.attempt if row.job is not None else 0,
                "user": row.user,
            }
            for row in (await store.jobs()).rows
        ],
        "gpus": [[gpu.id, gpu.state.value, gpu.owner] for gpu in await store.gpus()],
        "hosts": [host.id for host in await store.hosts()],
        "history": len(await store.history(None)),
        "decisions": len(await store.decisions(None)),
        "profiles": [row.job_type for row in await store.profiles()],
        "requests": [[item.id, item.kind, item.body] for item in await store.requests(10)],
    }


SENTENCES = ("text", "reason", "note", "refused")


async def figures(store: SqliteStore) -> Any:
    """Every row that people see, without its sentences."""
    rows = (
        *(await store.jobs()).rows,
        *await store.gpus(),
        *await store.hosts(),
        *await store.history(None),
        *await store.decisions(None),
        *await store.profiles(),
    )
    return [without_sentences(codec.to_value(row), SENTENCES) for row in rows]


def opened(path: Path) -> dict[str, Any]:
    async def work() -> dict[str, Any]:
        store = SqliteStore(path)
        await store.open()
        try:
            return await contents(store)
        finally:
            await store.close()

    return asyncio.run(work())


def test_an_older_store_lists_its_jobs_and_requests(path: Path) -> None:
    expected = json.loads(EXPECTED.read_text())
    states = {job["state"] for job in expected["jobs"]}
    assert {"cancelled", "completed", "failed", "halted", "running", "submitted"} <= states
    assert opened(path) == expected


def test_an_older_store_is_recovered_with_every_live_job_as_it_was(path: Path) -> None:
    async def work() -> None:
        store = SqliteStore(path)
        await store.open()
        try:
            found = await recover(store)
            assert found.mismatches == ()
            assert 0 < found.snapshot_seq <= found.seq == await store.last_seq()
            live = {job.id: job for job in found.engine.state.jobs.values()}
            rows = {row.id: row.job for row in (await store.jobs()).rows if row.id in live}
            assert rows == live
        finally:
            await store.close()

    asyncio.run(work())


def test_rows_of_an_older_store_differ_from_the_log_in_their_sentences_alone(path: Path) -> None:
    """The first check after an upgrade writes them in the words of the version that runs."""

    async def work() -> None:
        store = SqliteStore(path)
        await store.open()
        try:
            before = await figures(store)
            found = await audit(store, repair=True)
            assert found.extra_count == 0
            assert await figures(store) == before
            assert (await audit(store, repair=False)).sound
        finally:
            await store.close()

    asyncio.run(work())


def test_every_record_of_an_older_store_is_written_as_it_was(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        bodies = [body for (body,) in connection.execute("SELECT body FROM log ORDER BY seq")]
    assert len(bodies) > 50
    for body in bodies:
        assert body_of(record_of(body.encode(), "")).decode() == body


def test_a_snapshot_of_an_older_store_is_written_as_it_was(path: Path) -> None:
    async def work() -> None:
        store = SqliteStore(path)
        await store.open()
        try:
            _, parts = await store.latest_snapshot() or (0, ())
            assert parts == State.load(parts).dump()
        finally:
            await store.close()

    asyncio.run(work())
