"""The embedded store: one SQLite file, for one controller.

Does: the store protocol over one dedicated thread, so that the event loop does not wait for a disk.
A file is verified before it is changed; SQLite's errors become errors of the protocol. The store is
the file ``path`` with its ``-wal`` and ``-shm``, and the lock ``<path>.lock``.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from reshape_controller.core.model import Gpu, Host, JobId, JobState
from reshape_controller.core.record import HistoryEntry, LogRecord
from reshape_controller.store.conventions import Damaged, OtherVersion
from reshape_controller.store.protocol import (
    Changes,
    Decision,
    GpuUseRow,
    InboxItem,
    JobRow,
    Page,
    ProfileRow,
    StoreError,
)
from reshape_controller.store.sqlite import audit, chain, file, inbox, lock, log, projections
from reshape_sidecar.codec import CodecError

P = ParamSpec("P")
T = TypeVar("T")

_REMEDIES = {
    sqlite3.SQLITE_FULL: "the disk is full; remedy: free space on its disk",
    sqlite3.SQLITE_READONLY: "cannot be written; remedy: make it and its folder writable",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; remedy: make it and its folder writable",
    sqlite3.SQLITE_PERM: "access is denied; remedy: make it and its folder writable",
    sqlite3.SQLITE_BUSY: "another program keeps it locked; remedy: end that program's transaction",
    sqlite3.SQLITE_LOCKED: "another program keeps it locked; remedy: end that program's"
    " transaction",
    sqlite3.SQLITE_IOERR: "reading or writing failed; remedy: check its disk (quota, limits,"
    " kernel messages)",
    sqlite3.SQLITE_CONSTRAINT: "a value violates the schema; remedy: see the schema's rules",
    sqlite3.SQLITE_TOOBIG: "a value is too large; remedy: make it smaller",
    sqlite3.SQLITE_NOMEM: "memory is exhausted; remedy: give the controller more memory",
}


class SqliteStore:
    """``protocol.Store`` on the file ``path``, which is created if it is missing."""

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        """``durable``: whether a commit survives a power cut; False only for a copy that can be
        made again."""
        self.path = path.absolute()
        self._durable = durable
        self._lock = lock.ProcessLock(self.path)
        self._thread: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] = (0, 0)

    async def open(self) -> None:
        """Open or create. Raises StoreCorrupt, having touched nothing, if it is unreadable."""
        if self._thread is not None:
            return
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        try:
            await self._run(self._open)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the file and drop the lock; no effect if it is not open."""
        thread = self._thread
        if thread is None:
            return
        await asyncio.get_running_loop().run_in_executor(thread, self._close)
        thread.shutdown()
        self._thread = None

    # --- the log
    async def last_seq(self) -> int:
        return await self._on(log.last_seq)

    async def append(self, record: LogRecord) -> None:
        """Durably add ``record``. Raises SeqTaken, StoreBehind or StoreError."""
        await self._run(self._append, record)

    async def read(self, after_seq: int) -> AsyncIterator[LogRecord]:
        """Verified records with a greater seq, in order."""
        while page := await self._on(log.read_page, after_seq):
            for record in page:
                yield record
            after_seq = page[-1].seq

    async def write_snapshot(self, seq: int, parts: tuple[str, ...]) -> None:
        """Write a snapshot, each part by itself, so that appends go on in between."""
        if not await self._on(log.begin_snapshot, seq, parts):
            return
        for number, part in enumerate(parts):
            await self._on(log.put_snapshot_part, seq, number, len(parts), part)
        await self._on(log.prune_snapshots)

    async def latest_snapshot(self) -> tuple[int, tuple[str, ...]] | None:
        return await self._on(log.newest_snapshot)

    # --- projections
    async def projected_seq(self) -> int:
        return await self._on(projections.projected_seq)

    async def project(self, changes: Changes) -> None:
        await self._on(projections.project, changes)

    async def show_gpu_use(self, uses: tuple[GpuUseRow, ...], epoch: int) -> None:
        """Show nothing: users read the file by the API, which has the reports themselves."""

    async def jobs(
        self,
        *,
        limit: int = 100,
        after: str | None = None,
        states: tuple[JobState, ...] = (),
        user: str | None = None,
        name: str | None = None,
        newest: bool = False,
    ) -> Page:
        """One page of at most ``limit`` and ``conventions.PAGE_ROWS_MAX`` rows."""
        return await self._on(projections.jobs, limit, after, states, user, name, newest)

    async def job(self, key: str, user: str = "") -> JobRow | None:
        return await self._on(projections.job, key, user)

    async def gpus(self) -> tuple[Gpu, ...]:
        return await self._on(projections.gpus)

    async def hosts(self) -> tuple[Host, ...]:
        return await self._on(projections.hosts)

    async def history(self, job: JobId | None, *, limit: int = 1000) -> tuple[HistoryEntry, ...]:
        return await self._on(projections.history, job, limit)

    async def history_between(
        self, after_seq: int, up_to_seq: int
    ) -> tuple[tuple[int, int, HistoryEntry], ...]:
        return await self._on(projections.history_between, after_seq, up_to_seq)

    async def cursor(self, name: str) -> int | None:
        return await self._on(projections.cursor, name)

    async def set_cursor(self, name: str, seq: int) -> None:
        await self._on(projections.set_cursor, name, seq)

    async def decisions(self, job: JobId | None, *, limit: int = 100) -> tuple[Decision, ...]:
        return await self._on(projections.decisions, job, limit)

    async def profiles(self) -> tuple[ProfileRow, ...]:
        return await self._on(projections.profiles)

    # --- the projections against the log
    async def differing(self, expected: tuple[Changes, ...], end_seq: int) -> tuple[str, ...]:
        return await self._on(audit.differing, expected, end_seq)

    async def rewrite(self, expected: tuple[Changes, ...], end_seq: int) -> None:
        await self._on(audit.rewrite, expected, end_seq)

    async def row_names(self) -> AsyncIterator[str]:
        for name in await self._on(audit.names):
            yield name

    async def forget(self, names: tuple[str, ...]) -> None:
        await self._on(audit.forget, names)

    # --- inbox
    async def put_request(self, item: InboxItem) -> None:
        await self._on(inbox.put, item)

    async def requests(self, limit: int) -> tuple[InboxItem, ...]:
        return await self._on(inbox.oldest, limit)

    async def wait_for_requests(self, wait_s: float) -> None:
        await asyncio.sleep(wait_s)

    @property
    def notices_requests(self) -> bool:
        return False

    async def acknowledge(self, ids: tuple[str, ...]) -> None:
        await self._on(inbox.remove, ids)

    async def refuse(self, item: str, text: str) -> None:
        await self._on(inbox.remove, (item,))  # a row has no place for the reason

    # --- on the thread
    def _open(self) -> None:
        lock.prepare(self.path)
        self._lock.take()
        if self.path.exists():
            file.inspect(self.path)
        else:
            file.create(self.path)
        self._connection = file.connect(self.path)
        file.upgrade(self._connection)
        if not self._durable:
            self._connection.execute("PRAGMA synchronous=OFF")
        self._file = self._identity()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._lock.drop()

    def _append(self, record: LogRecord) -> None:
        # A file that was moved away still takes writes, but the next start does not find them.
        if self._identity() != self._file:
            raise StoreError(
                f"{self.path}: was moved, removed or replaced while it was open; "
                "remedy: stop the controller, put the file back, start it again"
            )
        log.append(self._connected(), record)

    def _identity(self) -> tuple[int, int]:
        try:
            status = self.path.stat()
        except OSError:
            return (0, 0)
        return (status.st_dev, status.st_ino)

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreError(f"{self.path}: is not open; remedy: report this defect")
        return self._connection

    async def _on(
        self,
        function: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        return await self._run(lambda: function(self._connected(), *args, **kwargs))

    async def _run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._thread is None:
            raise StoreError(f"{self.path}: is not open; remedy: report this defect")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._thread, lambda: self._translated(lambda: function(*args, **kwargs))
        )

    def _translated(self, function: Callable[[], T]) -> T:
        """Call ``function``; an error of SQLite or of the system becomes one of the protocol."""
        try:
            return function()
        except Damaged as damage:
            raise file.corrupt(self.path, damage.last_good_seq, str(damage)) from None
        except OtherVersion as other:
            raise other.at(str(self.path)) from None
        except CodecError as error:
            raise StoreError(
                f"{self.path}: a projection cannot be read ({error}); remedy: reshape db check"
            ) from None
        except chain.ERRORS as error:
            raise self._explained(error) from None
        except OSError as error:
            raise StoreError(
                f"{self.path}: {error.strerror}; remedy: check the file and its folder"
            ) from None

    def _explained(self, error: Exception) -> Exception:
        code = getattr(error, "sqlite_errorcode", None)
        remedy = _REMEDIES.get(code & 0xFF) if code is not None else None
        if remedy is not None:
            return StoreError(f"{self.path}: {remedy} (SQLite: {error})")
        if chain.is_damage(error):
            good = chain.last_good_seq(self._connected()) if self._connection else 0
            return file.corrupt(self.path, good, str(error))
        return error
