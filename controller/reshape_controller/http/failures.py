"""The jobs that failed in the last day.

Does: reads the history of the day once, and then follows the log; after a gap it reads the history
of the gap. State: at most ``FAILURES_MAX`` of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from reshape_controller.core.model import JobId, JobState
from reshape_controller.http.timeline import TimelineReader
from reshape_controller.store.protocol import JobRow, Store
from reshape_gpu.overview import FailureLine

FAILURES_MAX = 10_000
"""Failures that are remembered; with more in a day, the oldest are not counted."""
RECORDS = 1000
"""Records of which the history is read at once."""


@dataclass(slots=True)
class Failures:
    """The failures of the last day; one per daemon."""

    _lines: dict[str, FailureLine] = field(default_factory=dict)
    _seq: int | None = None
    """Newest record that was looked at; None: the store was not read yet."""
    _busy: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the store is read, so that first readers do not all read it."""

    async def read(
        self, store: Store, timeline: TimelineReader, seq: int, since_s: float
    ) -> tuple[FailureLine, ...]:
        """Return the failures since a time, newest first. ``seq``: newest record that the tables
        show. Raises StoreError."""
        async with self._busy:
            known = self._seq
            changes = None if known is None else await timeline.changes(store, known, seq)
            if changes is None:
                ids = await _failed_since(store, known or 0, seq, since_s)
            else:
                jobs = [job for each in changes for job in each.jobs]
                ids = [JobId(job.id) for job in jobs if job.state == JobState.FAILED]
            rows = [await store.job(key) for key in dict.fromkeys(ids)]
            self._add(row for row in rows if row is not None)
            self._seq = max(seq, self._seq or 0)
            self._lines = {key: line for key, line in self._lines.items() if line.at_s >= since_s}
            found = sorted(self._lines.values(), key=lambda line: (-line.at_s, line.id))
            del found[FAILURES_MAX:]
            self._lines = {line.id: line for line in found}
            return tuple(found)

    def _add(self, rows: Iterable[JobRow]) -> None:
        for row in rows:
            if row.job is not None and row.job.finished_at_s is not None:
                at_s, reason = row.job.finished_at_s, row.job.reason
                self._lines[row.id] = FailureLine(row.id, row.name, row.user, at_s, reason)


async def _failed_since(
    store: Store, after_seq: int, up_to_seq: int, since_s: float
) -> list[JobId]:
    """Return the jobs that failed in the records after one, up to another, and since a time, the
    newest first: the history is read back from its end. Raises StoreError."""
    found: dict[JobId, None] = {}
    end_seq = up_to_seq
    while end_seq > after_seq and len(found) < FAILURES_MAX:
        begin_seq = max(after_seq, end_seq - RECORDS)
        entries = [entry for _, _, entry in await store.history_between(begin_seq, end_seq)]
        for entry in reversed(entries):
            if entry.kind == JobState.FAILED and entry.job is not None and entry.at_s >= since_s:
                found[entry.job] = None
        if entries and entries[0].at_s < since_s:
            break
        end_seq = begin_seq
    return list(found)
