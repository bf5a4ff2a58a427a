"""A whole copy of an SQLite store, and its way back.

Does: copies a store beside a running controller, and puts a checked copy in a store's place; the
files that were there are moved aside. A copy appears whole or not at all.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from reshape_controller.store.protocol import StoreError
from reshape_controller.store.sqlite import file, lock
from reshape_controller.store.sqlite.chain import ERRORS
from reshape_controller.store.sqlite.recover import check

ASIDE = ".replaced"
"""Ending of the name of the store that a restore has moved aside."""
_PARTS = ("", "-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class Copy:
    """A whole, checked copy: its log ends at ``last_seq``."""

    path: Path
    last_seq: int
    requests: int
    """Number of requests in its inbox."""
    size_bytes: int


def back_up(path: Path, into: Path) -> Copy:
    """Copy the store ``path`` into the new file ``into``. A controller may write meanwhile: the
    copy is the store as of one moment. Raises StoreError."""
    if into.exists():
        raise StoreError(f"{into}: exists already; remedy: give a new file")
    lock.prepare(into)
    fresh = into.with_name(into.name + ".new")
    _remove(fresh)
    os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        with closing(_source(path)) as source, closing(sqlite3.connect(fresh)) as target:
            file.verify_version(source, path)
            source.backup(target)
        copy = verified(fresh)
        file.sync(fresh)
        fresh.rename(into)
        file.sync(into.parent)
    except ERRORS as error:
        raise StoreError(
            f"{path}: cannot be copied ({error}); remedy: reshape db check {path}"
        ) from None
    except OSError as error:
        raise StoreError(f"{into}: {error.strerror}; remedy: free space there") from None
    finally:
        _remove(fresh)
    return Copy(into, copy.last_seq, copy.requests, into.stat().st_size)


def _source(path: Path) -> sqlite3.Connection:
    """Open a store to copy from. Where this user may not write, it is only read; the copy is
    checked in any case. Raises StoreError."""
    writes = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    return file.connect(path) if writes else file.connect_readonly(path)


def verified(path: Path) -> Copy:
    """Check a whole copy: pages, chain, snapshots. Raises StoreError if it is damaged."""
    found = check(path)
    if found.problems:
        raise StoreError(
            f"{path}: is no whole copy of a store: {found.problems[0]}; "
            "remedy: give another backup, or see reshape db recover"
        )
    return Copy(path, found.last_good_seq, found.requests, path.stat().st_size)


def restore(copy: Path, path: Path) -> Path | None:
    """Put a verified copy in place of the store ``path``, which no controller has open.

    Returns where the store of before is now; None if there was none. Raises StoreError.
    """
    aside = path.with_name(path.name + ASIDE)
    present = [part for part in _PARTS if _part(path, part).exists()]
    if present and any(_part(aside, part).exists() for part in _PARTS):
        raise StoreError(
            f"{aside}: exists already, from an earlier restore; remedy: move it elsewhere"
        )
    lock.prepare(path)
    fresh = path.with_name(path.name + ".new")
    try:
        _remove(fresh)
        with closing(_readable(copy)) as source, closing(sqlite3.connect(fresh)) as target:
            source.backup(target)
        fresh.chmod(0o600)
        file.sync(fresh)
        # The -wal first: without its main file no start plays it into another one.
        for part in reversed(present):
            _part(path, part).rename(_part(aside, part))
        fresh.rename(path)
        file.sync(path.parent)
    except ERRORS as error:
        raise StoreError(f"{copy}: cannot be read ({error}); remedy: check its disk") from None
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; remedy: free space on its disk") from None
    return aside if present else None


def _readable(path: Path) -> sqlite3.Connection:
    return file.connect_readonly(path)


def _part(path: Path, part: str) -> Path:
    return path.with_name(path.name + part)


def _remove(path: Path) -> None:
    for part in _PARTS:
        _part(path, part).unlink(missing_ok=True)
