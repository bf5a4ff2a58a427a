"""The SQLite file itself: its tables, and how it is made, opened and verified.

Does: creates a store complete or not at all, opens one with the settings that durability rests on,
and verifies its contents (``sqlite.chain``). Connections belong to the caller.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from reshape_controller.store.conventions import Damaged
from reshape_controller.store.protocol import StoreCorrupt, StoreError
from reshape_controller.store.sqlite.chain import (
    ERRORS,
    is_damage,
    last_good_seq,
    newest_snapshot_seq,
    verify_log,
)

APPLICATION_ID = 0x52534850
"""``RSHP``: marks a file as a Reshape store."""
SCHEMA_VERSION = 2
BUSY_TIMEOUT_S = 5.0
QUICK_CHECK_BYTES_MAX = 256 * 1024 * 1024
"""Size above which only ``check`` reads a file whole: a start must stay under two seconds."""

_PROFILES = (
    "CREATE TABLE profiles (job_type TEXT PRIMARY KEY, seq INTEGER NOT NULL, body TEXT NOT NULL);"
)
_UPGRADES = {1: _PROFILES}
"""SQL that brings each older schema to the next one. A start fills new tables."""

_SCHEMA_1 = """
CREATE TABLE log (seq INTEGER PRIMARY KEY, digest TEXT NOT NULL, body TEXT NOT NULL);
CREATE TABLE snapshots (
    seq INTEGER NOT NULL, part INTEGER NOT NULL, parts INTEGER NOT NULL,
    digest TEXT NOT NULL, body TEXT NOT NULL, UNIQUE (seq, part));
CREATE TABLE jobs (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, user TEXT NOT NULL, state TEXT NOT NULL,
    submitted_at_s REAL NOT NULL, place INTEGER NOT NULL, seq INTEGER NOT NULL,
    body TEXT NOT NULL);
CREATE INDEX jobs_by_time ON jobs (submitted_at_s, place, id);
CREATE INDEX jobs_by_name ON jobs (name, submitted_at_s, place, id);
CREATE INDEX jobs_by_state ON jobs (state, submitted_at_s, place, id);
CREATE INDEX jobs_by_user ON jobs (user, submitted_at_s, place, id);
CREATE TABLE gpus (
    id TEXT PRIMARY KEY, host TEXT NOT NULL, number INTEGER NOT NULL, state TEXT NOT NULL,
    owner TEXT, seq INTEGER NOT NULL, body TEXT NOT NULL);
CREATE TABLE hosts (id TEXT PRIMARY KEY, seq INTEGER NOT NULL, body TEXT NOT NULL);
CREATE TABLE history (
    seq INTEGER NOT NULL, number INTEGER NOT NULL, job TEXT, at_s REAL NOT NULL,
    kind TEXT NOT NULL, body TEXT NOT NULL, UNIQUE (seq, number));
CREATE INDEX history_by_job ON history (job, seq, number);
CREATE TABLE decisions (
    seq INTEGER NOT NULL, number INTEGER NOT NULL, at_s REAL NOT NULL, policy TEXT NOT NULL,
    body TEXT NOT NULL, UNIQUE (seq, number));
CREATE TABLE decision_jobs (
    job TEXT NOT NULL, seq INTEGER NOT NULL, number INTEGER NOT NULL,
    PRIMARY KEY (job, seq, number)) WITHOUT ROWID;
CREATE TABLE inbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE DEFAULT (lower(hex(randomblob(16))))
        CHECK (typeof(id) = 'text' AND length(id) BETWEEN 1 AND 200 AND id NOT GLOB '*[^ -~]*'),
    kind TEXT NOT NULL CHECK (typeof(kind) = 'text' AND length(kind) <= 64),
    body TEXT NOT NULL
        CHECK (typeof(body) = 'text' AND length(CAST(body AS BLOB)) <= 1048576));
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
INSERT INTO meta (name, value) VALUES ('projected_seq', 0);
"""
SCHEMA = _SCHEMA_1 + _PROFILES


def corrupt(path: Path, last_good_seq: int, message: str) -> StoreCorrupt:
    remedy = f"reshape db recover {path} (writes the readable records to a new file)"
    return StoreCorrupt(str(path), last_good_seq, message, remedy)


def create(path: Path, fill: Callable[[sqlite3.Connection], None] | None = None) -> None:
    """Make a store at ``path``, complete or not at all; ``fill`` writes its first contents."""
    stray = path.with_name(path.name + "-wal")
    if stray.exists():
        # SQLite would play it into the new file.
        raise StoreError(
            f"{path}: is missing, but its write-ahead log {stray} exists; "
            "remedy: put the file back, or move the log away to start an empty store"
        )
    fresh = path.with_name(path.name + ".new")
    for suffix in ("", "-wal", "-shm", "-journal"):
        fresh.with_name(fresh.name + suffix).unlink(missing_ok=True)
    # SQLite gives the files that it makes beside a database the database's own mode.
    os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    connection = connect(fresh)
    try:
        connection.executescript(
            f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={SCHEMA_VERSION};"
            f"BEGIN; {SCHEMA} COMMIT;"
        )
        if fill is not None:
            fill(connection)
    finally:
        connection.close()
    sync(fresh)
    fresh.rename(path)
    sync(path.parent)


def connect(path: Path) -> sqlite3.Connection:
    """Open a connection for reading and writing, with durable commits. Raises StoreError."""
    _require_regular(path)
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=rw", uri=True, isolation_level=None, timeout=BUSY_TIMEOUT_S
    )
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        found = tuple(
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous")
        )
        if found != ("wal", 2):
            raise StoreError(
                f"{path}: SQLite gives journal_mode={found[0]}, synchronous={found[1]} instead of "
                "wal, 2 (FULL); remedy: name a file on a local disk"
            )
    except BaseException:
        connection.close()
        raise
    return connection


def connect_readonly(path: Path) -> sqlite3.Connection:
    """Open a connection that changes neither the database nor its write-ahead log.

    Makes a ``-shm`` file (shared memory; it holds no data) only if there is a log to read.
    """
    _require_regular(path)
    wal = path.with_name(path.name + "-wal")
    mode = "mode=ro" if wal.exists() and wal.stat().st_size else "immutable=1"
    return sqlite3.connect(
        f"file:{quote(str(path))}?{mode}", uri=True, isolation_level=None, timeout=BUSY_TIMEOUT_S
    )


def _require_regular(path: Path) -> None:
    """Raise StoreError if a file of the store is none: SQLite would wait at a FIFO."""
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        try:
            if part.exists() and not part.is_file():
                raise StoreError(f"{part}: is no regular file; remedy: restore it from a backup")
        except OSError as error:
            raise StoreError(f"{part}: {error.strerror}; remedy: restore it") from None


def inspect(path: Path) -> None:
    """Verify the file without touching it. Raises StoreCorrupt, or StoreError if it is not ours."""
    _require_regular(path)
    if path.stat().st_size == 0:
        raise corrupt(path, 0, "the file is empty")
    connection = connect_readonly(path)
    try:
        verify_header(connection, path)
        if path.stat().st_size <= QUICK_CHECK_BYTES_MAX:
            verify_pages(connection, "quick_check")
        verify_log(connection, newest_snapshot_seq(connection))
    except Damaged as damage:
        raise corrupt(path, damage.last_good_seq, str(damage)) from None
    except ERRORS as error:
        if not is_damage(error):
            raise
        raise corrupt(path, last_good_seq(connection), str(error)) from None
    finally:
        connection.close()


def verify_version(connection: sqlite3.Connection, path: Path) -> None:
    """Check that the file is a Reshape store whose schema this version reads. Raises StoreError."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION_ID:
        raise StoreError(f"{path}: is not a Reshape store; remedy: name another file")
    if version != SCHEMA_VERSION and version not in _UPGRADES:
        age = "a newer" if version > SCHEMA_VERSION else "another"
        raise StoreError(
            f"{path}: was written by {age} Reshape (schema {version}, this one knows "
            f"{SCHEMA_VERSION}); nothing was changed; remedy: use that version"
        )


def verify_header(connection: sqlite3.Connection, path: Path) -> None:
    """Check that the file is a Reshape store with all tables of its schema. Raises StoreError,
    Damaged."""
    verify_version(connection, path)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    query = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"
    with closing(sqlite3.connect(":memory:")) as memory:
        memory.executescript(_SCHEMA_1)
        for older in range(1, version):
            memory.executescript(_UPGRADES[older])
        expected, present = (dict(c.execute(query).fetchall()) for c in (memory, connection))
    # A user's own view or index beside ours does no harm.
    for name, sql in expected.items():
        if name not in present or present[name] != sql:
            raise Damaged(last_good_seq(connection), f"table or index {name} is missing or altered")


def upgrade(connection: sqlite3.Connection) -> None:
    """Upgrade a verified store of an older schema to this version's, each step whole or not."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for older in range(version, SCHEMA_VERSION):
        connection.executescript(
            f"BEGIN IMMEDIATE; {_UPGRADES[older]} PRAGMA user_version={older + 1}; COMMIT;"
        )


def verify_pages(connection: sqlite3.Connection, pragma: str) -> None:
    """Run SQLite's own check of its pages (``quick_check`` or ``integrity_check``). Raises
    Damaged."""
    (first,) = connection.execute(f"PRAGMA {pragma}(1)").fetchone()
    if first != "ok":
        raise Damaged(last_good_seq(connection), " ".join(str(first).split()))


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, durable. Raises OSError."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
