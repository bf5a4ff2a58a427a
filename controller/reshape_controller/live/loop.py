"""The single writer: drains events, steps the engine, appends, and only then lets effects happen.

Does: one append per batch (events, plans and commands together), by which all who wait for it are
answered; deadlines. Never: decides, or carries out a command before its append. State: the engine,
and the events that wait; the journal has the position in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
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
from reshape_controller.core.engine import Engine, Step
from reshape_controller.core.errors import PlanRejected, ReshapeError
from reshape_controller.core.limits import (
    BATCH_BYTES_MAX,
    BATCH_EVENTS_MAX,
    PLAN_ROUNDS_MAX,
    Limits,
)
from reshape_controller.core.model import Mechanism
from reshape_controller.core.plan import Plan, Policy
from reshape_controller.core.record import HistoryEntry, LogRecord
from reshape_controller.fits.convergence import Refits
from reshape_controller.live.clock import Clock
from reshape_controller.live.journal import APPEND_RETRY_S, Journal
from reshape_controller.live.projection import changes_of
from reshape_controller.live.recovery import recover
from reshape_controller.scheduling import legal_moves
from reshape_controller.store.protocol import Store
from reshape_sidecar import codec

SEED_MAX = 2**31 - 1
"""Largest seed that is drawn where none was given."""
IDLE_WAIT_MAX_S = 5.0
"""Longest sleep: one that took longer tells that the process was stopped."""
HELD_UP_S = 5.0
"""An append, or a stop of the process, that takes longer delays every deadline by its length."""

log = structlog.get_logger("reshape.loop")


async def _nothing() -> None: ...


class Stopped(ReshapeError):
    """The loop ended before it could say whether the event is in the log."""


class CannotTake(ReshapeError):
    """The engine fails at this very event (a defect): it is not to be sent again."""


class Effects(Protocol):
    """What carries out commands after their append."""

    def carry_out(self, engine: Engine, commands: tuple[Command, ...]) -> None:
        """Begin to carry out; must not block, and repeats must do no harm."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How this controller runs."""

    policy: Policy
    mechanism: Mechanism = Mechanism.SIDECAR
    limits: Limits = Limits()
    seed: int | None = None
    """For policies that draw; None: that of the log, drawn when it began."""
    check_invariants: bool = True


@dataclass(slots=True)
class _Waiting:
    event: ev.Event
    done: asyncio.Future[bool] | None
    size_bytes: int


class Loop:
    """One per daemon, in one event loop."""

    def __init__(self, store: Store, settings: Settings, clock: Clock) -> None:
        self.store = store
        self.settings = settings
        self.engine = Engine()
        self.journal = Journal(store)
        self.stopped = asyncio.Event()
        self.problem = "the controller is starting"
        """Why it is not ready; empty while it is."""
        self._clock = clock
        self._waiting: deque[_Waiting] = deque()
        self._taken: tuple[_Waiting, ...] = ()
        self._wake = asyncio.Event()
        self._refits = Refits()
        self._stopping = False
        self._effects: Effects | None = None

    async def start(self, effects: Effects, look: Callable[[], Awaitable[None]] = _nothing) -> None:
        """Recover from an open store, commit the take-over, and repeat what is outstanding.

        ``look`` sees the recovered engine before anything is appended, and may refuse to go on.
        Raises StoreError, Fenced, what ``look`` raises.
        """
        found = await recover(self.store)
        self.engine = found.engine
        self.journal.take_over(found)
        await look()
        self._clock.not_before(self.engine.state.now_s)
        if found.mismatches:
            log.warning("other-commands-than-committed", seqs=found.mismatches[:10])
        self._effects = effects
        settings, seed = self.settings, self.settings.seed
        if seed is None:
            seed = self.engine.state.seed if found.epoch else secrets.randbelow(SEED_MAX + 1)
        policy = settings.policy.name
        epoch, limits = self.journal.epoch, settings.limits
        started = ev.ControllerStarted(epoch, policy, settings.mechanism, limits, seed)
        self._waiting.appendleft(self._entry(started))
        began_s = self._clock.now_s()
        await self._commit_batch()
        self._held_up_since(began_s)
        effects.carry_out(self.engine, self.engine.outstanding())
        self.problem = ""
        journal, jobs = self.journal, len(self.engine.state.jobs)
        log.info("controller-started", epoch=journal.epoch, seq=journal.seq, jobs=jobs, seed=seed)

    async def run(self) -> None:
        """Work until ``stop``. Raises Fenced, or what the engine raised (a defect)."""
        try:
            while not self._stopping:
                self._held_up_since(await self._sleep())
                began_s = self._clock.now_s()
                await self._commit_batch()
                if [type(entry.event) for entry in self._taken] != [ev.ControllerHeldUp]:
                    self._held_up_since(began_s)
            await self.journal.end(self.engine.state.dump)
        except Exception as error:
            self.problem = str(error)
            raise
        finally:
            self.stopped.set()
            self._give_up()

    def stop(self) -> None:
        """End ``run`` after the batch under way. No job is touched."""
        self._stopping = True
        self.problem = "the controller is stopping"
        self._wake.set()

    def post(self, event: ev.Event) -> None:
        """Let the engine know of an event; it is in the log once its batch is appended."""
        self._waiting.append(self._entry(event))
        self._wake.set()

    async def commit(self, event: ev.Event) -> bool:
        """Wait until an event is in the log; whether the tables show it, too. Raises Stopped."""
        if self.stopped.is_set():
            raise Stopped("the controller is stopping; nothing was accepted")
        entry = self._entry(event)
        entry.done = asyncio.get_running_loop().create_future()
        self._waiting.append(entry)
        self._wake.set()
        return await entry.done

    def _entry(self, event: ev.Event) -> _Waiting:
        return _Waiting(event, None, len(codec.dumps(event).encode()))

    def _give_up(self) -> None:
        for entry in (*self._taken, *self._waiting):
            if entry.done is not None and not entry.done.done():
                entry.done.set_exception(Stopped("the controller stopped before it could answer"))

    async def _sleep(self) -> float:
        """Until there is something to do. When that had to end at the latest."""
        now_s = self._clock.now_s()
        if self._waiting or self.engine.wants_plan():
            return now_s
        due_s = self.engine.next_deadline_s()
        wait_s = IDLE_WAIT_MAX_S if due_s is None else min(IDLE_WAIT_MAX_S, due_s - now_s)
        if self.journal.owes_projections:
            wait_s = min(wait_s, APPEND_RETRY_S)
        if wait_s > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
        self._wake.clear()
        return now_s + max(0.0, wait_s)

    def _held_up_since(self, since_s: float) -> None:
        """Tell the engine, before its deadlines are due, if nothing could be done for long."""
        held_s = round(self._clock.now_s() - since_s, 3)
        if held_s > HELD_UP_S:
            log.warning("held-up", held_s=held_s, consequence="all deadlines move by as much")
            self._waiting.appendleft(self._entry(ev.ControllerHeldUp(held_s)))

    def _drain(self, now_s: float) -> tuple[_Waiting, ...]:
        taken: list[_Waiting] = []
        size_bytes = 0
        while self._waiting and len(taken) < BATCH_EVENTS_MAX:
            if taken and size_bytes + self._waiting[0].size_bytes > BATCH_BYTES_MAX:
                break
            taken.append(self._waiting.popleft())
            size_bytes += taken[-1].size_bytes
        due_s = self.engine.next_deadline_s()
        if not self._waiting and due_s is not None and due_s <= now_s:
            # Not before everything that was said by then: it may be what was waited for.
            taken.append(self._entry(ev.DeadlinesDue()))
        return tuple(taken)

    async def _commit_batch(self) -> None:
        now_s = max(self._clock.now_s(), self.engine.state.now_s)
        taken = self._taken = self._drain(now_s)
        commands: list[Command] = []
        history: list[HistoryEntry] = []
        for entry in taken:
            step = self._step(entry, now_s)
            commands += step.commands
            history += step.history
        plans = self._decide(now_s, commands, history)
        if not taken and not plans:
            if self.journal.owes_projections:
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
            events=tuple(entry.event for entry in taken),
            plans=plans,
            commands=tuple(commands),
            digest="",
        )
        record = await self.journal.append(record, lambda: self._stopping)
        if self._effects is not None:
            self._effects.carry_out(self.engine, record.commands)
        changes = changes_of(self.engine, record, history)
        await self.journal.project(changes, self.engine.state.dump)
        for entry in taken:
            if entry.done is not None and not entry.done.done():
                entry.done.set_result(not self.journal.owes_projections)
        for fitted in self._refits.due(self.engine.state):
            self.post(fitted)

    def _step(self, entry: _Waiting, now_s: float) -> Step:
        try:
            return self.engine.step(entry.event, now_s)
        except Exception as error:
            what = type(entry.event).__name__
            log.error("engine-failed", taken=codec.dumps(entry.event), error=repr(error))
            if entry.done is not None and not entry.done.done():
                entry.done.set_exception(CannotTake(f"the engine failed on {what}: {error!r}"))
            raise

    def _decide(
        self, now_s: float, commands: list[Command], history: list[HistoryEntry]
    ) -> tuple[Plan, ...]:
        plans: list[Plan] = []
        while self.engine.wants_plan() and len(plans) < PLAN_ROUNDS_MAX:
            begin_s = time.perf_counter()
            plan = self._plan()
            decide_s = time.perf_counter() - begin_s
            try:
                step = self.engine.apply(plan, now_s)
            except PlanRejected as rejected:
                log.error("plan-rejected", policy=self.settings.policy.name, reason=rejected.reason)
                plan = Plan(reason_code="plan-rejected", text=rejected.reason)
                step = self.engine.apply(plan, now_s)
            plans.append(plan)
            if plan.targets:
                log.info("decided", reason=plan.reason_code, decide_ms=round(decide_s * 1e3, 2))
            commands += step.commands
            history += step.history
        return tuple(plans)

    def _plan(self) -> Plan:
        """Ask the policy; one that fails changes nothing until something else happens."""
        try:
            snapshot = self.engine.snapshot()
            plan = self.settings.policy.decide(snapshot)
            job = self.engine.state.jobs.get(plan.about) if plan.about is not None else None
            return legal_moves.with_unusable_hosts(plan, job, snapshot.hosts)
        except Exception as error:
            log.exception("policy-failed", policy=self.settings.policy.name)
            return Plan(reason_code="policy-failed", text=f"the policy failed: {error!r}")
