"""The engine: one event or plan in, commands out. The only owner of the state.

Does: dispatches each event to its module, and clamps time so that it never runs backwards.
Never: reads a clock, draws a number or does I/O: it is the same live and over a log.
``core.transitions`` has the tables of stages and states.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite

from reshape_controller.core import (
    attempts,
    deadlines,
    inventory,
    job_exit,
    learning,
    plan_notes,
    plan_validation,
    reports,
    requests,
    suspension,
)
from reshape_controller.core import events as ev
from reshape_controller.core.changes import ChangeSet
from reshape_controller.core.commands import CheckRelease, Command, Remove, SetDesired
from reshape_controller.core.coordinator import gpu_ledger, handover
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.fast_replace import fast_init, replace
from reshape_controller.core.limits import PLAN_AGAIN_MIN_S
from reshape_controller.core.model import (
    Gpu,
    GpuState,
    Job,
    JobId,
    JobSpec,
    Stage,
)
from reshape_controller.core.plan import Index, Plan, Snapshot
from reshape_controller.core.record import HistoryEntry
from reshape_controller.core.state import State
from reshape_controller.core.transaction import Transaction
from reshape_sidecar.wire import Desired


@fast_init
@dataclass(frozen=True, slots=True)
class Step:
    """The effects of one event or plan."""

    commands: tuple[Command, ...]
    history: tuple[HistoryEntry, ...]


_NOTHING = Step((), ())
_NEW_JOB = Job(JobId(""), JobSpec("", ("",), (1,)), 0, 0.0, reason="is queued")
"""Copied for each submission, which is faster than giving a job all its fields."""


class Engine:
    """Owns a State; everything outside the engine only reads it."""

    def __init__(self, state: State | None = None, *, explains: bool = True) -> None:
        """Own ``state``, or a new one.

        ``explains``: keep the history, and have policies explain their plans.
        """
        self.state = state if state is not None else State()
        self._explains = explains
        self._before_s = self.state.now_s
        """Time before the event or plan at hand."""

    def step(self, event: ev.Event, now_s: float) -> Step:
        """Take in one event. An unknown or late event changes nothing."""
        tx = self._begin(now_s)
        self._dispatch(tx, event)
        return self._close(tx)

    def wants_plan(self) -> bool:
        """Whether something changed that a policy may use, and plans are allowed now (R6)."""
        return self.state.plan_wanted and not self.state.observing

    def snapshot(self, index: Index | None = None) -> Snapshot:
        """Return what a policy sees now, with the planner's ``index``."""
        return self.state.snapshot(explain=self._explains, index=index)

    def apply(self, plan: Plan, now_s: float) -> Step:
        """Apply a plan; an empty plan ends the planning until something changes.

        Raises PlanRejected. The state is then as before, with two exceptions: it wants no plan,
        and the time of the next plan is the one that the rejected plan names.
        """
        tx = self._begin(now_s)
        if plan.wake_at_s is not None and not isfinite(plan.wake_at_s):
            self.state.plan_wanted, self.state.wake_at_s = False, None
            raise PlanRejected(f"wake_at_s is {plan.wake_at_s}: give a time, or None for no time")
        if plan.wake_at_s is None:
            self.state.wake_at_s = None
        else:
            self.state.wake_at_s = max(plan.wake_at_s, tx.now_s + PLAN_AGAIN_MIN_S)
        self.state.looked_up_to = plan.looked_up_to
        wanted, self.state.plan_wanted = self.state.plan_wanted, False
        notes = plan_notes.check(self.state, plan.notes) if plan.notes else {}
        if not plan.targets:
            plan_notes.write(tx, notes)
            self._say_why_it_waits(tx, plan)
            return self._close(tx)
        plan_validation.apply(tx, plan)
        plan_notes.write(tx, notes)
        self.state.plan_wanted = wanted
        tx.note(
            self.state.jobs.get(plan.about) if plan.about is not None else None,
            "decided",
            plan.text or plan.reason_code,
        )
        return self._close(tx)

    def _say_why_it_waits(self, tx: Transaction, plan: Plan) -> None:
        job = self.state.jobs.get(plan.about) if plan.about is not None else None
        if job is not None and job.stage is Stage.NONE and plan.text not in ("", job.reason):
            tx.update(job.id, changes_view=False, reason=plan.text)

    def next_deadline_s(self, until_s: float = inf) -> float | None:
        """Return when ``DeadlinesDue`` is to be sent; None without a deadline up to ``until_s``."""
        return self.state.next_deadline_s(until_s)

    def desired(self, job: JobId) -> Desired | None:
        """Return the state that the job's SideCar shall reach; None if it has no container."""
        known = self.state.jobs.get(job)
        return attempts.desired_of(self.state, known) if known is not None else None

    def outstanding(self) -> tuple[Command, ...]:
        """Return every command without an observed effect, to repeat it after a restart."""
        commands: list[Command] = []
        for job in self.state.jobs.values():
            if job.stage is Stage.LAUNCHING and job.host is not None:
                commands.append(attempts.launch_command(self.state, job))
            desired = attempts.desired_of(self.state, job)
            if desired is not None:
                commands.append(SetDesired(desired))
            if job.stage is Stage.ENDING and job.mode.value != "exit":
                grace_s = self.state.limits.kill_after_s
                commands.append(Remove(self.state.epoch, job.id, job.attempt, grace_s))
        tx = self._begin(self.state.now_s)
        gpu_ledger.check(tx, self._releasing())
        commands += [c for c in tx.commands if isinstance(c, CheckRelease)]
        return tuple(commands)

    def drain_changes(self) -> ChangeSet:
        """Return the ids that changed since the last call."""
        return self.state.drain_changes()

    def _begin(self, now_s: float) -> Transaction:
        self._before_s = self.state.now_s
        self.state.now_s = now_s = max(self._before_s, now_s)
        return Transaction(self.state, now_s, keeps_history=self._explains)

    def _close(self, tx: Transaction) -> Step:
        if not (tx.observed_before or self.state.observing):
            reports.resume_hand_overs(tx)
        for host in tx.freed:
            handover.use_idle_instead(tx, host)
        if not tx.commands and not tx.history:
            return _NOTHING
        return Step(tuple(tx.commands), tuple(tx.history))

    def _releasing(self) -> tuple[Gpu, ...]:
        return tuple(g for g in self.state.gpus.values() if g.state is GpuState.RELEASING)

    def _dispatch(self, tx: Transaction, event: ev.Event) -> None:
        match event:
            case ev.SideCarReported(observed):
                reports.take(tx, observed)
            case ev.SideCarFellSilent(job, attempt):
                reports.silent(tx, job, attempt)
            case ev.SideCarContradicted(job, attempt, reason):
                reports.set_apart(tx, job, attempt, reason)
            case ev.DeadlinesDue():
                deadlines.expire(tx)
            case ev.ControllerHeldUp(held_s):
                deadlines.postpone(tx, held_s)
            case ev.ReleaseVerified() | ev.ReleaseNotEmpty():
                self._release_seen(tx, event)
            case (
                ev.FilesFound()
                | ev.LaunchFailed()
                | ev.ContainerGone()
                | ev.ContainerSuspended()
                | ev.ContainerAdmitted()
            ):
                self._container_seen(tx, event)
            case ev.JobSubmitted() | ev.JobRejected():
                self._submitted(tx, event)
            case (
                ev.CancelRequested() | ev.HaltRequested() | ev.ResumeRequested() | ev.PinRequested()
            ):
                if event.job in self.state.jobs:
                    requests.take(tx, event.job, event)
            case ev.ControllerStarted():
                self._started(tx, event)
            case ev.ProfileRecorded(profile):
                learning.record_profile(tx, profile)
            case ev.CurveFitted(job_id, job_type, curve):
                learning.record_curve(tx, job_id, job_type, curve)
            case _:
                inventory.take(tx, event)

    def _started(self, tx: Transaction, event: ev.ControllerStarted) -> None:
        state = self.state
        state.epoch, state.policy = event.epoch, event.policy
        state.mechanism, state.limits = event.mechanism, event.limits
        state.seed = event.seed
        deadlines.rebase(tx)
        tx.pass_gap(self._before_s)
        for job in tuple(state.jobs.values()):
            if job.stage not in (Stage.NONE, Stage.LAUNCHING) and not job.set_apart:
                tx.update(job.id, answered=False)
        state.plan_wanted = True
        tx.note(None, "controller-started", f"epoch {event.epoch}, policy {event.policy}")

    def _submitted(self, tx: Transaction, event: ev.JobSubmitted | ev.JobRejected) -> None:
        if isinstance(event, ev.JobRejected):
            what = "; ".join(error.summary for error in event.errors)
            tx.history.append(HistoryEntry(event.job, tx.now_s, "rejected", what))
            return
        if event.job in self.state.jobs:
            return
        job = replace(
            _NEW_JOB,
            id=event.job,
            spec=event.spec,
            place=self.state.next_place,
            submitted_at_s=tx.now_s,
        )
        self.state.next_place += 1
        self.state.put_job(job)
        if not self._is_looked_past(job):
            self.state.plan_wanted = True
        tx.note(job, "submitted", f"{job.spec.name} by {job.spec.user or 'unknown'}")

    def _is_looked_past(self, job: Job) -> bool:
        """Whether a job that is queued now is behind the last job that the newest plan looked at,
        so that a new plan would decide nothing else."""
        last = self.state.looked_up_to
        known = self.state.jobs.get(last) if last is not None else None
        if known is None or job.spec.max_wait_s is not None:
            return False
        return job.spec.priority <= known.spec.priority

    def _container_seen(self, tx: Transaction, event: ev.OfContainer) -> None:
        job = self.state.jobs.get(event.job)
        if job is None or job.attempt != event.attempt or job.stage is Stage.NONE:
            return
        if isinstance(event, ev.FilesFound):
            job_exit.on_files_found(tx, job.id, event)
        elif isinstance(event, ev.ContainerGone):
            reason = event.reason or f"its container ended (exit code {event.exit_code})"
            unscheduled = event.unscheduled and job.stage is Stage.LAUNCHING
            job_exit.on_container_gone(tx, job.id, reason, event.exit_code, unscheduled=unscheduled)
        elif isinstance(event, ev.ContainerSuspended):
            suspension.on_suspended(tx, job.id, event.reason)
        elif isinstance(event, ev.ContainerAdmitted):
            suspension.on_admitted(tx, job.id)
        elif job.stage is Stage.LAUNCHING:
            job_exit.on_launch_failed(tx, job.id, event.reason, retryable=event.retryable)

    def _release_seen(
        self, tx: Transaction, event: ev.ReleaseVerified | ev.ReleaseNotEmpty
    ) -> None:
        newcomers: dict[JobId, None] = {}
        again: list[Gpu] = []
        for gpu_id in event.gpus:
            gpu = self.state.gpus.get(gpu_id)
            if gpu is None or gpu.state is not GpuState.RELEASING or gpu.owner != event.job:
                continue
            if (gpu.attempt, gpu.generation) != (event.attempt, event.generation):
                continue
            if isinstance(event, ev.ReleaseNotEmpty):
                gpu = replace(gpu, reason=event.reason)
                self.state.put_gpu(gpu)
                again.append(gpu)
                continue
            if gpu.promised_to is not None:
                newcomers[gpu.promised_to] = None
            gpu_ledger.free(tx, gpu)
        gpu_ledger.check(tx, tuple(again))
        for newcomer in newcomers:
            handover.advance(tx, newcomer)
