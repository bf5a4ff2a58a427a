"""From the state to what a policy sees, and from its plan back to the machine.

Does: builds the snapshot, checks a plan against the state, and starts what it asks for. Never:
prefers anything: a plan that breaks a rule is rejected whole, with the rule's name.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.core import handover
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.model import (
    DeadlineKind,
    GpuId,
    GpuState,
    Host,
    HostId,
    Job,
    JobId,
    JobState,
    Mechanism,
    Stage,
)
from reshape_controller.core.plan import HostView, JobView, Plan, Snapshot, Target
from reshape_controller.core.state import State, Turn


def snapshot(state: State) -> Snapshot:
    """What a policy may base its decision on."""
    views = [(job, _kept_view(state, job)) for job in sorted(state.jobs.values(), key=_queue_order)]
    return Snapshot(
        now_s=state.now_s,
        mechanism=state.mechanism,
        queued=tuple(view for job, view in views if is_queued(job)),
        running=tuple(view for job, view in views if view.size > 0 and not is_queued(job)),
        hosts=tuple(
            _host_view(state, host)
            for host in sorted(state.hosts.values(), key=lambda host: host.id)
            if host.present and not host.drained
        ),
        profiles=state.profiles,
        seed=state.seed,
    )


def is_queued(job: Job) -> bool:
    """Whether a plan may start the job."""
    return (
        job.state in (JobState.SUBMITTED, JobState.INITIALIZED)
        and job.stage in (Stage.NONE, Stage.READY)
        and job.hand_over is None
        and job.reachable
    )


def apply(turn: Turn, plan: Plan) -> None:
    """Start what the plan asks for. Raises PlanRejected before anything was changed."""
    moves = _check(turn.state, plan)
    for start in moves.starts:
        handover.begin(turn, turn.state.jobs[start.job], start.idle, start.donors)
    for target, idle in moves.grows:
        handover.grow(turn, turn.state.jobs[target.job], idle, target.host)


@dataclass(frozen=True, slots=True)
class _Start:
    job: JobId
    idle: tuple[GpuId, ...]
    donors: tuple[handover.Giving, ...]


@dataclass(frozen=True, slots=True)
class _Moves:
    starts: tuple[_Start, ...]
    grows: tuple[tuple[Target, tuple[GpuId, ...]], ...]


def _check(state: State, plan: Plan) -> _Moves:
    idle = {host: list(state.idle_gpus(host)) for host in state.hosts}
    seen: dict[JobId, None] = {}
    starts, grows, shrinks = [], [], []
    for target in plan.targets:
        job = _named(state, target, seen)
        if is_queued(job):
            starts.append(target)
        elif target.size < len(job.gpus) and target.host == job.host:
            shrinks.append(target)
        else:
            grows.append(target)
    if (grows or shrinks) and state.mechanism is Mechanism.NONE:
        raise PlanRejected("mechanism none: no running job is reshaped")
    if shrinks and len(starts) != 1:
        raise PlanRejected("jobs shrink for exactly one newcomer")
    moves = _Moves(
        tuple(_start(state, target, shrinks, idle) for target in starts),
        tuple((target, _growth(state, target, idle)) for target in grows),
    )
    return moves


def _named(state: State, target: Target, seen: dict[JobId, None]) -> Job:
    job = state.jobs.get(target.job)
    if job is None:
        raise PlanRejected(f"{target.job}: no such job")
    if target.job in seen:
        raise PlanRejected(f"{target.job}: named twice")
    seen[target.job] = None
    if job.frozen or not (is_queued(job) or job.stage is Stage.TRAINING):
        raise PlanRejected(f"{target.job}: is frozen ({job.stage.value})")
    if target.size not in job.sizes:
        raise PlanRejected(f"{target.job}: {target.size} is none of its sizes {job.sizes}")
    host = state.hosts.get(target.host)
    if host is None or not host.present or host.drained:
        raise PlanRejected(f"{target.job}: host {target.host} cannot be used")
    if not job.reachable:
        raise PlanRejected(f"{target.job}: its SideCar is unreachable")
    return job


def _start(
    state: State, target: Target, shrinks: list[Target], idle: dict[HostId, list[GpuId]]
) -> _Start:
    job = state.jobs[target.job]
    if job.stage is Stage.READY and job.host != target.host:
        raise PlanRejected(f"{job.id}: is initialised on {job.host}, not {target.host}")
    if _waits_until(job) > state.now_s:
        raise PlanRejected(f"{job.id}: waits after a failure")
    donors, missing = [], target.size
    for shrink in shrinks:
        donor = state.jobs[shrink.job]
        if shrink.host != target.host:
            raise PlanRejected(f"{donor.id}: is on {donor.host}, {job.id} on {target.host}")
        if donor.refused_until_s > state.now_s:
            raise PlanRejected(f"{donor.id}: refused to save a short time ago")
        if missing == 0:
            raise PlanRejected(f"{donor.id}: would give GPUs that {job.id} does not take")
        # What it gives up and the newcomer does not take is idle once its release was verified.
        gives = donor.gpus[shrink.size :][:missing]
        donors.append(handover.Giving(donor.id, donor.gpus[: shrink.size], gives))
        missing -= len(gives)
    return _Start(job.id, _take(target, missing, idle), tuple(donors))


def _growth(state: State, target: Target, idle: dict[HostId, list[GpuId]]) -> tuple[GpuId, ...]:
    job = state.jobs[target.job]
    if target.host == job.host:
        if target.size == len(job.gpus):
            raise PlanRejected(f"{job.id}: has {target.size} GPUs already")
        return _take(target, target.size - len(job.gpus), idle)
    return _take(target, target.size, idle)


def _take(target: Target, count: int, idle: dict[HostId, list[GpuId]]) -> tuple[GpuId, ...]:
    free = idle[target.host]
    if len(free) < count:
        raise PlanRejected(f"{target.job}: {count} idle GPUs on {target.host}, not {len(free)}")
    idle[target.host] = free[count:]
    return tuple(free[:count])


def _waits_until(job: Job) -> float:
    deadline = job.deadline
    if deadline is not None and deadline.kind is DeadlineKind.RETRY and job.stage is Stage.NONE:
        return deadline.at_s
    return 0.0


def _later_size(job: Job) -> int:
    """The size after what is under way (R1)."""
    if job.hand_over is not None:
        return len(job.hand_over.gpus)
    if job.donation is not None:
        return len(job.donation.keeps)
    if job.change is not None:
        return len(job.devices)
    return 0 if job.state.terminal else len(job.gpus)


def _queue_order(job: Job) -> tuple[int, int, str]:
    return (-job.spec.priority, job.place, job.id)


_UNUSABLE = (GpuState.QUARANTINED, GpuState.LOST)


def _host_view(state: State, host: Host) -> HostView:
    idle = usable = 0
    for gpu in state.gpus_of_host(host.id):
        idle += gpu.state is GpuState.IDLE and gpu.promised_to is None
        usable += gpu.state not in _UNUSABLE
    return HostView(host.id, host.gpu_type, idle, len(host.gpus), usable)


def _later_host(state: State, job: Job) -> HostId | None:
    """The host after what is under way."""
    return state.gpus[job.hand_over.gpus[0]].host if job.hand_over is not None else job.host


def _kept_view(state: State, job: Job) -> JobView:
    """The view of a job; that of an earlier snapshot as long as the job is the same value."""
    kept = state.views.get(job.id)
    if kept is not None and kept[0] is job:
        return kept[1]
    view = _view(state, job)
    state.views[job.id] = (job, view)
    return view


def _view(state: State, job: Job) -> JobView:
    host = _later_host(state, job)
    trains = job.stage is Stage.TRAINING
    return JobView(
        id=job.id,
        spec=job.spec,
        state=job.state,
        place=job.place,
        sizes=job.sizes,
        size=_later_size(job),
        host=host,
        frozen=job.frozen or not job.reachable,
        initialized=job.stage is Stage.READY,
        submitted_at_s=job.submitted_at_s,
        started_at_s=job.started_at_s,
        not_before_s=_waits_until(job),
        no_shrink_before_s=job.refused_until_s,
        reshaped_at_s=job.reshaped_at_s,
        progress=job.progress,
        growable=job.spec.length is not None or job.progress.total_steps is not None,
        gpu_type=state.hosts[host].gpu_type if host is not None else "",
        pinned=job.pinned is not None,
        trains=trains,
        progress_at_s=job.progress_at_s if trains else None,
        measured=job.measured,
        reshape_cost_s=job.reshape_cost_s,
        curve=job.curve,
    )
