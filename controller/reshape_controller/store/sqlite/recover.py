"""Check and recovery of an SQLite store that does not open.

Does: ``check`` reads everything and names each problem; ``recover`` writes what can be read and
verified into a new file. The file that is read stays as it is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from reshape_controller.core.record import LogRecord
from reshape_controller.store.conventions import Damaged
from reshape_controller.store.digest import body_of, record_of
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
from reshape_sidecar.codec import CodecError

PROBLEMS_MAX = 20
"""Largest number of problems that a check names."""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Result of a check."""

    first_seq: int
    """Seq of the first record: 1, later in a recovered file, or 0 for an empty log."""
    last_good_seq: int
    """Seq up to which every record can be read."""
    requests: int
    """Number of requests in the inbox."""
    problems: tuple[str, ...]
    """Empty if every record, snapshot and page is as it was written."""


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """Result of a recovery: records ``first_seq`` to ``last_seq`` and the requests are saved."""

    into: Path
    """The new file."""
    first_seq: int
    last_seq: int
    requests: int
    """Number of requests that were copied."""
    lost: str
    """The damage that ended the reading; empty if everything was read."""


def check(path: Path) -> CheckReport:
    """Check a whole store: pages, chain, snapshots. May run beside a controller.

    Raises StoreError if the file is no store of this version.
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
    return CheckReport(first, good, requests, tuple(problems[:PROBLEMS_MAX]))


def recover(path: Path, into: Path) -> RecoveryReport:
    """Write the readable records and requests of ``path`` into the new store ``into``.

    Normally that is the log from its beginning up to the damage; the next start makes the
    projections from it again. If a readable snapshot lies behind the damage, and more can be saved
    from it, the new log begins just before that snapshot, and readable projections are copied.
    Raises StoreError if ``into`` exists, or nothing can be read.
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
    return RecoveryReport(into, begin or min(1, end), end, requests, lost)


def records(path: Path) -> Iterator[LogRecord]:
    """Yield every record of a store that no controller has open, each verified. Raises StoreError
    if the store is damaged, or the log's beginning is gone."""
    with _Source(path) as source:
        try:
            file.verify_version(source, path)
            if origin(source):
                remedy = "nothing: the records before its first snapshot are gone"
                raise StoreError(f"{path}: its log has no beginning; remedy: {remedy}")
            for _, digest, body in chain(source, 0):
                yield record_of(body, digest)
        except (Damaged, CodecError) as error:
            what = f"{path}: cannot be read whole ({error})"
            raise StoreError(f"{what}; remedy: reshape db check {path}") from None


def rewrite(path: Path, into: Path, made: Iterable[LogRecord]) -> None:
    """Write the new store ``into`` with these records and the requests of ``path``; the next start
    makes everything else from them. Raises StoreError, and what ``made`` raises."""
    lock.prepare(into)
    add = "INSERT INTO log (seq, digest, body) VALUES (?, ?, ?)"
    with _Source(path) as source:

        def fill(target: sqlite3.Connection) -> None:
            with transaction(target):
                rows = ((each.seq, each.digest, body_of(each).decode()) for each in made)
                target.executemany(add, rows)
                _copy(target, _INBOX_INTO, _inbox(source))

        file.create(into, fill)


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
    """The longest readable run of records: the seq before it, its last seq, and its end's damage.

    A run begins at the log's beginning, or with the record before a readable snapshot, whose
    digest verifies the snapshot's own record. Of two runs with the same end the earlier one wins.
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
    readable = []
    try:
        for seq in complete_snapshots(source):
            try:
                snapshot_parts(source, seq)
            except (Damaged, *ERRORS):
                continue
            readable.append(seq)
    except ERRORS:
        return ()
    return tuple(readable)


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
    """Copy the readable rows; the next start makes those after ``stamp`` again from the log."""
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
    """The text of an error of a damaged file; raises any other error again."""
    if not is_damage(error):
        raise error
    return f"SQLite: {error}"
