"""GET /v1/events: the records of the log as server-sent events, as they come.

Does: sends what each record changed, with the record's number as the event's id, so that a reader
goes on after the last one that it has; closes the connection of a reader that takes nothing.
Never: sends a record before the tables show it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace

from tornado.http1connection import HTTP1Connection
from tornado.iostream import StreamClosedError

from reshape_controller.access.rights import Right, Verdict, lists_all
from reshape_controller.core.record import HistoryEntry
from reshape_controller.http.base import Handler
from reshape_controller.http.errors import ApiError, bad_request
from reshape_controller.http.feed import Change, ChangedJob
from reshape_controller.http.json_text import to_json
from reshape_controller.http.render import event_view
from reshape_controller.http.timeline import YIELD_EVERY
from reshape_controller.store.protocol import StoreError
from reshape_gpu.values import EventView

POLL_S = 0.25
"""Pause between two looks at the log."""
AUTHORIZE_S = 1.0
"""Least time between two checks of the token."""
FLUSH_S = 10.0
"""Longest time for which a client may take nothing of what was sent."""
HEARTBEAT_S = 15.0
"""A comment is sent after so long without an event: a proxy then keeps the connection."""
ENTRIES_AT_ONCE = 20
"""Lines and jobs of a change that are written at once."""
OPEN_MAX_S = 86400.0
HEADER = "Last-Event-ID"


@dataclass(frozen=True, slots=True)
class RecordEvent:
    """What one record changed: lines of the history, and jobs."""

    seq: int
    at_s: float
    history: tuple[EventView, ...]
    jobs: tuple[ChangedJob, ...]


@dataclass(frozen=True, slots=True)
class Position:
    """Number of the record from which the reader goes on."""

    seq: int


class Events(Handler):
    """GET: ``ready`` or ``reset`` first, then a ``record`` for each record."""

    _is_closed = False
    _authorize_at_s = 0.0

    def on_connection_close(self) -> None:
        super().on_connection_close()
        self._is_closed = True

    async def get(self) -> None:
        open_s = self.number("wait_s", OPEN_MAX_S, 0.0, OPEN_MAX_S)
        asked = self._asked()
        with self.context.room.hold(self.identity.name):
            self.set_header("Content-Type", "text/event-stream; charset=utf-8")
            self.set_header("X-Accel-Buffering", "no")  # of nginx: send each event at once
            self._authorize_at_s = time.monotonic() + AUTHORIZE_S
            try:
                seq = self.context.control.shown_seq() if asked is None else asked
                await self._follow(seq, time.monotonic() + open_s)
            except StreamClosedError:
                return
            except asyncio.CancelledError:  # the daemon stops; no error can follow what was sent
                self.finish()
                raise
            except ApiError:  # the token was revoked; the next request says so
                pass
            self.finish()

    async def _follow(self, seq: int, until_s: float) -> None:
        """Send the records after ``seq`` as they come. Raises StreamClosedError, ApiError."""
        beat_s = time.monotonic() + HEARTBEAT_S
        await self._send("ready", seq, to_json(Position(seq)))
        while not self._is_closed:
            shown = self.context.control.shown_seq()
            if shown != seq:
                seq = await self._send_after(seq, shown)
                beat_s = time.monotonic() + HEARTBEAT_S
            elif time.monotonic() >= beat_s:
                self.write(": still here\n\n")
                await self._flush()
                beat_s = time.monotonic() + HEARTBEAT_S
            if time.monotonic() >= until_s:
                break
            await asyncio.sleep(min(POLL_S, max(0.0, until_s - time.monotonic())))
            self._authorize_now_and_then()

    def _authorize_now_and_then(self) -> None:
        """Check the token if the last check was a while ago. Raises ApiError."""
        if time.monotonic() >= self._authorize_at_s:
            self.authorize()
            self._authorize_at_s = time.monotonic() + AUTHORIZE_S

    def _asked(self) -> int | None:
        """The record after which the reader goes on; None: after the newest. Raises ApiError."""
        text = self.request.headers.get(HEADER)
        if text is None:
            if self.get_query_argument("after", None) is None:
                return None
            return self.count("after", 0)
        if not text.isascii() or not text.isdigit() or len(text) > 15:
            hint = "send the id of the last event that you got, or leave it out"
            raise bad_request(f"{text!r} is no number of a record", f"header {HEADER}", hint)
        return int(text)

    async def _send_after(self, seq: int, shown: int) -> int:
        """Send the records after ``seq``; return the number of the last one."""
        store = self.context.control.store
        try:
            changes = await self.context.timeline.changes(store, seq, shown)
        except StoreError:
            return seq  # the next look tries again
        if changes is None or seq > shown:
            await self._send("reset", shown, to_json(Position(shown)))
            return shown
        for count, change in enumerate(changes, 1):
            if count % YIELD_EVERY == 0:
                await asyncio.sleep(0)
            text = await self._text_of(change)
            if text:
                await self._send("record", change.seq, text)
            self._authorize_now_and_then()
        return shown

    async def _text_of(self, change: Change) -> str:
        """What the author may see of a change, as JSON; empty if it is nothing. A change of many
        jobs takes turns, and is made beside the rest of the daemon. Raises ApiError."""
        if change.entries <= ENTRIES_AT_ONCE:
            event = self._visible(change)
            return to_json(event) if event.history or event.jobs else ""
        async with self.context.room.turn(self.identity.name):
            event = await asyncio.to_thread(self._visible, change)
            if not event.history and not event.jobs:
                return ""
            return await asyncio.to_thread(to_json, event)

    async def _send(self, kind: str, seq: int, text: str) -> None:
        self.write(f"id: {seq}\nevent: {kind}\ndata: {text}\n\n")
        await self._flush()

    async def _flush(self) -> None:
        """Send what was written, or close the connection. Raises StreamClosedError."""
        try:
            async with asyncio.timeout(FLUSH_S):
                await self.flush()
        except TimeoutError:
            connection = self.request.connection
            assert isinstance(connection, HTTP1Connection)
            connection.stream.close()
            raise StreamClosedError from None

    def _visible(self, change: Change) -> RecordEvent:
        """What the author of the request may see of a change: texts of own jobs alone."""
        everything = lists_all(self.identity, self.context.identities.users_see_all)
        owners = {job.id: job.user for job in change.jobs}
        views = [
            visible_entry(self, entry, owners.get(entry.job) if entry.job is not None else None)
            for entry in change.history
        ]
        history = tuple(view for view in views if view is not None)
        jobs = tuple(job for job in change.jobs if everything or _reads(self, job.user))
        return RecordEvent(change.seq, change.at_s, history, jobs)


def visible_entry(author: Handler, entry: HistoryEntry, owner: str | None) -> EventView | None:
    """Return what the author of a request may see of an entry; None: nothing. ``owner``: the user
    of its job; None: it is not known whose it is."""
    everything = lists_all(author.identity, author.context.identities.users_see_all)
    view = event_view(entry)
    if entry.job is None:
        return view if everything else replace(view, text="")
    if _reads(author, owner):
        return view
    return replace(view, text="", value=None) if everything else None


def _reads(author: Handler, owner: str | None) -> bool:
    return author.verdict(Right.READ_JOB, owner or "") is Verdict.ALLOWED
