"""What can be said of, and saved from, an SQLite store that does not open.

Does: ``check`` reads everything there is and names what is wrong; ``recover`` writes what can be
read and proven into a new file. Never: changes the file that it reads. State: none.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from reshape_controller.store.conventions import Damaged
from reshape_controller.store.protocol import StoreError
from reshape_controller.store.sqlite import file, inbox, lock, projections
from reshape_controller.store.sqlite.chain import (
    ERRORS,
    chain,
    complete_snapshots,
    is_damage,
    origin,
    snapshot_parts,
)
from reshape_controller.store.sqlite.log import last_seq, put_snapshot_part, transaction

PROBLEMS_MAX = 20


@dataclass(frozen=True, slots=True)
class Checked:
    """What ``check`` found. No problems: every record, snapshot and page is as it was written."""

    first_seq: int
    """1, or where the log of a recovered file begins; 0 for an empty log."""
    last_good_seq: int
    requests: int
    """Requests that wait in the inbox."""
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Recovered:
    """What ``recover`` wrote: records ``first_seq`` to ``last_seq`` and waiting requests."""

    into: Path
    first_seq: int
    last_seq: int
    requests: int
    lost: str
    """What ended the reading; empty if everything was read."""


def check(path: Path) -> Checked:
    """Read a store whole: pages, chain, snapshots. Takes time; may run beside a controller.

    Raises StoreError if the file is not a store of this version at all.
    """
    with _Source(path) as source:
        problems: list[str] = []
        first, good, requests = 0, 0, 0
        try:
            file.verify_header(source, path)
            rows = source.execute(f"PRAGMA integrity_check({PROBLEMS_MAX})").fetchall()
            problems += [" ".join(str(row).split()) for (row,) in rows if row != "ok"]
            good = origin(source)
            first = good or min(1, last_seq(source))
            for seq, _, _ in chain(source, good):
                good = seq
        except Damaged as damage:
            good = damage.last_good_seq
            problems.append(str(damage))
        except ERRORS as error:
            problems.append(_damage(error))
        try:
            for seq in complete_snapshots(source):
                snapshot_parts(source, seq)
            if projections.projected_seq(source) > good:
                problems.append("the projections show records that are not in the log")
            requests = sum(1 for _ in _inbox(source))
        except Damaged as damage:
            problems.append(str(damage))
        except ERRORS as error:
            problems.append(_damage(error))
    return Checked(first, good, requests, tuple(problems[:PROBLEMS_MAX]))


def recover(path: Path, into: Path) -> Recovered:
    """Write the readable records and requests of ``path`` into the new store ``into``.

    Normally that is the log from its beginning up to the damage; the projections are made again
    from it at the next start. If the damage lies before a snapshot that can be read, and so more
    can be saved, the new log begins just before that snapshot, and projections that can be read
    are copied.
    Raises StoreError if ``into`` exists, or nothing can be read at all.
    """
    if into.exists():
        raise StoreError(f"{into}: exists already; remedy: give a new file")
    lock.prepare(into)
    with _Source(path) as source:
        try:
            file.verify_version(source, path)
            begin, end, lost = _longest(source)
        except (Damaged, *ERRORS) as error:
            raise StoreError(
                f"{path}: nothing can be read ({error}); remedy: restore a backup"
            ) from None
        requests = 0

        def fill(target: sqlite3.Connection) -> None:
            nonlocal requests
            with transaction(target):
                _copy_log(source, target, begin, end)
                requests = _copy(target, _INBOX_INTO, _inbox(source))
            if begin:
                _copy_snapshot(source, target, begin + 1)
                _copy_projections(source, target, begin + 1, end)

        file.create(into, fill)
    return Recovered(into, begin or min(1, end), end, requests, lost)


_INBOX_INTO = "INSERT OR IGNORE INTO inbox (id, kind, body) VALUES (?, ?, ?)"
_PROJECTIONS = ("jobs", "gpus", "hosts", "history", "decisions", "decision_jobs", "profiles")


class _Source:
    """The file to read, closed at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> sqlite3.Connection:
        if not self._path.is_file():
            raise StoreError(f"{self._path}: does not exist; remedy: give the store's file")
        try:
            self._connection = file.connect_readonly(self._path)
        except (sqlite3.Error, OSError) as error:
            raise StoreError(
                f"{self._path}: cannot be opened ({error}); remedy: make it readable"
            ) from None
        return self._connection

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._connection.close()
        if isinstance(error, ERRORS):
            raise StoreError(
                f"{self._path}: cannot be read now ({error}); remedy: check its disk"
            ) from None


def _longest(source: sqlite3.Connection) -> tuple[int, int, str]:
    """After which seq the best readable run begins, its last seq, and what ended it.

    A run begins at the log's beginning, or with the record before a readable snapshot, whose
    digest proves the snapshot's own record. The log's beginning wins where both reach as far.
    """
    runs = []
    for begin in (0, *(seq - 1 for seq in _readable_snapshots(source) if seq > 2)):
        end, lost = begin, ""
        try:
            for seq, _, _ in chain(source, begin):
                end = seq
        except Damaged as damage:
            lost = str(damage)
        if begin == 0 or end > begin:
            runs.append((begin, end, lost))
    return max(runs, key=lambda run: (run[1], -run[0]))


def _readable_snapshots(source: sqlite3.Connection) -> tuple[int, ...]:
    found = []
    try:
        for seq in complete_snapshots(source):
            try:
                snapshot_parts(source, seq)
            except (Damaged, *ERRORS):
                continue
            found.append(seq)
    except ERRORS:
        return ()
    return tuple(found)


def _copy_log(source: sqlite3.Connection, target: sqlite3.Connection, begin: int, end: int) -> None:
    into = "INSERT INTO log (seq, digest, body) VALUES (?, CAST(? AS TEXT), CAST(? AS TEXT))"
    if begin:
        row = "SELECT seq, CAST(digest AS BLOB), CAST(body AS BLOB) FROM log WHERE seq = ?"
        target.executemany(into, source.execute(row, (begin,)).fetchall())
    if end > begin:
        records = chain(source, begin, end - begin)
        target.executemany(into, ((seq, digest, body) for seq, digest, body in records))


def _copy_snapshot(source: sqlite3.Connection, target: sqlite3.Connection, seq: int) -> None:
    parts = snapshot_parts(source, seq)
    for number, part in enumerate(parts):
        put_snapshot_part(target, seq, number, len(parts), part)


def _copy_projections(
    source: sqlite3.Connection, target: sqlite3.Connection, stamp: int, end: int
) -> None:
    """Rows that can be read; those after ``stamp`` are made again from the log anyway."""
    with transaction(target):
        tables = {name for (name,) in source.execute("SELECT name FROM sqlite_master").fetchall()}
        for table in (name for name in _PROJECTIONS if name in tables):
            columns = len(source.execute(f"SELECT * FROM {table} LIMIT 0").description)
            into = f"INSERT OR IGNORE INTO {table} VALUES ({','.join('?' * columns)})"
            rows = source.execute(f"SELECT * FROM {table} WHERE seq <= ?", (end,))
            _copy(target, into, _until_damage(rows))
        target.execute("UPDATE meta SET value = ? WHERE name = 'projected_seq'", (stamp,))


def _copy(target: sqlite3.Connection, into: str, rows: Iterable[tuple[object, ...]]) -> int:
    before = target.total_changes
    target.executemany(into, rows)
    return target.total_changes - before


def _inbox(source: sqlite3.Connection) -> Iterator[tuple[str, str, str]]:
    try:
        for item in inbox.every(source):
            yield item.id, item.kind, item.body
    except ERRORS as error:
        _damage(error)


def _until_damage(rows: Iterable[tuple[object, ...]]) -> Iterator[tuple[object, ...]]:
    try:
        yield from rows
    except ERRORS as error:
        _damage(error)


def _damage(error: Exception) -> str:
    """The text of an error that says that the file is damaged; another one goes on its way."""
    if not is_damage(error):
        raise error
    return f"SQLite: {error}"
