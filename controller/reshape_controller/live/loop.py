"""The single writer: drains events, steps the engine, appends, and only then lets effects happen.

Does: one append per batch (events, plans and commands together), after which each waiting request
is answered; keeps the deadlines. The journal has the position in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from reshape_controller.core import events as ev
from reshape_controller.core import invariants
from reshape_controller.core.commands import Command
from reshape_controller.core.engine import Engine
from reshape_controller.core.errors import ReshapeError
from reshape_controller.core.limits import BATCH_BYTES_MAX, BATCH_EVENTS_MAX, LOCAL, Limits
from reshape_controller.core.model import JobId, Mechanism
from reshape_controller.core.plan import Plan, Policy, Snapshot
from reshape_controller.core.record import LogRecord
from reshape_controller.fits.convergence import Refits
from reshape_controller.live.clock import Clock
from reshape_controller.live.journal import Journal
from reshape_controller.live.marks import LogMarks
from reshape_controller.live.policy_limit import PolicyLimit
from reshape_controller.live.projection import changes_of
from reshape_controller.live.recovery import recover
from reshape_controller.scheduling import rounds
from reshape_controller.scheduling.planner import FailureKind, Planner, PolicyFailure
from reshape_controller.scheduling.rounds import EventFailed, Round
from reshape_controller.store.protocol import Store
from reshape_sidecar import codec

SEED_MAX = 2**31 - 1
"""Largest seed that is drawn if none is given."""
IDLE_WAIT_MAX_S = 5.0
"""Longest sleep; if it takes longer, the process was stopped meanwhile."""
HELD_UP_S = 5.0
"""An append, or a stop of the process, that takes longer than this delays every deadline."""

log = structlog.get_logger("reshape.loop")


async def _nothing() -> None: ...


class Stopped(ReshapeError):
    """The loop ended before it could say whether the event is in the log."""


class CannotTake(ReshapeError):
    """The engine fails at this event (a defect): it must not be sent again."""


class CommandRunner(Protocol):
    """Carries out commands after their append."""

    def carry_out(self, engine: Engine, commands: tuple[Command, ...]) -> None:
        """Begin the commands; must not block, and a repeat must do no harm."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of this controller's run."""

    policy: Policy
    mechanism: Mechanism = Mechanism.SIDECAR
    limits: Limits = LOCAL
    seed: int | None = None
    """Seed for policies that draw; None: the log's, which was drawn when it began."""
    check_invariants: bool = True


class Stopwatch(Protocol):
    """Is told how long the steps of the loop took."""

    def decided(self, reason: str, took_s: float) -> None:
        """Take in one decision of the policy, with the reason of its plan."""

    def appended(self, took_s: float) -> None:
        """Take in one append to the log."""


@dataclass(slots=True)
class _Entry:
    """An event that waits for its batch."""

    event: ev.Event
    done: asyncio.Future[bool] | None
    """Answered after the append; None if no request waits for it."""
    size_bytes: int
    rest: int = 0
    """Number of entries after it that must be in the same append."""
    rest_bytes: int = 0


class TimedPlanner(Planner):
    """Measures the time that each plan takes, and ends a decision that takes too long."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self.took_s: list[float] = []
        self._limit = PolicyLimit()

    def ask(self, snapshot: Snapshot) -> Plan:
        return self._limit.of(functools.partial(super().ask, snapshot))

    def plan(self, engine: Engine) -> Plan:
        begin_s = time.perf_counter()
        try:
            return super().plan(engine)
        finally:
            self.took_s.append(time.perf_counter() - begin_s)


class Loop:
    """One per daemon, in one event loop."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        clock: Clock,
        marks: LogMarks | None = None,
        stopwatch: Stopwatch | None = None,
    ) -> None:
        self.store = store
        self.settings = settings
        self.engine = Engine()
        self.planner = TimedPlanner(settings.policy)
        self.journal = Journal(store, marks)
        self.stopped = asyncio.Event()
        self.problem = "the controller is starting"
        """Why no request is accepted now; empty if they are."""
        self._clock = clock
        self._stopwatch = stopwatch
        self._queue: deque[_Entry] = deque()
        self._batch: tuple[_Entry, ...] = ()
        self._wake = asyncio.Event()
        self._refits = Refits()
        self._stopping = False
        self._effects: CommandRunner | None = None

    async def start(
        self, effects: CommandRunner, look: Callable[[], Awaitable[None]] = _nothing
    ) -> None:
        """Recover from an open store, commit the take-over, and repeat the outstanding commands.

        ``look``: checks the recovered engine before anything is appended, and may raise. Raises
        RolledBack, StoreError, Fenced, and any error of ``look``.
        """
        await self.journal.check_marks()  # before anything is written: recovery repairs rows
        recovered = await recover(self.store)
        self.engine = recovered.engine
        self.journal.take_over(recovered)
        await look()
        self._clock.not_before(self.engine.state.now_s)
        if recovered.mismatches:
            log.warning("other-commands-than-committed", seqs=recovered.mismatches[:10])
        self._effects = effects
        settings, seed = self.settings, self.settings.seed
        if seed is None:
            seed = self.engine.state.seed if recovered.epoch else secrets.randbelow(SEED_MAX + 1)
        policy = settings.policy.name
        epoch, limits = self.journal.epoch, settings.limits
        started = ev.ControllerStarted(epoch, policy, settings.mechanism, limits, seed)
        self._queue.appendleft(self._entry(started))
        began_s = self._clock.now_s()
        await self._commit_batch()
        self._held_up_since(began_s)
        effects.carry_out(self.engine, self.engine.outstanding())
        self.problem = ""
        journal, jobs = self.journal, len(self.engine.state.jobs)
        log.info("controller-started", epoch=journal.epoch, seq=journal.seq, jobs=jobs, seed=seed)

    async def run(self) -> None:
        """Commit batches until ``stop``. Raises Fenced, or the engine's own error (a defect)."""
        try:
            while not self._stopping:
                self._held_up_since(await self._sleep())
                began_s = self._clock.now_s()
                await self._commit_batch()
                if [type(entry.event) for entry in self._batch] != [ev.ControllerHeldUp]:
                    self._held_up_since(began_s)
            await self.journal.end(self.engine.state.dump)
        except Exception as error:
            self.problem = str(error)
            raise
        finally:
            self.stopped.set()
            self._fail_waiting()

    def stop(self) -> None:
        """End ``run`` after the batch under way. No job is touched."""
        self._stopping = True
        self.problem = "the controller is stopping"
        self._wake.set()

    def post(self, event: ev.Event) -> None:
        """Queue an event; it is in the log once its batch is appended."""
        self._queue.append(self._entry(event))
        self._wake.set()

    async def commit(self, *events: ev.Event) -> bool:
        """Queue events and wait until they are in the log, in one append; return whether the
        projections show them. They must not be beyond the bounds of a batch. Raises Stopped,
        CannotTake."""
        if self.stopped.is_set():
            raise Stopped("the controller is stopping; nothing was accepted")
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        entries = [self._entry(event) for event in events]
        rest_bytes = 0
        for rest, entry in enumerate(reversed(entries)):
            entry.done, entry.rest, entry.rest_bytes = done, rest, rest_bytes
            rest_bytes += entry.size_bytes
        self._queue.extend(entries)
        self._wake.set()
        return await done

    def _entry(self, event: ev.Event) -> _Entry:
        text = codec.dumps(event)
        try:
            return _Entry(event, None, len(text.encode()))
        except UnicodeEncodeError:  # half a character, which no store takes; the rest counts
            whole = text.encode(errors="replace")
            return _Entry(codec.loads(type(event), whole), None, len(whole))

    def _fail_waiting(self) -> None:
        for entry in (*self._batch, *self._queue):
            if entry.done is not None and not entry.done.done():
                entry.done.set_exception(Stopped("the controller stopped before it could answer"))

    async def _sleep(self) -> float:
        """Sleep until there is something to do; return the latest time at which to wake."""
        now_s = self._clock.now_s()
        if self._queue or self.engine.wants_plan():
            return now_s
        due_s = self.engine.next_deadline_s()
        wait_s = IDLE_WAIT_MAX_S if due_s is None else min(IDLE_WAIT_MAX_S, due_s - now_s)
        if self.journal.has_pending_projections:
            wait_s = min(wait_s, self.journal.projection_retry_s)
        if wait_s > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
        self._wake.clear()
        return now_s + max(0.0, wait_s)

    def _held_up_since(self, since_s: float) -> None:
        """Queue ``ControllerHeldUp``, ahead of due deadlines, if nothing happened for too long."""
        held_s = round(self._clock.now_s() - since_s, 3)
        if held_s > HELD_UP_S:
            log.warning("held-up", held_s=held_s, consequence="all deadlines move by as much")
            self._queue.appendleft(self._entry(ev.ControllerHeldUp(held_s)))

    def _drain(self, now_s: float) -> tuple[_Entry, ...]:
        batch: list[_Entry] = []
        size_bytes = 0
        while self._queue:
            head = self._queue[0]
            count, head_bytes = len(batch) + 1 + head.rest, head.size_bytes + head.rest_bytes
            if batch and (count > BATCH_EVENTS_MAX or size_bytes + head_bytes > BATCH_BYTES_MAX):
                break
            batch.append(self._queue.popleft())
            size_bytes += batch[-1].size_bytes
        if not self._queue and self.engine.next_deadline_s(now_s) is not None:
            # After every event that is queued: one of them may be what the deadline waits for.
            batch.append(self._entry(ev.DeadlinesDue()))
        return tuple(batch)

    async def _commit_batch(self) -> None:
        now_s = max(self._clock.now_s(), self.engine.state.now_s)
        batch, done = await self._round(self._drain(now_s), now_s)
        if not batch and not done.decisions:
            if self.journal.has_pending_projections:
                await self.journal.project(None, self.engine.state.dump)
            return
        if self.settings.check_invariants:
            invariants.check(self.engine.state)
        record = LogRecord(
            seq=0,
            epoch=0,
            writer="",
            policy=self.settings.policy.name,
            at_s=now_s,
            events=tuple(entry.event for entry in batch),
            plans=done.plans,
            commands=done.commands,
            digest="",
        )
        append_at_s = time.perf_counter()
        record = await self.journal.append(record, lambda: self._stopping)
        if self._stopwatch is not None:
            self._stopwatch.appended(time.perf_counter() - append_at_s)
        if self._effects is not None:
            self._effects.carry_out(self.engine, record.commands)
        changes = changes_of(self.engine, record, done.history)
        await self.journal.project(changes, self.engine.state.dump)
        for entry in batch:
            if entry.done is not None and not entry.done.done():
                entry.done.set_result(not self.journal.has_pending_projections)
        for fitted in self._refits.due(self.engine.state):
            self.post(fitted)
        for job, reason in self._refits.refusals():
            log.warning("curve-refused", job=job, reason=reason)

    async def _round(
        self, batch: tuple[_Entry, ...], now_s: float
    ) -> tuple[tuple[_Entry, ...], Round]:
        """Do the round of a batch, and log its decisions and the policy's failures; return the
        batch without what the engine fails at. Raises the engine's error if that is of no job's and
        no user's making, StoreError and what ``recover`` does."""
        while True:
            self._batch = batch
            self.planner.took_s.clear()
            try:
                done = rounds.run(self.engine, self.planner, [each.event for each in batch], now_s)
                break
            except EventFailed as failed:
                entry = batch[failed.number]
                log.error("engine-failed", taken=codec.dumps(entry.event), error=repr(failed.error))
                batch = _without(batch, entry, failed)
                # It may have taken in a part of the event: the log has the state of before.
                self.engine = (await recover(self.store)).engine
                self.planner = TimedPlanner(self.planner.policy)
        for decision, took_s in zip(done.decisions, self.planner.took_s, strict=True):
            if decision.failure is not None:
                _log_failure(decision.failure)
            if self._stopwatch is not None:
                self._stopwatch.decided(decision.plan.reason_code, took_s)
            if decision.plan.targets:
                reason, decide_ms = decision.plan.reason_code, round(took_s * 1e3, 2)
                log.info("decided", reason=reason, decide_ms=decide_ms)
        return batch, done


def _without(batch: tuple[_Entry, ...], bad: _Entry, failed: EventFailed) -> tuple[_Entry, ...]:
    """Return a batch without what one job or user has sent: an attempt at whose report the engine
    fails is set apart, and a request is refused with all that belongs to it. Raises the engine's
    error at any other event."""
    if isinstance(bad.event, ev.SideCarReported):
        seen = bad.event.observed
        text = f"the controller failed at its report ({failed.error!r:.200}), a defect"
        bad.event = ev.SideCarContradicted(JobId(seen.job), seen.attempt, text)
        return batch
    if bad.done is not None:
        if not bad.done.done():
            bad.done.set_exception(CannotTake(str(failed)))
        return tuple(each for each in batch if each.done is not bad.done)
    if isinstance(bad.event, ev.CurveFitted):
        return tuple(each for each in batch if each is not bad)
    raise failed.error from None


def _log_failure(failure: PolicyFailure) -> None:
    match failure.kind:
        case FailureKind.POLICY_FAILED:
            log.error("policy-failed", policy=failure.policy, exc_info=failure.error)
        case FailureKind.PLAN_REJECTED:
            log.error("plan-rejected", policy=failure.policy, reason=failure.text)
