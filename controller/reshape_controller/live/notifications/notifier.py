"""The notifier: follows the history for each target, and sends what it asks for, at least once.

Does: reads the history after a target's cursor, sends each message until the receiver takes or
refuses it, and then moves the cursor, which is in the store. A controller that another has replaced
sends nothing more. Each target has a task of its own, so no receiver delays another or the loop.
State: the waits that were sent; the cursors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

import structlog

from reshape_controller.core.model import Job, JobId
from reshape_controller.core.state import State
from reshape_controller.live.journal import Fenced
from reshape_controller.live.notifications.delivery import DeliveryFailed, Outcome, deliver
from reshape_controller.live.notifications.messages import (
    EVENTS,
    Message,
    of_entry,
    of_wait,
    wait_id,
    waited_long,
)
from reshape_controller.live.notifications.targets import Event, Target
from reshape_controller.store.protocol import Store, StoreError

LOOK_S = 0.5
"""Pause between two looks at the history."""
WAITS_EVERY = 10
"""Looks between two looks for jobs that wait too long."""
RECORDS = 500
"""Records of the log of which the history is read at once."""
BACK_OFF_S = 1.0
BACK_OFF_MAX_S = 60.0
"""Pause after a failure, doubled from ``BACK_OFF_S`` up to here."""
STORE_RETRY_S = 5.0
CURSOR = "notified/"
"""Begins the name of a target's cursor in the store."""

log = structlog.get_logger("reshape.notify")


class Tally(Protocol):
    """Counts deliveries."""

    def notified(self, outcome: str) -> None:
        """Count the end of one try."""


class Notifier:
    """The notifications of one target."""

    def __init__(
        self,
        target: Target,
        store: Store,
        check_fence: Callable[[], Awaitable[None]],
        shown_seq: Callable[[], int],
        state: Callable[[], State],
        now_s: Callable[[], float],
        tally: Tally,
    ) -> None:
        """``check_fence`` raises Fenced once another controller writes the log; ``shown_seq``:
        newest record that the projections show; ``state``: the engine's."""
        self._target = target
        self._store = store
        self._check_fence = check_fence
        self._shown_seq = shown_seq
        self._state = state
        self._now_s = now_s
        self._tally = tally
        self._cursor_name = CURSOR + target.name
        self._sent_waits: set[str] = set()
        self._noted_seq = 0
        """Cursor as the store has it; a kill before it is noted again repeats what was sent."""
        self._sent_since = False
        """Whether something was sent after it."""

    async def run(self) -> None:
        """Send for ever. A store that fails is asked again. Raises Fenced."""
        looks = 0
        cursor = await self._retried_begin()
        while True:
            try:
                cursor = await self._follow(cursor)
                if looks % WAITS_EVERY == 0:
                    await self._send_waits()
            except Fenced:
                raise
            except Exception as error:  # a defect, too: no notification may stop the controller
                what = str(error) if isinstance(error, StoreError) else repr(error)
                log.warning("notifications-delayed", target=self._target.name, error=what)
                await asyncio.sleep(STORE_RETRY_S)
                cursor = max(cursor, self._noted_seq)  # what it noted is not sent again
            looks += 1
            await asyncio.sleep(LOOK_S)

    async def _retried_begin(self) -> int:
        while True:
            try:
                return await self._begin()
            except StoreError as error:
                log.warning("notifications-delayed", target=self._target.name, error=str(error))
                await asyncio.sleep(STORE_RETRY_S)

    async def _begin(self) -> int:
        """Return the cursor; a target without one begins with what comes. Raises StoreError."""
        cursor, end = await self._store.cursor(self._cursor_name), self._shown_seq()
        if cursor is None or cursor > end:
            cursor = end
            await self._note(cursor)
        self._noted_seq = cursor
        return cursor

    async def _follow(self, cursor: int) -> int:
        """Send what the history has after the cursor; return the new one. Raises StoreError."""
        while cursor < (shown := self._shown_seq()):
            up_to = min(shown, cursor + RECORDS)
            rows = await self._store.history_between(cursor, up_to)
            for seq, number, entry in rows:
                if seq - 1 > cursor and self._sent_since:
                    await self._note(seq - 1)
                cursor = seq - 1
                if entry.kind not in EVENTS:
                    continue
                job = await self._job(entry.job)
                for message in of_entry(self._target, seq, number, entry, job):
                    await self._send(message)
                    self._sent_since = True
            cursor = up_to
            if self._sent_since or cursor - self._noted_seq >= RECORDS:
                await self._note(cursor)
        return cursor

    async def _note(self, cursor: int) -> None:
        """Note in the store that everything up to a record was sent. Raises StoreError, Fenced."""
        await self._check_fence()
        await self._store.set_cursor(self._cursor_name, cursor)
        self._noted_seq, self._sent_since = cursor, False

    async def _send_waits(self) -> None:
        """Send for each queued job that waits too long. A job that began meanwhile has an entry in
        the history for it."""
        if Event.WAITING not in self._target.events:
            return
        now_s = self._now_s()
        mine = [job for job in self._state().jobs.values() if self._target.name in job.spec.notify]
        for job in mine:
            is_due = job.started_at_s is None and waited_long(self._target, job, now_s)
            if is_due and wait_id(job) not in self._sent_waits:
                await self._send(of_wait(self._target, job))
        self._sent_waits &= {wait_id(job) for job in mine}

    async def _job(self, key: JobId | None) -> Job | None:
        row = await self._store.job(key) if key is not None else None
        return row.job if row is not None else None

    async def _send(self, message: Message) -> None:
        """Send a message until the receiver takes or refuses it. Raises StoreError, Fenced."""
        if message.id in self._sent_waits:
            return
        pause_s, fault = BACK_OFF_S, ""
        while True:
            await self._check_fence()
            try:
                outcome = await deliver(self._target, message, self._now_s())
                break
            except DeliveryFailed as error:
                self._tally.notified(Outcome.FAILED)
                if str(error) != fault:
                    fault = str(error)
                    log.warning("notification-failed", **self._about(message), error=fault)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, BACK_OFF_MAX_S)
        self._tally.notified(outcome)
        if outcome is Outcome.REFUSED:
            log.warning("notification-refused", **self._about(message))
        if message.event is Event.WAITING:
            self._sent_waits.add(message.id)

    def _about(self, message: Message) -> dict[str, str]:
        """Values of a line of the log, without secrets."""
        return {"target": self._target.name, "url": self._target.shown, "id": message.id}


async def run_all(notifiers: Iterable[Notifier]) -> None:
    """Run the notifiers until cancelled; without one, wait. Raises Fenced, not a group with it."""
    await asyncio.gather(asyncio.Event().wait(), *(notifier.run() for notifier in notifiers))
