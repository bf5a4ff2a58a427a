"""Verified reading of an SQLite store: the log's chain and the snapshots.

Does: returns records and snapshots only after a check of their digests. The connection belongs to
the caller; nothing is written.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator

from reshape_controller.store.conventions import Damaged
from reshape_controller.store.digest import GENESIS, digest_of

ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""Errors that reading can raise; the second if a message of SQLite quotes damaged text."""


def is_damage(error: Exception) -> bool:
    """Whether the error means that the file is damaged (not busy, full or forbidden)."""
    if isinstance(error, (sqlite3.ProgrammingError, sqlite3.InterfaceError)):
        return False
    code = getattr(error, "sqlite_errorcode", None)  # None: text in it that is not UTF-8
    return code is None or code & 0xFF in (
        sqlite3.SQLITE_ERROR,  # a schema that no longer parses, a table that is gone
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_TOOBIG,  # a length beyond the bound of every value of ours
    )


def complete_snapshots(connection: sqlite3.Connection) -> tuple[int, ...]:
    """Seqs of the snapshots that have all their parts, ascending."""
    rows = connection.execute(
        "SELECT seq FROM snapshots GROUP BY seq HAVING count(*) = max(parts) ORDER BY seq"
    ).fetchall()
    return tuple(int(seq) for (seq,) in rows)


def newest_snapshot_seq(connection: sqlite3.Connection) -> int:
    """Seq of the newest complete snapshot; 0 without one."""
    return max(complete_snapshots(connection), default=0)


def snapshot_parts(connection: sqlite3.Connection, seq: int) -> tuple[str, ...]:
    """The verified parts of the snapshot at ``seq``. Raises Damaged."""
    parts = []
    for part, digest, body in connection.execute(
        "SELECT part, CAST(digest AS BLOB), CAST(body AS BLOB) FROM snapshots"
        " WHERE seq = ? ORDER BY part",
        (seq,),
    ):
        # A damaged page can show a NULL where none was allowed.
        if body is None or hashlib.sha256(body).hexdigest().encode() != digest:
            raise Damaged(last_good_seq(connection), f"snapshot {seq} part {part} is damaged")
        parts.append(body.decode())
    return tuple(parts)


def verify_log(connection: sqlite3.Connection, snapshot_seq: int) -> int:
    """Check the snapshot and every record after it, as recovery reads them; return the last seq.
    Raises Damaged."""
    last = snapshot_seq
    if snapshot_seq:
        snapshot_parts(connection, snapshot_seq)
    for seq, _, _ in chain(connection, snapshot_seq):
        last = seq
    return last


def chain(
    connection: sqlite3.Connection, after_seq: int, limit: int = -1
) -> Iterator[tuple[int, str, bytes]]:
    """Yield (seq, digest, body) of the records after a seq, each checked against the one before.

    Raises Damaged at the first that is missing or does not fit.
    """
    good = after_seq
    try:
        previous = _digest_at(connection, after_seq)
        for seq, raw, body in connection.execute(
            "SELECT seq, CAST(digest AS BLOB), CAST(body AS BLOB) FROM log WHERE seq > ?"
            " ORDER BY seq LIMIT ?",
            (after_seq, limit),
        ):
            if seq != good + 1:
                raise Damaged(good, f"record {good + 1} of the log is missing")
            digest = digest_of(previous, body or b"")
            if digest.encode() != raw:
                raise Damaged(good, f"record {seq} of the log does not match its checksum")
            yield seq, digest, body
            previous, good = digest, seq
    except ERRORS as error:
        if not is_damage(error):
            raise
        raise Damaged(good, str(error)) from None


def origin(connection: sqlite3.Connection) -> int:
    """Seq after which the whole log is read: 0; in a recovered file the record before the snapshot
    that begins its log."""
    (first,) = connection.execute("SELECT min(seq) FROM log").fetchone()
    recovered = first is not None and first + 1 in complete_snapshots(connection)
    return int(first) if recovered and first > 1 else 0


def last_good_seq(connection: sqlite3.Connection) -> int:
    """Seq up to which every record can be read, from the log's beginning."""
    good = 0
    try:
        good = origin(connection)
        for seq, _, _ in chain(connection, good):
            good = seq
    except Damaged as damage:
        return damage.last_good_seq
    except ERRORS as error:
        if not is_damage(error):
            raise
    return good


def _digest_at(connection: sqlite3.Connection, seq: int) -> str:
    if seq == 0:
        return GENESIS
    row = connection.execute("SELECT digest FROM log WHERE seq = ?", (seq,)).fetchone()
    if row is None:
        # Past the log's end this is no error, but a snapshot needs the record of its seq.
        raise Damaged(last_good_seq(connection), f"record {seq} of the log is missing")
    return str(row[0])
