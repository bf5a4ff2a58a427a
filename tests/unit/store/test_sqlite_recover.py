"""What can be saved from a damaged store is saved, in a new file, and nothing is claimed beyond."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from reshape_controller.core.record import LogRecord
from reshape_controller.store.protocol import InboxItem, StoreCorrupt, StoreError
from reshape_controller.store.sqlite.recover import check, recover
from reshape_controller.store.sqlite.store import SqliteStore
from tests.support.store_values import changes, job_row, records

T = TypeVar("T")
RECORDS = records(40)
REQUEST = InboxItem("waiting", "cancel", '{"job": "ä"}')


def make(path: Path, *, snapshot: int | None = None) -> None:
    """A cleanly closed store with 40 records, their projections and a request."""

    async def main() -> None:
        store = SqliteStore(path)
        await store.open()
        for each in RECORDS:
            await store.append(each)
            await store.project(changes(each.seq, job_row(each.seq, each.seq)))
            if each.seq == snapshot:
                await store.write_snapshot(snapshot, ("the state", "of then"))
        await store.put_request(REQUEST)
        await store.close()

    asyncio.run(main())


def edit(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def contents(path: Path) -> tuple[list[LogRecord], object, int, tuple[InboxItem, ...]]:
    """Log from the newest snapshot on, the snapshot, the projections' stamp, the inbox."""

    async def main() -> tuple[list[LogRecord], object, int, tuple[InboxItem, ...]]:
        store = SqliteStore(path)
        await store.open()
        try:
            snapshot = await store.latest_snapshot()
            log = [each async for each in store.read(snapshot[0] if snapshot else 0)]
            return log, snapshot, await store.projected_seq(), await store.requests(10)
        finally:
            await store.close()

    return asyncio.run(main())


def test_a_whole_store_has_no_problems(tmp_path: Path) -> None:
    path = tmp_path / "reshape.db"
    make(path, snapshot=20)
    found = check(path)
    assert (found.first_seq, found.last_good_seq, found.requests) == (1, 40, 1)
    assert found.problems == ()


def test_a_store_can_be_checked_while_a_controller_uses_it(tmp_path: Path) -> None:
    path = tmp_path / "reshape.db"

    async def main() -> None:
        store = SqliteStore(path)
        await store.open()
        await store.append(RECORDS[0])
        assert (check(path).last_good_seq, check(path).problems) == (1, ())
        await store.append(RECORDS[1])
        await store.close()

    asyncio.run(main())
    assert check(path).last_good_seq == 2


@pytest.mark.parametrize(
    ("statement", "good", "problem"),
    [
        ("DELETE FROM log WHERE seq = 20", 19, "record 20 of the log is missing"),
        ("UPDATE log SET digest = 'x' WHERE seq = 7", 6, "record 7 of the log does not match"),
        ("UPDATE snapshots SET body = 'x' WHERE part = 0", 40, "snapshot 20 part 0 is damaged"),
        ("UPDATE meta SET value = 41", 40, "show records that are not in the log"),
        ("DROP TABLE gpus", 40, "gpus is missing"),
    ],
)
def test_a_check_names_what_is_wrong_and_where(
    tmp_path: Path, statement: str, good: int, problem: str
) -> None:
    path = tmp_path / "reshape.db"
    make(path, snapshot=20)
    edit(path, statement)
    before = path.read_bytes()
    found = check(path)
    assert found.last_good_seq == good
    assert any(problem in each for each in found.problems)
    assert path.read_bytes() == before


def test_the_readable_beginning_of_a_log_and_the_inbox_are_recovered(tmp_path: Path) -> None:
    path, into = tmp_path / "reshape.db", tmp_path / "new" / "saved.db"
    make(path)
    edit(path, "UPDATE log SET body = replace(body, 'w', 'v') WHERE seq = 30")
    before = path.read_bytes()
    with pytest.raises(StoreCorrupt):
        contents(path)
    found = recover(path, into)
    assert (found.into, found.first_seq, found.last_seq, found.requests) == (into, 1, 29, 1)
    assert "record 30 of the log does not match its checksum" in found.lost
    assert contents(into) == (list(RECORDS[:29]), None, 0, (REQUEST,))
    assert check(into).problems == ()
    assert path.read_bytes() == before


def test_a_recovered_store_takes_the_next_record(tmp_path: Path) -> None:
    path, into = tmp_path / "reshape.db", tmp_path / "saved.db"
    make(path)
    edit(path, "DELETE FROM log WHERE seq > 29")
    recover(path, into)

    async def main() -> None:
        store = SqliteStore(into)
        await store.open()
        await store.append(RECORDS[29])
        assert await store.last_seq() == 30
        await store.close()

    asyncio.run(main())


def test_damage_before_a_snapshot_costs_nothing_that_a_controller_needs(tmp_path: Path) -> None:
    path, into = tmp_path / "reshape.db", tmp_path / "saved.db"
    make(path, snapshot=20)
    edit(path, "UPDATE log SET body = 'gone' WHERE seq = 5")
    found = recover(path, into)
    assert (found.first_seq, found.last_seq, found.requests, found.lost) == (19, 40, 1, "")
    log, snapshot, projected, requests = contents(into)
    assert log == list(RECORDS[20:])
    assert snapshot == (20, ("the state", "of then"))
    assert (projected, requests) == (20, (REQUEST,))
    checked = check(into)
    assert (checked.first_seq, checked.last_good_seq, checked.problems) == (19, 40, ())

    async def main() -> None:
        store = SqliteStore(into)
        await store.open()
        # A controller takes the digest from the snapshot's own record.
        assert [each.seq async for each in store.read(19)] == list(range(20, 41))
        assert (await store.jobs()).total == 40
        assert len(await store.history(None)) == 80
        await store.close()

    asyncio.run(main())


def test_damage_on_both_sides_of_a_snapshot_recovers_what_lies_between(tmp_path: Path) -> None:
    path, into = tmp_path / "reshape.db", tmp_path / "saved.db"
    make(path, snapshot=20)
    edit(path, "UPDATE log SET body = 'gone' WHERE seq IN (5, 30)")
    found = recover(path, into)
    assert (found.first_seq, found.last_seq) == (19, 29)
    assert contents(into)[0] == list(RECORDS[20:29])


def test_a_whole_store_can_be_copied_by_recovery(tmp_path: Path) -> None:
    path, into = tmp_path / "reshape.db", tmp_path / "saved.db"
    make(path, snapshot=20)
    found = recover(path, into)
    assert (found.first_seq, found.last_seq, found.lost) == (1, 40, "")
    assert contents(into) == (list(RECORDS), None, 0, (REQUEST,))


def test_recovery_overwrites_nothing_and_says_when_there_is_nothing_to_save(
    tmp_path: Path,
) -> None:
    path, into = tmp_path / "reshape.db", tmp_path / "saved.db"
    make(path)
    into.write_text("precious")
    with pytest.raises(StoreError, match="exists already"):
        recover(path, into)
    assert into.read_text() == "precious"
    into.unlink()
    path.write_bytes(b"no database at all" * 1000)
    with pytest.raises(StoreError, match=r"nothing can be read.*backup"):
        recover(path, into)
    with pytest.raises(StoreError, match="does not exist"):
        recover(tmp_path / "absent.db", into)
    with pytest.raises(StoreError, match="does not exist"):
        check(tmp_path / "absent.db")
    assert not into.exists()


def outcome(function: Callable[[], T]) -> T | None:
    """The result; None for an error of the protocol. Any other error fails the test."""
    try:
        return function()
    except StoreError:
        return None


def test_whatever_bytes_are_flipped_recovery_saves_only_what_was_written(tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    make(whole, snapshot=10)
    intact = whole.read_bytes()
    dice = random.Random(11)
    saved = []
    for number in range(150):
        folder = tmp_path / "copy"
        folder.mkdir(mode=0o700)
        path, into = folder / "reshape.db", folder / "saved.db"
        damaged = bytearray(intact)
        # A whole page's worth, so that most hits matter.
        begin = dice.randrange(len(damaged))
        size = dice.choice((1, 64, 4096))
        damaged[begin : begin + size] = dice.randbytes(len(damaged[begin : begin + size]))
        path.write_bytes(damaged)
        outcome(partial(check, path))
        found = outcome(partial(recover, path, into))
        if found is not None:
            log, snapshot, _, requests = contents(into)
            begin_seq = 10 if snapshot is not None else 0
            assert log == list(RECORDS[begin_seq : found.last_seq]), f"damage {number}"
            assert requests in ((), (REQUEST,)) or size < 4096, f"damage {number}"
            assert check(into).problems == (), f"damage {number}"
            saved.append(found.last_seq)
        assert path.read_bytes() == bytes(damaged)
        shutil.rmtree(folder)
    assert len(saved) > 50
    assert 40 in saved
