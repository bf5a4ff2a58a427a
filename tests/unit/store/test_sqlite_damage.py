"""A damaged store is refused, named and left as it is; it is never half read."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from reshape_controller.core.record import LogRecord
from reshape_controller.store.protocol import InboxItem, StoreCorrupt, StoreError
from reshape_controller.store.sqlite.store import SqliteStore
from tests.support.store_values import changes, job_row, records

RECORDS = records(40)


def make(path: Path, *, snapshot: int | None = None) -> None:
    """A store with records 1 to 40, some projections and a request; cleanly closed."""

    async def main() -> None:
        store = SqliteStore(path)
        await store.open()
        for each in RECORDS:
            await store.append(each)
            await store.project(changes(each.seq, job_row(each.seq, each.seq)))
        if snapshot is not None:
            await store.write_snapshot(snapshot, ("the state", "of then"))
        await store.put_request(InboxItem("waiting", "cancel", "{}"))
        await store.close()

    asyncio.run(main())


def read(path: Path) -> list[LogRecord]:
    """Everything that a controller would read at its start: from the newest snapshot on."""

    async def main() -> list[LogRecord]:
        store = SqliteStore(path)
        await store.open()
        try:
            snapshot = await store.latest_snapshot()
            return [each async for each in store.read(snapshot[0] if snapshot else 0)]
        finally:
            await store.close()

    return asyncio.run(main())


def state_of(folder: Path) -> dict[str, bytes]:
    """What lies in the folder, but for the lock and SQLite's shared memory (it holds no data)."""
    return {
        file.name: file.read_bytes()
        for file in sorted(folder.iterdir())
        if not file.name.endswith((".lock", "-shm"))
    }


def edit(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


@pytest.mark.parametrize(
    ("statement", "good", "what"),
    [
        (
            "UPDATE log SET body = replace(body, '\"epoch\":1', '\"epoch\":2') WHERE seq = 12",
            11,
            "record 12",
        ),
        ("UPDATE log SET digest = lower(hex(randomblob(32))) WHERE seq = 40", 39, "checksum"),
        ("UPDATE log SET digest = x'ff' WHERE seq = 5", 4, "checksum"),
        ("DELETE FROM log WHERE seq = 20", 19, "record 20 of the log is missing"),
        ("DELETE FROM log WHERE seq < 3", 0, "record 1 of the log is missing"),
        ("DROP INDEX history_by_job", 40, "history_by_job is missing or altered"),
        ("DROP TABLE decisions", 40, "decisions is missing or altered"),
    ],
)
def test_what_somebody_changed_by_hand_is_found_at_the_start(
    tmp_path: Path, statement: str, good: int, what: str
) -> None:
    path = tmp_path / "reshape.db"
    make(path)
    edit(path, statement)
    before = state_of(tmp_path)
    with pytest.raises(StoreCorrupt, match=what) as caught:
        read(path)
    error = caught.value
    assert (error.location, error.last_good_seq) == (str(path), good)
    assert f"reshape db recover {path}" in str(error)
    assert f"last good seq {good}" in str(error)
    assert state_of(tmp_path) == before


@pytest.mark.parametrize(
    ("statement", "good"),
    [
        ("UPDATE snapshots SET body = 'another state' WHERE part = 1", 40),
        ("DELETE FROM log WHERE seq = 30", 29),
        ("DELETE FROM log WHERE seq >= 30", 29),
        ("UPDATE log SET body = replace(body, '\"epoch\":1', '\"epoch\":2') WHERE seq = 31", 30),
    ],
)
def test_the_snapshot_and_what_follows_it_are_verified_at_the_start(
    tmp_path: Path, statement: str, good: int
) -> None:
    path = tmp_path / "reshape.db"
    make(path, snapshot=30)
    assert [each.seq for each in read(path)] == list(range(31, 41))
    edit(path, statement)
    with pytest.raises(StoreCorrupt) as caught:
        read(path)
    assert caught.value.last_good_seq == good


def _no_database(path: Path) -> None:
    path.write_bytes(b"This is no database, whatever its name says.\n" * 200)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 + 17])


def _header_gone(path: Path) -> None:
    path.write_bytes(bytes(100) + path.read_bytes()[100:])


def _first_page_only(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:4096])


@pytest.mark.parametrize("damage", [_no_database, _empty, _half, _header_gone, _first_page_only])
def test_a_file_that_is_no_database_any_more_is_refused_and_left_alone(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    path = tmp_path / "reshape.db"
    make(path)
    damage(path)
    before = state_of(tmp_path)
    with pytest.raises(StoreCorrupt, match="reshape db recover"):
        read(path)
    assert state_of(tmp_path) == before


def test_a_file_of_another_program_is_not_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "reshape.db"
    path.touch(mode=0o600)
    edit(path, "CREATE TABLE recipes (name TEXT)")
    before = state_of(tmp_path)
    with pytest.raises(StoreError, match="is not a Reshape store; remedy: name another") as caught:
        read(path)
    assert not isinstance(caught.value, StoreCorrupt)
    assert state_of(tmp_path) == before


@pytest.mark.parametrize(("version", "age"), [(3, "a newer"), (0, "another")])
def test_a_file_of_another_version_is_refused_with_both_versions(
    tmp_path: Path, version: int, age: str
) -> None:
    path = tmp_path / "reshape.db"
    make(path)
    edit(path, f"PRAGMA user_version={version}")
    before = state_of(tmp_path)
    with pytest.raises(StoreError, match=rf"{age} Reshape \(schema {version}") as caught:
        read(path)
    assert not isinstance(caught.value, StoreCorrupt)
    assert state_of(tmp_path) == before


def test_somebodys_own_view_beside_our_tables_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "reshape.db"
    make(path)
    edit(path, "CREATE VIEW mine AS SELECT id, state FROM jobs")
    assert read(path) == list(RECORDS)


def test_whatever_bytes_are_flipped_the_log_is_refused_or_read_as_it_was(tmp_path: Path) -> None:
    """Hundreds of places, pages of every kind: never a changed record, never another error."""
    whole = tmp_path / "whole.db"
    make(whole, snapshot=10)
    intact = whole.read_bytes()
    dice = random.Random(20240607)
    refused = 0
    for number in range(600):
        folder = tmp_path / "copy"
        folder.mkdir(mode=0o700)
        path = folder / "reshape.db"
        damaged = bytearray(intact)
        begin = dice.randrange(len(damaged))
        for place in range(begin, min(begin + dice.choice((1, 1, 8, 64)), len(damaged))):
            damaged[place] ^= 1 << dice.randrange(8)
        path.write_bytes(damaged)
        path.chmod(0o600)
        try:
            found = read(path)
        except StoreError as error:
            refused += 1
            outcome = str(path) in str(error) and path.read_bytes() == bytes(damaged)
        else:
            outcome = found == list(RECORDS[10:])
        assert outcome, f"flip {number} at {begin}"
        shutil.rmtree(folder)
    assert refused > 50


def test_a_damaged_write_ahead_log_never_gives_a_changed_or_misplaced_record(
    tmp_path: Path,
) -> None:
    """SQLite stops at the first damaged frame: what follows is lost, and that cannot be told from
    a crash. So a prefix may be read; a running controller notices it (StoreBehind)."""
    live = tmp_path / "live"
    live.mkdir(mode=0o700)

    async def write() -> None:
        store = SqliteStore(live / "reshape.db")
        await store.open()
        for each in RECORDS:
            await store.append(each)
        shutil.copytree(live, tmp_path / "crashed")  # as a power cut would leave it
        await store.close()

    asyncio.run(write())
    intact = {f.name: f.read_bytes() for f in (tmp_path / "crashed").iterdir()}
    wal = intact["reshape.db-wal"]
    assert len(wal) > 40 * 4096
    dice = random.Random(7)
    lengths = set()
    for number in range(40):
        folder = tmp_path / "copy"
        folder.mkdir(mode=0o700)
        damaged = bytearray(wal)
        place = dice.randrange(len(damaged)) if number else len(damaged) - 1
        if number % 3 == 0 and number:
            del damaged[place:]
        else:
            damaged[place] ^= 1 << dice.randrange(8)
        (folder / "reshape.db").write_bytes(intact["reshape.db"])
        (folder / "reshape.db-wal").write_bytes(damaged)
        for file in folder.iterdir():
            file.chmod(0o600)
        found = read(folder / "reshape.db")
        assert found == list(RECORDS[: len(found)]), f"damage {number} at {place}"
        lengths.add(len(found))
        shutil.rmtree(folder)
    assert len(lengths) > 5
