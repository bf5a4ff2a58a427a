"""The loop's end of the store: the position in the log, appends, and pending projections.

Does: seals and appends one record at a time, and retries for as long as it takes; writes the
projections and snapshots after it, and the marks by which a later start notices that the log lost
records; stops at another controller's record; tells whether the store can be used.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

import structlog

from reshape_controller.core.errors import ReshapeError
from reshape_controller.core.record import LogRecord
from reshape_controller.live.marks import LogMarks
from reshape_controller.live.recovery import Recovered
from reshape_controller.store.digest import GENESIS, seal
from reshape_controller.store.protocol import (
    Changes,
    SeqTaken,
    Store,
    StoreError,
    StoreLost,
    StoreRefused,
)

SNAPSHOT_EVERY = 1000
"""Records between two snapshots: bounds what a start has to read."""
SNAPSHOT_AT_END_LEAST = 100
"""Least number of records since the newest snapshot for which a stop writes another."""
SNAPSHOT_RETRY_MAX_S = 600.0
"""Longest pause after a snapshot that failed; doubled from ``RETRY_S``."""
RETRY_S = 1.0
"""Pause before a failed call of the store is tried again."""
REFUSED_RETRY_MAX_S = 30.0
"""Longest pause after a refusal, which lasts until a person acts; doubled from ``RETRY_S``."""

log = structlog.get_logger("reshape.journal")


class Fenced(ReshapeError):
    """Another controller writes this log. This one stops; training is untouched."""


class Pauses:
    """The pauses between the tries of one call of the store."""

    def __init__(self) -> None:
        self._refused_s = 0.0
        """The newest pause after a refusal; 0 if something else followed."""

    def after(self, error: StoreError) -> float:
        """Return the seconds until the next try. A login is tried each time: its credentials are
        read again from their file, and the store sends the same ones seldom."""
        if not isinstance(error, StoreRefused) or error.login:
            self._refused_s = 0.0
            return RETRY_S
        self._refused_s = min(max(RETRY_S, 2 * self._refused_s), REFUSED_RETRY_MAX_S)
        return self._refused_s


class Journal:
    """One per loop, over an open store."""

    def __init__(self, store: Store, marks: LogMarks | None = None) -> None:
        self.marks = LogMarks() if marks is None else marks
        self.seq = 0
        self.epoch = 0
        self.writer = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.problem = ""
        """Error of the store's newest use; empty if it succeeded."""
        self._store = store
        self._digest = GENESIS
        self._pending: deque[Changes] = deque()
        """Changes in the log that the projections do not show yet."""
        self.projection_retry_s = RETRY_S
        """Longest pause until pending projections are written, if nothing else happens."""
        self._projection_pauses = Pauses()
        self.snapshot_problem = ""
        """Why the newest snapshot failed; empty if it did not."""
        self._snapshot_seq = 0
        self._snapshot_pause_s = 0.0
        """The newest pause after a snapshot that failed; 0 after one that did not."""
        self._snapshot_at_s = 0.0
        """Monotonic time before which no snapshot is tried again."""
        self._appending_fails = False
        self._appends_since_s: float | None = None
        """Monotonic time since which a record waits for its append; None: none does."""
        self._pending_since_s = 0.0
        """Monotonic time since which changes are pending."""

    async def check_marks(self) -> None:
        """Compare the log's end with what was noted of it. Raises RolledBack, StoreError."""
        await self.marks.check(self._store)

    def take_over(self, recovered: Recovered) -> None:
        """Go on where the log ended, as an epoch that is new to every SideCar."""
        self.seq, self._digest = recovered.seq, recovered.digest
        self._snapshot_seq = recovered.snapshot_seq
        self.epoch = max(recovered.epoch, self.marks.epoch) + 1

    @property
    def has_pending_projections(self) -> bool:
        """Whether the projections are behind the log."""
        return bool(self._pending)

    def lag_s(self) -> float:
        """Seconds for which the store has not taken the newest record or its rows."""
        waits = [] if self._appends_since_s is None else [self._appends_since_s]
        waits += [self._pending_since_s] if self._pending else []
        return time.monotonic() - min(waits) if waits else 0.0

    def since_snapshot(self) -> int:
        """Number of records after the newest snapshot, which a start has to read."""
        return self.seq - self._snapshot_seq

    def shown_seq(self) -> int:
        """Number of the newest record that the projections show."""
        return self._pending[0].seq - 1 if self._pending else self.seq

    def on_failure(self, error: str) -> None:
        """Note that the store failed: no request is accepted until it works again."""
        self.problem = f"store: {error}"

    def on_success(self) -> None:
        """Note that a read of the store succeeded; after a failed append only an append counts."""
        if not self._appending_fails:
            self.problem = ""

    async def append(self, record: LogRecord, stopping: Callable[[], bool]) -> LogRecord:
        """Append a record as the next one, with its seq, epoch, writer and digest set; return it.

        Retries while the store fails, less and less often while it refuses; nothing else happens
        meanwhile. Raises Fenced, StoreLost, and StoreError if an append fails while ``stopping``
        returns True.
        """
        record = replace(record, seq=self.seq + 1, epoch=self.epoch, writer=self.writer)
        record = seal(self._digest, record)
        pauses, self._appends_since_s = Pauses(), time.monotonic()
        while (error := await self._failure(record, stopping)) is not None:
            until_s = asyncio.get_running_loop().time() + pauses.after(error)
            while (left_s := until_s - asyncio.get_running_loop().time()) > 0 and not stopping():
                await asyncio.sleep(min(left_s, RETRY_S))
        self._appending_fails = False
        self._appends_since_s = None
        self.problem = ""
        self.seq, self._digest = record.seq, record.digest
        self.marks.note(record)
        return record

    async def check_fence(self) -> None:
        """Raise Fenced if another controller's record follows ours. Raises StoreError."""
        if await self._store.last_seq() <= self.seq:
            return
        async for record in self._store.read(self.seq):
            if record.writer != self.writer:
                raise Fenced(
                    f"seq {record.seq} was written by {record.writer} (epoch {record.epoch}): "
                    "another controller took over; this one stops"
                )

    async def project(self, changes: Changes | None, dump: Callable[[], tuple[str, ...]]) -> None:
        """Write projections, and a snapshot if one is due. Changes that the store does not take
        now stay pending, and a start repairs them.

        ``dump``: returns the state for the snapshot.
        """
        if changes is not None:
            if not self._pending:
                self._pending_since_s = time.monotonic()
            self._pending.append(changes)
        try:
            while self._pending:
                await self._store.project(self._pending[0])
                self._pending.popleft()
            self._projection_pauses = Pauses()
        except StoreError as error:
            self.projection_retry_s = self._projection_pauses.after(error)
            log.error("projection-failed", seq=self.seq, error=str(error))
            return
        due = self.since_snapshot() >= SNAPSHOT_EVERY
        if due and time.monotonic() >= self._snapshot_at_s:
            await self._snapshot(dump)

    async def end(self, dump: Callable[[], tuple[str, ...]]) -> None:
        """Write a snapshot before a stop, so that the next start has few records to read."""
        if not self._pending and self.since_snapshot() >= SNAPSHOT_AT_END_LEAST:
            await self._snapshot(dump)
        await self.marks.sync()

    async def _snapshot(self, dump: Callable[[], tuple[str, ...]]) -> None:
        """Write a snapshot. After a failure the next is tried ever more seldom, as each has the
        whole state; until then a start has more records to read."""
        try:
            await self._store.write_snapshot(self.seq, dump())
            self._snapshot_seq, self._snapshot_pause_s, self.snapshot_problem = self.seq, 0.0, ""
            await self.marks.sync()
        except StoreError as error:
            pause_s = min(max(RETRY_S, 2 * self._snapshot_pause_s), SNAPSHOT_RETRY_MAX_S)
            self._snapshot_pause_s, self._snapshot_at_s = pause_s, time.monotonic() + pause_s
            self.snapshot_problem = f"the log's snapshot fails, and a start takes longer: {error}"
            log.error("snapshot-failed", seq=self.seq, error=str(error), again_in_s=pause_s)

    async def _failure(self, record: LogRecord, stopping: Callable[[], bool]) -> StoreError | None:
        """Append a record; return why the store did not take it, None if it did."""
        try:
            await self._store.append(record)
        except SeqTaken as error:
            existing = error.existing
            if (existing.writer, existing.digest) != (record.writer, record.digest):
                raise Fenced(f"{error}: another controller took over; this one stops") from error
        except StoreError as error:
            self._appending_fails = True
            self.on_failure(str(error))
            log.error("append-failed", seq=record.seq, error=str(error))
            if stopping() or isinstance(error, StoreLost):
                raise
            return error
        return None
