"""The end of the log as it was noted outside of the store: compared at a start, then written.

Does: refuses a log that is shorter than a mark, or another log; notes each acknowledged record. A
mark that cannot be written or read is logged, and stops nothing.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import structlog

from reshape_controller.core.record import LogRecord
from reshape_controller.store.digest import GENESIS
from reshape_controller.store.mark import Mark, MarkDamaged, MarkFile, parse
from reshape_controller.store.protocol import RolledBack, Store, StoreCorrupt

LAG_S = 10.0
"""Time in which a server that has just changed its primary may still show an older end."""
LAG_POLL_S = 0.5
LEASE = "the lease"

log = structlog.get_logger("reshape.journal")


class LogMarks:
    """One per loop: the file of the home (None: there is none), and the lease's mark."""

    def __init__(
        self, file: Path | None = None, lease: Mark | None = None, *, lag_s: float = 0.0
    ) -> None:
        self._file = MarkFile(file) if file is not None else None
        self._lease = lease
        self._lag_s = lag_s
        self._write_fails = False
        self.newest: Mark | None = None
        """The mark of the newest record that this controller appended."""
        self.epoch = 0
        """Highest epoch in a mark; this controller's is higher."""
        self.loss_accepted = False
        """True if an operator accepted a loss, and no record was appended since."""

    async def check(self, store: Store) -> None:
        """Compare an open store with the marks. Raises RolledBack, StoreError."""
        noted = self._noted()
        self.epoch = max((mark.epoch for mark, _ in noted), default=0)
        self.loss_accepted = any(mark.accepts_loss for mark, _ in noted)
        for mark, source in noted:
            if source == LEASE and self.loss_accepted:
                continue
            last = await self._last_seq(store, mark.seq)
            if last < mark.seq or await _digest(store, mark.seq) not in (None, mark.digest):
                raise RolledBack(last, mark.seq, source)
        if self.loss_accepted:
            log.warning("loss-accepted", consequence="every container is checked before a grant")

    def note(self, record: LogRecord) -> None:
        """Note a record that the store has acknowledged."""
        self.newest = Mark(record.seq, record.epoch, record.digest)
        self.loss_accepted = False
        if self._file is None:
            return
        try:
            self._file.write(self.newest)
            self._write_fails = False
        except OSError as error:
            if not self._write_fails:
                log.warning("mark-failed", file=str(self._file.path), error=str(error))
            self._write_fails = True

    def lease_text(self, there: str) -> str:
        """The text for the lease, whose text is ``there``: the mark of the later epoch, or of the
        later record of one epoch. A fenced controller that has the lease again changes nothing."""
        other = parse(there)
        mine = self.newest
        if mine is None or (
            other is not None and (other.epoch, other.seq) > (mine.epoch, mine.seq)
        ):
            return there
        return mine.text()

    async def sync(self) -> None:
        """Make the mark durable; a failure is ignored, for the log itself is durable."""
        if self._file is not None:
            try:
                await asyncio.to_thread(self._file.sync)
            except OSError as error:
                log.warning("mark-failed", file=str(self._file.path), error=str(error))

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _noted(self) -> list[tuple[Mark, str]]:
        noted = []
        if self._file is not None:
            try:
                found = self._file.read()
            except (MarkDamaged, OSError) as error:
                log.warning(
                    "mark-unreadable",
                    error=str(error),
                    consequence="a log that was rolled back would not be noticed at this start",
                )
                found = None
            if found is not None:
                noted.append((found, str(self._file.path)))
        if self._lease is not None:
            noted.append((self._lease, LEASE))
        return noted

    async def _last_seq(self, store: Store, expected_seq: int) -> int:
        until_s = time.monotonic() + self._lag_s
        while (last := await store.last_seq()) < expected_seq and time.monotonic() < until_s:
            await asyncio.sleep(LAG_POLL_S)
        return last


def accepted(mark: Mark | None, last_seq: int, digest: str, epoch: int) -> Mark:
    """The mark after an operator accepted that the log ends at ``last_seq``, in ``epoch``."""
    highest = max(epoch, mark.epoch if mark is not None else 0)
    return Mark(last_seq, highest, digest, accepts_loss=True)


async def end_of(store: Store) -> tuple[int, str, int]:
    """Seq, digest and epoch of an open store's newest record; zeros for an empty log."""
    seq = await store.last_seq()
    async for record in store.read(max(0, seq - 1)):
        return record.seq, record.digest, record.epoch
    return 0, GENESIS, 0


async def _digest(store: Store, seq: int) -> str | None:
    """Digest of a record; None if the log, recovered from damage, begins later."""
    if seq == 0:
        return GENESIS
    try:
        async for record in store.read(seq - 1):
            return record.digest
    except StoreCorrupt:
        return None  # recovery reads the log next, and names the damage
    return None
