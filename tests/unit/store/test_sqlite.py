"""What is particular to the SQLite store: its file, its settings, its errors."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from reshape_controller.core.events import ProfileRecorded
from reshape_controller.core.record import LogRecord
from reshape_controller.core.state import State
from reshape_controller.live import recovery
from reshape_controller.store.digest import body_of, digest_of, seal
from reshape_controller.store.protocol import InboxItem, StoreError
from reshape_controller.store.sqlite import file as sqlite_file
from reshape_controller.store.sqlite.recover import check, recover
from reshape_controller.store.sqlite.store import SqliteStore
from tests.support import store_bed
from tests.support.store_bed import fill
from tests.support.store_values import changes, job_row, profile_row, record, records


def run(path: Path, work: Callable[[SqliteStore], Awaitable[None]]) -> None:
    """Open the store, do the work, close it."""
    store_bed.run(lambda: SqliteStore(path), work)


@contextmanager
def outside(path: Path) -> Iterator[sqlite3.Connection]:
    """Another program's connection."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=5)) as connection:
        yield connection


def test_commits_are_synced_to_a_write_ahead_log_and_files_are_private(tmp_path: Path) -> None:
    path = tmp_path / "s" / "reshape.db"

    async def work(store: SqliteStore) -> None:
        await store.append(record(1))
        connection = store._connected  # its settings are per connection
        (synchronous,) = await store._on(lambda c: c.execute("PRAGMA synchronous").fetchone())
        (mode,) = await store._on(lambda c: c.execute("PRAGMA journal_mode").fetchone())
        assert (synchronous, mode) == (2, "wal")
        assert connection is not None
        files = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
        names = ("reshape.db", "reshape.db-wal", "reshape.db-shm", "reshape.db.lock")
        assert files == dict.fromkeys(names, 0o600)

    run(path, work)
    assert sorted(file.name for file in path.parent.iterdir()) == ["reshape.db", "reshape.db.lock"]


def test_a_file_that_cannot_be_synced_as_asked_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A database in memory has no write-ahead log: SQLite says so only when it is asked.
    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *_, **k: real(":memory:"))
    with pytest.raises(StoreError, match=r"journal_mode=memory.*instead of wal"):
        sqlite_file.connect(tmp_path / "reshape.db")


def test_a_second_controller_is_kept_out(tmp_path: Path) -> None:
    path = tmp_path / "reshape.db"

    async def work(store: SqliteStore) -> None:
        await store.append(record(1))
        second = SqliteStore(path)
        with pytest.raises(StoreError, match=r"another controller has it open \(pid \d+\)"):
            await second.open()
        assert await store.last_seq() == 1

    run(path, work)


def test_a_user_may_insert_a_request_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "reshape.db"

    async def work(store: SqliteStore) -> None:
        await store.put_request(InboxItem("first", "cancel", "{}"))
        with outside(path) as user:
            user.execute("INSERT INTO inbox (kind, body) VALUES ('submit', '{\"name\": 1}')")
        first, second = await store.requests(10)
        assert first.id == "first"
        assert (second.kind, second.body, len(second.id)) == ("submit", '{"name": 1}', 32)
        await store.acknowledge((second.id,))
        assert await store.requests(10) == (first,)

    run(path, work)


@pytest.mark.parametrize(
    "values",
    [
        ("id, kind, body", "'', 'submit', '{}'"),
        ("id, kind, body", "x'ff', 'submit', '{}'"),
        ("id, kind, body", "CAST(x'ff' AS TEXT), 'submit', '{}'"),
        ("kind, body", "'submit', NULL"),
        ("kind, body", "'submit', x'00'"),
        ("kind, body", "'submit', printf('%.1048577c', 'x')"),
        ("kind, body", "printf('%.65c', 'x'), '{}'"),
    ],
)
def test_a_plain_insert_that_could_never_be_answered_is_refused_at_once(
    tmp_path: Path, values: tuple[str, str]
) -> None:
    path = tmp_path / "reshape.db"

    async def work(store: SqliteStore) -> None:
        with outside(path) as user, pytest.raises(sqlite3.IntegrityError):
            user.execute(f"INSERT INTO inbox ({values[0]}) VALUES ({values[1]})")
        assert await store.requests(10) == ()

    run(path, work)


def test_a_plain_insert_of_bytes_that_are_no_text_is_handed_out_and_can_be_acknowledged(
    tmp_path: Path,
) -> None:
    path = tmp_path / "reshape.db"

    async def work(store: SqliteStore) -> None:
        with outside(path) as user:
            user.execute("INSERT INTO inbox (kind, body) VALUES ('s', CAST(x'7bff' AS TEXT))")
        (item,) = await store.requests(10)
        assert item.body == "{�"
        await store.acknowledge((item.id,))
        assert await store.requests(10) == ()

    run(path, work)


def test_an_api_request_that_breaks_the_schema_says_what_is_wrong(tmp_path: Path) -> None:
    async def work(store: SqliteStore) -> None:
        with pytest.raises(StoreError, match="value violates the schema"):
            await store.put_request(InboxItem("", "submit", "{}"))

    run(tmp_path / "reshape.db", work)


def test_only_the_last_two_snapshots_are_kept_and_a_torn_one_does_not_count(
    tmp_path: Path,
) -> None:
    path = tmp_path / "reshape.db"
    torn = "INSERT INTO snapshots VALUES (?, 0, 2, 'digest', 'half of it')"

    async def write(store: SqliteStore) -> None:
        await fill(store, records(6))
        with outside(path) as user:
            user.execute(torn, (1,))
            user.execute(torn, (6,))
        for seq in (2, 3, 4):
            await store.write_snapshot(seq, (f"a{seq}", f"b{seq}"))
        with outside(path) as user:
            kept = user.execute("SELECT DISTINCT seq FROM snapshots ORDER BY seq").fetchall()
        assert kept == [(3,), (4,), (6,)]

    async def work(store: SqliteStore) -> None:
        assert await store.latest_snapshot() == (4, ("a4", "b4"))
        await store.write_snapshot(6, ("whole",))
        assert await store.latest_snapshot() == (6, ("whole",))

    run(path, write)
    run(path, work)


def test_a_lock_held_by_another_program_is_an_error_that_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "BUSY_TIMEOUT_S", 0.05)
    path = tmp_path / "reshape.db"

    async def work(store: SqliteStore) -> None:
        with outside(path) as user:
            user.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match=r"locked; remedy: end that program's tran"):
                await store.append(record(1))
            user.execute("ROLLBACK")
        await store.append(record(1))
        assert await store.last_seq() == 1

    run(path, work)


def test_a_long_write_elsewhere_does_not_stop_the_event_loop(tmp_path: Path) -> None:
    path = tmp_path / "reshape.db"

    async def work(store: SqliteStore) -> None:
        with outside(path) as user:
            user.execute("BEGIN IMMEDIATE")
            append = asyncio.create_task(store.append(record(1)))
            turns, begin = 0, time.monotonic()
            while time.monotonic() - begin < 0.3:
                await asyncio.sleep(0.005)
                turns += 1
            assert not append.done()
            assert turns > 5
            user.execute("ROLLBACK")
        await append

    run(path, work)


def test_a_file_that_was_moved_away_takes_no_more_records(tmp_path: Path) -> None:
    path = tmp_path / "reshape.db"

    async def work(store: SqliteStore) -> None:
        first, second = records(2)
        await store.append(first)
        path.rename(tmp_path / "elsewhere")
        with pytest.raises(StoreError, match="was moved, removed or replaced"):
            await store.append(second)
        (tmp_path / "elsewhere").rename(path)
        await store.append(second)

    run(path, work)


def test_a_full_disk_loses_nothing_and_work_goes_on_when_there_is_space(tmp_path: Path) -> None:
    path = tmp_path / "reshape.db"

    async def work(store: SqliteStore) -> None:
        (pages,) = await store._on(lambda c: c.execute("PRAGMA page_count").fetchone())
        await store._on(lambda c: c.execute(f"PRAGMA max_page_count={pages + 4}").fetchone())
        first = record(1)
        await store.append(first)
        large = record(2, first.digest, size=100_000)
        with pytest.raises(StoreError, match=r"disk is full; remedy: free space"):
            await store.append(large)
        assert await store.last_seq() == 1
        await store._on(lambda c: c.execute("PRAGMA max_page_count=1000000").fetchone())
        await store.append(large)
        assert [found.seq async for found in store.read(0)] == [1, 2]

    run(path, work)


def test_a_write_that_the_system_refuses_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    # RLIMIT_FSIZE is the nearest to a failing disk that needs no privileges.
    program = """
import asyncio, resource, sys
from pathlib import Path
from reshape_controller.store.protocol import StoreError
from reshape_controller.store.sqlite.store import SqliteStore
from tests.support.store_values import record

async def main():
    store = SqliteStore(Path(sys.argv[1]))
    await store.open()
    first = record(1)
    await store.append(first)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    large = record(2, first.digest, size=400_000)
    try:
        await store.append(large)
    except StoreError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await store.append(large)
    print([found.seq async for found in store.read(0)])
    await store.close()

asyncio.run(main())
"""
    path = tmp_path / "reshape.db"
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    error, seqs = done.stdout.splitlines()
    assert error.startswith(f"{path}: ")
    assert "remedy" in error
    assert seqs == "[1, 2]"


def test_a_projection_that_cannot_be_read_names_the_command_that_repairs_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "reshape.db"

    async def work(store: SqliteStore) -> None:
        await store.append(record(1))
        await store.project(changes(1, job_row(1, 1)))
        with outside(path) as user:
            user.execute("""UPDATE jobs SET body = '{"type": "JobRow"}'""")
        with pytest.raises(StoreError, match="reshape db check"):
            await store.jobs()
        await store.project(changes(1, job_row(1, 1)))
        assert (await store.jobs()).total == 1

    run(path, work)


def test_a_record_of_another_version_is_not_called_damage(tmp_path: Path) -> None:
    path = tmp_path / "reshape.db"

    async def work(store: SqliteStore) -> None:
        await store.append(record(1))
        body = '{"type":"LogRecord","field_of_tomorrow":1}'
        digest = digest_of(record(1).digest, body.encode())
        with outside(path) as user:
            user.execute("INSERT INTO log VALUES (2, ?, ?)", (digest, body))
        with pytest.raises(StoreError, match="written by another version"):
            [found async for found in store.read(0)]

    run(path, work)


def test_a_record_with_an_unknown_tag_is_refused_with_the_tag_the_place_and_the_remedy(
    tmp_path: Path,
) -> None:
    path = tmp_path / "reshape.db"

    async def work(store: SqliteStore) -> None:
        await store.append(record(1))
        body = body_of(record(2)).decode().replace('"DeadlinesDue"', '"EventOfTomorrow"')
        with outside(path) as user:
            digest = digest_of(record(1).digest, body.encode())
            user.execute("INSERT INTO log VALUES (2, ?, ?)", (digest, body))
        with pytest.raises(StoreError) as caught:
            await recovery.recover(store)
        assert str(caught.value) == (
            f"{path}: record 2 of the log has type 'EventOfTomorrow' at events[0], which this "
            "version does not know: a newer version wrote it; nothing was changed; "
            "remedy: start that version, or restore the backup from before it"
        )

    run(path, work)


def test_a_snapshot_with_an_unknown_tag_is_refused_with_the_tag_and_the_remedy(
    tmp_path: Path,
) -> None:
    path = tmp_path / "reshape.db"

    async def work(store: SqliteStore) -> None:
        await store.append(record(1))
        (head,) = State().dump()
        await store.write_snapshot(1, (head, '{"type":"RowOfTomorrow"}'))
        with pytest.raises(StoreError, match=r"snapshot 1 of the store has type 'RowOfTomorrow'"):
            await recovery.recover(store)

    run(path, work)


def test_a_log_without_its_database_is_not_played_into_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "reshape.db"
    stray = tmp_path / "reshape.db-wal"
    stray.write_bytes(b"somebody removed the database beside me")

    async def main() -> None:
        with pytest.raises(StoreError, match=r"its write-ahead log .* exists; remedy"):
            await SqliteStore(path).open()

    asyncio.run(main())
    assert not path.exists()
    assert stray.read_bytes() == b"somebody removed the database beside me"


def as_version_1(path: Path) -> None:
    """Turn a store into one that the first schema made."""
    with outside(path) as user:
        user.executescript("DROP TABLE profiles; PRAGMA user_version=1;")
    user.close()


def test_a_store_of_the_first_schema_is_brought_up_to_this_one_and_keeps_everything(
    tmp_path: Path,
) -> None:
    path = tmp_path / "reshape.db"
    run(path, lambda store: fill(store, records(3)))
    as_version_1(path)

    async def work(store: SqliteStore) -> None:
        assert [each.seq async for each in store.read(0)] == [1, 2, 3]
        await store.project(changes(3, job_row(1, 3)))
        assert await store.profiles() == changes(3).profiles

    run(path, work)
    assert check(path).problems == ()


def test_a_damaged_store_of_the_first_schema_is_recovered(tmp_path: Path) -> None:
    path, into = tmp_path / "reshape.db", tmp_path / "new.db"
    run(path, lambda store: fill(store, records(3)))
    as_version_1(path)
    assert recover(path, into).last_seq == 3
    assert check(into).problems == ()


def test_what_is_known_of_job_types_is_shown_again_at_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "reshape.db"
    wanted = profile_row("resnet", 1).profile
    assert wanted is not None

    async def work(store: SqliteStore) -> None:
        event = ProfileRecorded(wanted)
        await store.append(seal("", LogRecord(1, 1, "w", "paper", 1.0, (event,), (), (), "")))
        await recovery.recover(store)
        assert [row.profile for row in await store.profiles()] == [wanted]

    async def again(store: SqliteStore) -> None:
        assert await store.profiles() == ()
        await recovery.recover(store)
        assert [row.profile for row in await store.profiles()] == [wanted]

    run(path, work)
    as_version_1(path)
    run(path, again)


ODD_IDS = ("x'fffe'", "CAST(x'ff41' AS TEXT)", "7", "1.5", "'a' || char(0) || 'b'", "''", "NULL",
           "replace(hex(zeroblob(100000)), '00', 'a')", "'job key'", "'../x'")  # fmt: skip


@pytest.mark.parametrize("identity", ODD_IDS)
def test_an_insert_with_an_odd_id_is_refused_by_the_file_or_taken_and_gone(
    tmp_path: Path, identity: str
) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "store.sqlite")
        await store.open()
        with closing(sqlite3.connect(tmp_path / "store.sqlite")) as user:
            with contextlib.suppress(sqlite3.IntegrityError), user:
                user.execute(f"INSERT INTO inbox (id, kind, body) VALUES ({identity}, 'x', '{{}}')")
            items = await store.requests(10)
            assert all(isinstance(item.id, str) for item in items)
            await store.acknowledge(tuple(item.id for item in items))
            assert user.execute("SELECT count(*) FROM inbox").fetchone() == (0,)
        await store.close()

    asyncio.run(scenario())
