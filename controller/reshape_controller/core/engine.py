"""The engine: one event or plan in, commands out. The only owner of the state.

Does: dispatches each event to the module that knows it, and clamps time so that it never runs
backwards. Never: reads a clock, draws a number, does I/O, or knows whether it runs live or over a
log. ``docs/architecture.md`` has the state tables.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reshape_controller.core import (
    attempts,
    deadlines,
    endings,
    handover,
    learning,
    ledger,
    planning,
    reports,
)
from reshape_controller.core import events as ev
from reshape_controller.core.commands import CheckRelease, Command, Launch, Remove, SetDesired
from reshape_controller.core.errors import UnknownHost
from reshape_controller.core.model import (
    Gpu,
    GpuId,
    GpuState,
    Host,
    HostId,
    Job,
    JobId,
    JobState,
    Stage,
)
from reshape_controller.core.plan import Plan, Snapshot
from reshape_controller.core.record import HistoryEntry
from reshape_controller.core.state import State, Touched, Turn
from reshape_sidecar.wire import Desired


@dataclass(frozen=True, slots=True)
class Step:
    """What came of one event or plan."""

    commands: tuple[Command, ...]
    history: tuple[HistoryEntry, ...]


class Engine:
    """Owns a State. Everything else reads it."""

    def __init__(self, state: State | None = None) -> None:
        self.state = state if state is not None else State()

    def step(self, event: ev.Event, now_s: float) -> Step:
        """Take in one event. Unknown or late events change nothing."""
        turn = self._turn(now_s)
        self._dispatch(turn, event)
        return self._close(turn)

    def wants_plan(self) -> bool:
        """Whether something changed that a policy may use, and plans are allowed now (R6)."""
        return self.state.plan_wanted and not self.state.observing

    def snapshot(self) -> Snapshot:
        """What a policy sees now."""
        return planning.snapshot(self.state)

    def apply(self, plan: Plan, now_s: float) -> Step:
        """Start what a plan asks for; an empty plan ends the planning until something changes.

        Raises PlanRejected, with the state as it was but for the wish to plan, which is dropped.
        """
        turn = self._turn(now_s)
        self.state.wake_at_s = plan.wake_at_s
        if not plan.targets:
            self.state.plan_wanted = False
            return self._close(turn)
        wanted, self.state.plan_wanted = self.state.plan_wanted, False
        planning.apply(turn, plan)
        self.state.plan_wanted = wanted
        turn.note(
            self.state.jobs.get(plan.about) if plan.about is not None else None,
            "decided",
            plan.text or plan.reason_code,
        )
        return self._close(turn)

    def next_deadline_s(self) -> float | None:
        """When ``DeadlinesDue`` is to be sent; None while nothing is awaited."""
        return self.state.next_deadline_s()

    def desired(self, job: JobId) -> Desired | None:
        """What the job's SideCar shall be now; None where it has no container."""
        found = self.state.jobs.get(job)
        return attempts.desired_of(self.state, found) if found is not None else None

    def outstanding(self) -> tuple[Command, ...]:
        """Every command whose effect has not been seen, for repetition after a restart."""
        commands: list[Command] = []
        for job in self.state.jobs.values():
            if job.stage is Stage.LAUNCHING and job.host is not None:
                commands.append(Launch(self.state.epoch, job.id, job.attempt, job.host))
            desired = attempts.desired_of(self.state, job)
            if desired is not None:
                commands.append(SetDesired(desired))
            if job.stage is Stage.ENDING and job.mode.value != "exit":
                grace_s = self.state.limits.kill_after_s
                commands.append(Remove(self.state.epoch, job.id, job.attempt, grace_s))
        turn = self._turn(self.state.now_s)
        ledger.check(turn, self._releasing())
        commands += [c for c in turn.commands if isinstance(c, CheckRelease)]
        return tuple(commands)

    def take_touched(self) -> Touched:
        """Ids that changed since the last call."""
        return self.state.take_touched()

    def _turn(self, now_s: float) -> Turn:
        self.state.now_s = max(self.state.now_s, now_s)
        return Turn(self.state, self.state.now_s)

    def _close(self, turn: Turn) -> Step:
        for host in turn.freed:
            handover.lighten(turn, host)
        return Step(tuple(turn.commands), tuple(turn.history))

    def _releasing(self) -> tuple[Gpu, ...]:
        return tuple(g for g in self.state.gpus.values() if g.state is GpuState.RELEASING)

    def _dispatch(self, turn: Turn, event: ev.Event) -> None:
        match event:
            case ev.SideCarReported(observed):
                reports.take(turn, observed)
            case ev.SideCarFellSilent(job, attempt):
                reports.silent(turn, job, attempt)
            case ev.DeadlinesDue():
                deadlines.due(turn)
            case ev.ReleaseVerified() | ev.ReleaseNotEmpty():
                self._release_seen(turn, event)
            case ev.LaunchFailed() | ev.ContainerGone():
                self._container_seen(turn, event)
            case ev.JobSubmitted() | ev.JobRejected():
                self._submitted(turn, event)
            case ev.CancelRequested(job) | ev.HaltRequested(job) | ev.ResumeRequested(job):
                found = self.state.jobs.get(job)
                if found is not None:
                    self._requested(turn, found, event)
            case ev.ControllerStarted():
                self._started(turn, event)
            case ev.ProfileRecorded() | ev.CurveFitted() | ev.PinRequested():
                self._known(turn, event)
            case _:
                self._inventory(turn, event)

    def _started(self, turn: Turn, event: ev.ControllerStarted) -> None:
        state = self.state
        state.epoch, state.policy = event.epoch, event.policy
        state.mechanism, state.limits = event.mechanism, event.limits
        state.seed = event.seed
        deadlines.rebase(turn)
        for job in tuple(state.jobs.values()):
            if job.stage not in (Stage.NONE, Stage.LAUNCHING):
                state.put_job(replace(job, answered=False))
        state.plan_wanted = True
        turn.note(None, "controller-started", f"epoch {event.epoch}, policy {event.policy}")

    def _known(
        self, turn: Turn, event: ev.ProfileRecorded | ev.CurveFitted | ev.PinRequested
    ) -> None:
        match event:
            case ev.ProfileRecorded(profile):
                learning.recorded(turn, profile)
            case ev.CurveFitted(job_id, job_type, curve):
                learning.fitted(turn, job_id, job_type, curve)
            case ev.PinRequested(job_id, size, user):
                self._pin(turn, job_id, size, user)

    def _pin(self, turn: Turn, job_id: JobId, size: int | None, user: str) -> None:
        job = self.state.jobs.get(job_id)
        if job is None or job.state.terminal:
            return
        if size is not None and size not in replace(job, pinned=None).sizes:
            return
        job = replace(job, pinned=size)
        self.state.put_job(job)
        self.state.plan_wanted = True
        what = "all its sizes" if size is None else f"{size} GPUs and no other size"
        turn.note(job, "pinned", f"{what}, by {user or 'unknown'}")

    def _submitted(self, turn: Turn, event: ev.JobSubmitted | ev.JobRejected) -> None:
        if isinstance(event, ev.JobRejected):
            what = "; ".join(f"{e.path}: {e.message}" for e in event.errors)
            turn.history.append(HistoryEntry(event.job, turn.now_s, "rejected", what))
            return
        if event.job in self.state.jobs:
            return
        job = Job(event.job, event.spec, self.state.next_place, turn.now_s, reason="is queued")
        self.state.next_place += 1
        self.state.put_job(job)
        self.state.plan_wanted = True
        turn.note(job, "submitted", f"{job.spec.name} by {job.spec.user or 'unknown'}")

    def _requested(self, turn: Turn, job: Job, event: ev.Event) -> None:
        match event:
            case ev.CancelRequested(_, user):
                endings.cancel(turn, job, f"cancelled by {user or 'unknown'}")
            case ev.HaltRequested(_, user):
                self._halt(turn, job, f"halted by {user or 'unknown'}")
            case ev.ResumeRequested(_, user):
                self._resume(turn, job, f"resumed by {user or 'unknown'}")

    def _halt(self, turn: Turn, job: Job, reason: str) -> None:
        if job.state.terminal or job.state is JobState.HALTED:
            return
        if job.stage is Stage.NONE:
            job = handover.abandon(turn, job, reason)
            self.state.put_job(replace(job, state=JobState.HALTED, reason=reason, deadline=None))
        elif job.stage is Stage.ENDING:
            self.state.put_job(replace(job, after_end=JobState.HALTED, reason=reason))
        elif job.stage in (Stage.LAUNCHING, Stage.READY, Stage.TRAINING):
            endings.leave(turn, job, reason, after=JobState.HALTED)
        else:
            self.state.put_job(replace(job, halt_wanted=True))
        turn.note(job, "halt-asked", reason)

    def _resume(self, turn: Turn, job: Job, reason: str) -> None:
        if job.state is JobState.HALTED:
            job = replace(job, state=JobState.SUBMITTED, reason=reason, struck=())
        elif job.stage is Stage.ENDING and job.after_end is JobState.HALTED:
            job = replace(job, after_end=JobState.SUBMITTED)
        job = replace(job, halt_wanted=False)
        self.state.put_job(job)
        self.state.plan_wanted = True
        turn.note(job, "resumed", reason)

    def _container_seen(self, turn: Turn, event: ev.LaunchFailed | ev.ContainerGone) -> None:
        job = self.state.jobs.get(event.job)
        if job is None or job.attempt != event.attempt or job.stage is Stage.NONE:
            return
        if isinstance(event, ev.ContainerGone):
            reason = event.reason or f"its container ended (exit code {event.exit_code})"
            endings.container_gone(turn, job, reason)
        elif job.stage is Stage.LAUNCHING:
            endings.launch_failed(turn, job, event.reason, retryable=event.retryable)

    def _release_seen(self, turn: Turn, event: ev.ReleaseVerified | ev.ReleaseNotEmpty) -> None:
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
            ledger.free(turn, gpu)
        ledger.check(turn, tuple(again))
        for newcomer in newcomers:
            handover.advance(turn, newcomer)

    def _inventory(self, turn: Turn, event: ev.Event) -> None:
        match event:
            case ev.HostAdded(host, gpu_type, gpus):
                self._host_added(turn, host, gpu_type, gpus)
            case ev.HostFellSilent(host, reason):
                endings.host_silent(turn, self._host(host), reason)
            case ev.HostCleaned(host, reason):
                endings.host_cleaned(turn, self._host(host), reason)
            case ev.HostDrained(host, user):
                self._drain(turn, self._host(host), user)
            case ev.HostUndrained(host, user):
                self.state.put_host(replace(self._host(host), drained=False))
                self.state.plan_wanted = True
                turn.note(None, "host-undrained", f"{host} by {user or 'unknown'}")
            case ev.GpuCleared(gpu_id, user):
                gpu = self.state.gpus.get(gpu_id)
                if gpu is not None and gpu.state is GpuState.QUARANTINED:
                    ledger.free(turn, gpu)
                    turn.note(None, "gpu-cleared", f"{gpu_id} by {user or 'unknown'}")

    def _host(self, host: HostId) -> Host:
        found = self.state.hosts.get(host)
        if found is None:
            raise UnknownHost(f"no host {host} in the inventory")
        return found

    def _host_added(self, turn: Turn, host: HostId, gpu_type: str, gpus: tuple[GpuId, ...]) -> None:
        known = self.state.hosts.get(host)
        before = known.gpus if known is not None else ()
        fresh = tuple(gpu for gpu in gpus if gpu not in self.state.gpus)
        for number, gpu in enumerate(fresh, start=len(before)):
            self.state.put_gpu(Gpu(gpu, host, number))
        added = Host(host, gpu_type, before + fresh)
        if known is not None:
            added = replace(known, gpus=before + fresh)
        self.state.put_host(added)
        if fresh:
            self.state.plan_wanted = True
            turn.note(None, "host-added", f"{host}: {len(fresh)} {gpu_type} GPUs")

    def _drain(self, turn: Turn, host: Host, user: str) -> None:
        self.state.put_host(replace(host, drained=True))
        turn.note(None, "host-drained", f"{host.id} by {user or 'unknown'}")
        here = [job for job in self.state.jobs.values() if job.host == host.id]
        for job in sorted(here, key=lambda job: job.place):
            current = self.state.jobs.get(job.id)
            if current is not None and not current.state.terminal:
                endings.leave(turn, current, f"{host.id} is drained", after=JobState.SUBMITTED)
