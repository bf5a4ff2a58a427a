"""GET /v1/history: the newest entries of the history of all jobs, hosts and the controller.

Does: reads the history back from its end, by numbers of records, so that a reader of the events
goes on after the answer without a gap or a repeat. State: none.
"""

from __future__ import annotations

from reshape_controller.core.model import JobId
from reshape_controller.core.record import HistoryEntry
from reshape_controller.http.events import visible_entry
from reshape_controller.http.history_parts import parts_back
from reshape_controller.http.jobs import JobHandler
from reshape_gpu.values import EventView, RecentHistory

ENTRIES, ENTRIES_MAX = 50, 200
"""Entries of an answer, if the request names no number, and at most."""


class RecentEvents(JobHandler):
    """GET the newest entries that the author may see, oldest first."""

    async def get(self) -> None:
        limit = self.count("limit", ENTRIES, 1, ENTRIES_MAX)
        store, seq = self.context.control.store, self.context.control.shown_seq()
        newest: list[HistoryEntry] = []
        async for part in parts_back(store, 0, seq):
            newest += part
            if len(newest) >= limit:
                break
        owners: dict[JobId, str | None] = {}
        views: list[EventView] = []
        for entry in newest[:limit]:
            if entry.job is not None and entry.job not in owners:
                row = await store.job(entry.job)
                owners[entry.job] = row.user if row is not None else None
            owner = owners[entry.job] if entry.job is not None else None
            view = visible_entry(self, entry, owner)
            views += [view] if view is not None else []
        self.answer(RecentHistory(seq, tuple(reversed(views))))
