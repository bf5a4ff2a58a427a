"""The log and its snapshots inside an open SQLite file.

Does: appends, reads back verified, and keeps the last two snapshots. The connection belongs to the
caller.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from reshape_controller.core.record import LogRecord
from reshape_controller.store.conventions import SNAPSHOTS_MAX, Damaged, OtherVersion, check_parts
from reshape_controller.store.digest import GENESIS, body_of, digest_of, record_of
from reshape_controller.store.protocol import (
    SeqTaken,
    StoreBehind,
)
from reshape_controller.store.sqlite.chain import (
    chain,
    complete_snapshots,
    newest_snapshot_seq,
    snapshot_parts,
)
from reshape_sidecar.codec import CodecError

PAGE_RECORDS = 500
"""Number of records at which a page of the log ends."""
PAGE_BYTES = 4 * 1024 * 1024
"""Size at which a page of the log ends, after the record that reaches it."""


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Run a transaction. It takes the write lock at once, so that no later step fails for it."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def last_seq(connection: sqlite3.Connection) -> int:
    """Seq of the newest record; 0 for an empty log."""
    (seq,) = connection.execute("SELECT max(seq) FROM log").fetchone()
    return int(seq or 0)


def append(connection: sqlite3.Connection, record: LogRecord) -> None:
    """Add one record; it is durable on return.

    Raises SeqTaken, and StoreBehind if the record does not continue the log.
    """
    body = body_of(record)
    with transaction(connection):
        newest = last_seq(connection)
        if record.seq <= newest:
            raise SeqTaken(_record_at(connection, record.seq))
        if record.seq != newest + 1:
            raise StoreBehind(newest, record.seq - 1)
        previous = GENESIS
        if newest:
            (previous,) = connection.execute(
                "SELECT digest FROM log WHERE seq = ?", (newest,)
            ).fetchone()
        if record.digest != digest_of(previous, body):
            raise StoreBehind(newest, newest)
        connection.execute(
            "INSERT INTO log (seq, digest, body) VALUES (?, ?, ?)",
            (record.seq, record.digest, body.decode()),
        )


def read_page(connection: sqlite3.Connection, after_seq: int) -> tuple[LogRecord, ...]:
    """The next verified records after a seq, bounded; empty at the end of the log."""
    if after_seq >= last_seq(connection):
        return ()
    page: list[LogRecord] = []
    size = 0
    for seq, digest, body in chain(connection, after_seq, PAGE_RECORDS):
        page.append(_decode(seq, digest, body))
        size += len(body)
        if size >= PAGE_BYTES:
            break
    return tuple(page)


def begin_snapshot(connection: sqlite3.Connection, seq: int, parts: tuple[str, ...]) -> bool:
    """Delete an incomplete snapshot of this seq; return False if a complete one is there."""
    check_parts(seq, parts)
    newest = last_seq(connection)
    if seq > newest or seq < 1:
        raise StoreBehind(newest, seq)
    if seq in complete_snapshots(connection):
        return False
    with transaction(connection):
        connection.execute("DELETE FROM snapshots WHERE seq = ?", (seq,))
    return True


def put_snapshot_part(
    connection: sqlite3.Connection, seq: int, part: int, parts: int, body: str
) -> None:
    """Write one part in a transaction of its own, so that appends wait for it alone."""
    digest = hashlib.sha256(body.encode()).hexdigest()
    with transaction(connection):
        connection.execute(
            "INSERT INTO snapshots (seq, part, parts, digest, body) VALUES (?, ?, ?, ?, ?)",
            (seq, part, parts, digest, body),
        )


def prune_snapshots(connection: sqlite3.Connection) -> None:
    """Delete all but the last two complete snapshots, and incomplete ones before the newest."""
    keep = complete_snapshots(connection)[-SNAPSHOTS_MAX:]
    if not keep:
        return
    marks = ",".join("?" * len(keep))
    with transaction(connection):
        connection.execute(
            f"DELETE FROM snapshots WHERE seq < ? AND seq NOT IN ({marks})", (keep[-1], *keep)
        )


def newest_snapshot(connection: sqlite3.Connection) -> tuple[int, tuple[str, ...]] | None:
    """The newest complete snapshot, verified."""
    seq = newest_snapshot_seq(connection)
    return (seq, snapshot_parts(connection, seq)) if seq else None


def _record_at(connection: sqlite3.Connection, seq: int) -> LogRecord:
    for _, digest, body in chain(connection, seq - 1, 1):
        return _decode(seq, digest, body)
    raise Damaged(seq - 1, f"record {seq} of the log is missing")


def _decode(seq: int, digest: str, body: bytes) -> LogRecord:
    try:
        return record_of(body, digest)
    except CodecError as error:
        raise OtherVersion(seq, error) from None
