"""The loop's end of the store: the position in the log, appends, and projections that are owed.

Does: seals and appends one record at a time, for as long as it takes; writes the projections and
snapshots after it; knows whether the store can be used. Never: steps the engine, or goes on after
another controller's record. State: where the log ends, and the changes not projected yet.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import replace

import structlog

from reshape_controller.core.errors import ReshapeError
from reshape_controller.core.record import LogRecord
from reshape_controller.live.recovery import Recovered
from reshape_controller.store.digest import GENESIS, seal
from reshape_controller.store.protocol import Changes, SeqTaken, Store, StoreError, StoreLost

SNAPSHOT_EVERY = 1000
"""Records between two snapshots: bounds what a start has to read."""
SNAPSHOT_AT_END_LEAST = 100
"""Fewer records than these are read again at a start rather than kept as a snapshot at a stop."""
APPEND_RETRY_S = 1.0
"""Pause before an append that failed is tried again; nothing else happens meanwhile."""

log = structlog.get_logger("reshape.journal")


class Fenced(ReshapeError):
    """Another controller writes this log. This one stops; training is untouched."""


class Journal:
    """One per loop, over an open store."""

    def __init__(self, store: Store) -> None:
        self.seq = 0
        self.epoch = 0
        self.writer = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.problem = ""
        """Why the store cannot be used now, as its newest use found; empty while it can."""
        self._store = store
        self._digest = GENESIS
        self._owed: deque[Changes] = deque()
        self._snapshot_seq = 0
        self._appending_fails = False

    def take_over(self, found: Recovered) -> None:
        """Go on where the log ended, as a new epoch."""
        self.seq, self._digest = found.seq, found.digest
        self._snapshot_seq, self.epoch = found.snapshot_seq, found.epoch + 1

    @property
    def owes_projections(self) -> bool:
        """Whether something in the log cannot be read in the projections yet."""
        return bool(self._owed)

    def failed(self, error: str) -> None:
        """The store could not be used: nothing more is accepted until it can."""
        self.problem = f"store: {error}"

    def answered(self) -> None:
        """The store was used; whether it also takes appends is known from them alone."""
        if not self._appending_fails:
            self.problem = ""

    async def append(self, record: LogRecord, stopping: Callable[[], bool]) -> LogRecord:
        """Append a record as the next one; the engine has moved on and waits with us.

        Its seq, epoch, writer and digest are set here. Raises Fenced, StoreLost, and StoreError
        once ``stopping`` says that there is no more time.
        """
        record = replace(record, seq=self.seq + 1, epoch=self.epoch, writer=self.writer)
        record = seal(self._digest, record)
        while not await self._appended(record, stopping):
            await asyncio.sleep(APPEND_RETRY_S)
        self._appending_fails = False
        self.problem = ""
        self.seq, self._digest = record.seq, record.digest
        return record

    async def check_fence(self) -> None:
        """Raises Fenced if another controller's record follows ours, StoreError."""
        if await self._store.last_seq() <= self.seq:
            return
        async for record in self._store.read(self.seq):
            if record.writer != self.writer:
                raise Fenced(
                    f"seq {record.seq} was written by {record.writer} (epoch {record.epoch}): "
                    "another controller took over; this one stops"
                )

    async def project(self, changes: Changes | None, dump: Callable[[], tuple[str, ...]]) -> None:
        """Write projections; what cannot be written now is owed, and repaired at a start.

        ``dump`` gives the state for a snapshot when one is due.
        """
        if changes is not None:
            self._owed.append(changes)
        try:
            while self._owed:
                await self._store.project(self._owed[0])
                self._owed.popleft()
        except StoreError as error:
            log.error("projection-failed", seq=self.seq, error=str(error))
            return
        if self.seq - self._snapshot_seq >= SNAPSHOT_EVERY:
            await self._snapshot(dump)

    async def end(self, dump: Callable[[], tuple[str, ...]]) -> None:
        """Keep the state before a stop, so that the next start reads little."""
        if not self._owed and self.seq - self._snapshot_seq >= SNAPSHOT_AT_END_LEAST:
            await self._snapshot(dump)

    async def _snapshot(self, dump: Callable[[], tuple[str, ...]]) -> None:
        """Never needed: a snapshot that cannot be written is tried again later."""
        try:
            await self._store.write_snapshot(self.seq, dump())
            self._snapshot_seq = self.seq
        except StoreError as error:
            log.error("snapshot-failed", seq=self.seq, error=str(error))

    async def _appended(self, record: LogRecord, stopping: Callable[[], bool]) -> bool:
        try:
            await self._store.append(record)
        except SeqTaken as taken:
            found = taken.found
            if (found.writer, found.digest) != (record.writer, record.digest):
                raise Fenced(f"{taken}: another controller took over; this one stops") from taken
        except StoreError as error:
            self._appending_fails = True
            self.failed(str(error))
            log.error("append-failed", seq=record.seq, error=str(error))
            if stopping() or isinstance(error, StoreLost):
                raise
            return False
        return True
