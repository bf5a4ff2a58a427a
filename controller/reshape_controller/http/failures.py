"""The jobs that failed, and those that completed, in the last day.

Does: reads the history of the day once, and then follows the log; after a gap it reads the history
of the gap. State: at most ``most`` of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from reshape_controller.core.model import JobId, JobState
from reshape_controller.http.history_parts import parts_back
from reshape_controller.http.timeline import TimelineReader
from reshape_controller.store.protocol import JobRow, Store
from reshape_gpu.overview import FailureLine

FAILURES_MAX = 10_000
"""Failures that are remembered; with more in a day, the oldest are not counted."""
COMPLETIONS_MAX = 10
"""Completed jobs that are remembered: the newest."""


@dataclass(slots=True)
class DayEnds:
    """The jobs that came to one last state in the last day; one per daemon and state."""

    state: JobState = JobState.FAILED
    most: int = FAILURES_MAX
    _lines: dict[str, FailureLine] = field(default_factory=dict)
    _seq: int | None = None
    """Newest record that was looked at; None: the store was not read yet."""
    _busy: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while the store is read, so that first readers do not all read it."""

    async def read(
        self, store: Store, timeline: TimelineReader, seq: int, since_s: float
    ) -> tuple[FailureLine, ...]:
        """Return those since a time, newest first. ``seq``: newest record that the tables
        show. Raises StoreError."""
        async with self._busy:
            known = self._seq
            changes = None if known is None else await timeline.changes(store, known, seq)
            if changes is None:
                ids = await self._ended_since(store, known or 0, seq, since_s)
            else:
                jobs = [job for each in changes for job in each.jobs]
                ids = [JobId(job.id) for job in jobs if job.state == self.state]
            rows = [await store.job(key) for key in dict.fromkeys(ids)]
            self._add(row for row in rows if row is not None)
            self._seq = max(seq, self._seq or 0)
            self._lines = {key: line for key, line in self._lines.items() if line.at_s >= since_s}
            found = sorted(self._lines.values(), key=lambda line: (-line.at_s, line.id))
            del found[self.most :]
            self._lines = {line.id: line for line in found}
            return tuple(found)

    def _add(self, rows: Iterable[JobRow]) -> None:
        for row in rows:
            if row.job is not None and row.job.finished_at_s is not None:
                at_s, reason = row.job.finished_at_s, row.job.reason
                self._lines[row.id] = FailureLine(row.id, row.name, row.user, at_s, reason)

    async def _ended_since(
        self, store: Store, after_seq: int, up_to_seq: int, since_s: float
    ) -> list[JobId]:
        """The jobs that came to the state in the records after one, up to another, and since a
        time, the newest first: the history is read back from its end. Raises StoreError."""
        found: dict[JobId, None] = {}
        async for entries in parts_back(store, after_seq, up_to_seq):
            for entry in entries:
                if entry.kind == self.state and entry.job is not None and entry.at_s >= since_s:
                    found[entry.job] = None
            if len(found) >= self.most or (entries and entries[-1].at_s < since_s):
                break
        return list(found)[: self.most]


def completions() -> DayEnds:
    """Return the reader of the jobs that completed."""
    return DayEnds(JobState.COMPLETED, COMPLETIONS_MAX)
