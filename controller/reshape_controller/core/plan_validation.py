"""The check of a policy's plan against the state, and its start.

Does: rejects a plan that breaks a rule as a whole, with an error that names the rule; begins the
hand-overs of an accepted plan.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.core import preemption
from reshape_controller.core.coordinator import handover
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.model import (
    GpuId,
    HostId,
    Job,
    JobId,
    Mechanism,
    Stage,
)
from reshape_controller.core.plan import Plan, Target
from reshape_controller.core.snapshot_builder import is_queued, waits_until
from reshape_controller.core.state import State
from reshape_controller.core.transaction import Transaction


def apply(tx: Transaction, plan: Plan) -> None:
    """Begin the hand-overs of the plan. Raises PlanRejected before any change."""
    moves = _check(tx.state, plan)
    for start in moves.starts:
        handover.begin(tx, start.job, start.idle, start.donors)
    for growth in moves.grows:
        handover.grow(tx, growth.job, growth.idle, growth.host, growth.donors)
    for job, keeps in moves.shrinks:
        handover.shrink(tx, job, keeps)


@dataclass(frozen=True, slots=True)
class _Start:
    job: JobId
    idle: tuple[GpuId, ...]
    donors: tuple[handover.DonorShare, ...]


@dataclass(frozen=True, slots=True)
class _Growth:
    job: JobId
    host: HostId
    idle: tuple[GpuId, ...]
    donors: tuple[handover.DonorShare, ...]


@dataclass(frozen=True, slots=True)
class _Moves:
    starts: tuple[_Start, ...]
    grows: tuple[_Growth, ...]
    shrinks: tuple[tuple[JobId, tuple[GpuId, ...]], ...] = ()
    """Shrinks without a receiver: the job and the GPUs that it keeps."""


_Idle = dict[HostId, tuple[GpuId, ...]]
"""Idle GPUs that a plan has left on each host from which it takes some."""


def _check(state: State, plan: Plan) -> _Moves:
    idle: _Idle = {}
    earlier: dict[JobId, None] = {}
    starts, grows, shrinks = [], [], []
    for target in plan.targets:
        job = _check_target(state, target, earlier)
        if is_queued(job):
            starts.append(target)
        elif target.size < len(job.gpus) and target.host == job.host:
            shrinks.append(target)
        else:
            grows.append(target)
    if (grows or shrinks) and state.mechanism is Mechanism.NONE:
        raise PlanRejected("mechanism none: a plan must not reshape running jobs")
    receivers = starts or grows
    if shrinks:
        preemption.check(state, plan.preemption, starts[0] if starts else None, shrinks)
    if not shrinks or not receivers:
        return _Moves(
            tuple(_start(state, target, [], idle) for target in starts),
            tuple(_growth(state, target, [], idle) for target in grows),
            tuple(_shrink(state, target) for target in shrinks),
        )
    if len(receivers) > 1:
        named = ", ".join(target.job for target in receivers)
        raise PlanRejected(f"a plan with shrinks may have one receiver at most, not {named}")
    return _Moves(
        tuple(_start(state, target, shrinks, idle) for target in starts),
        tuple(_growth(state, target, [] if starts else shrinks, idle) for target in grows),
    )


def _check_target(state: State, target: Target, earlier: dict[JobId, None]) -> Job:
    job = state.jobs.get(target.job)
    if job is None:
        raise PlanRejected(f"{target.job}: no such job")
    if target.job in earlier:
        raise PlanRejected(f"{target.job}: the plan names it twice")
    earlier[target.job] = None
    if job.frozen or not (is_queued(job) or job.stage is Stage.TRAINING):
        raise PlanRejected(f"{target.job}: is frozen by an earlier decision ({job.stage.value})")
    if job.fixed_because and not is_queued(job):
        raise PlanRejected(f"{target.job}: {job.fixed_because}")
    is_preempted = target.size == 0 and job.gpus and target.host == job.host
    if target.size not in job.sizes and not is_preempted:
        raise PlanRejected(f"{target.job}: {target.size} is not in its GPU counts {job.sizes}")
    host = state.hosts.get(target.host)
    if host is None or host.no_option:
        why = f": {host.no_option}" if host is not None else ""
        raise PlanRejected(f"{target.job}: host {target.host} cannot be used{why}")
    if job.only_host not in (None, target.host):
        raise PlanRejected(f"{target.job}: can run only on {job.only_host}, not on {target.host}")
    if not job.reachable:
        raise PlanRejected(f"{target.job}: its SideCar is unreachable")
    return job


def _start(state: State, target: Target, shrinks: list[Target], idle: _Idle) -> _Start:
    job = state.jobs[target.job]
    if job.stage is Stage.READY and job.host != target.host:
        raise PlanRejected(f"{job.id}: is initialised on {job.host}, not {target.host}")
    if waits_until(job) > state.now_s:
        raise PlanRejected(f"{job.id}: waits for its retry after a failure")
    donors, missing = _donors(state, target, target.size, shrinks)
    return _Start(job.id, _take(state, target, missing, idle), donors)


def _growth(state: State, target: Target, shrinks: list[Target], idle: _Idle) -> _Growth:
    job, missing = state.jobs[target.job], target.size
    if target.host == job.host:
        if target.size == len(job.gpus):
            raise PlanRejected(f"{job.id}: has {target.size} GPUs already")
        missing -= len(job.gpus)
    donors, missing = _donors(state, target, missing, shrinks)
    return _Growth(job.id, target.host, _take(state, target, missing, idle), donors)


def _donors(
    state: State, receiver: Target, missing: int, shrinks: list[Target]
) -> tuple[tuple[handover.DonorShare, ...], int]:
    """Return what each donor gives to a receiver that lacks ``missing`` GPUs, and the number of
    GPUs that it lacks after that."""
    donors = []
    for shrink in shrinks:
        donor, keeps = _shrink(state, shrink)
        if shrink.host != receiver.host:
            raise PlanRejected(f"{donor}: is on {shrink.host}, {receiver.job} on {receiver.host}")
        if missing == 0:
            raise PlanRejected(f"{donor}: would give GPUs that {receiver.job} does not take")
        # GPUs that the receiver does not take become idle once their release is verified.
        gives = state.jobs[donor].gpus[shrink.size :][:missing]
        donors.append(handover.DonorShare(donor, keeps, gives))
        missing -= len(gives)
    return tuple(donors), missing


def _shrink(state: State, target: Target) -> tuple[JobId, tuple[GpuId, ...]]:
    """Return a donor and the GPUs that it keeps."""
    donor = state.jobs[target.job]
    if donor.refused_until_s > state.now_s:
        raise PlanRejected(f"{donor.id}: refused to save a short time ago")
    return donor.id, donor.gpus[: target.size]


def _take(state: State, target: Target, count: int, idle: _Idle) -> tuple[GpuId, ...]:
    free = idle.get(target.host)
    if free is None:
        free = state.idle_gpus(target.host)
    if len(free) < count:
        raise PlanRejected(f"{target.job}: {count} idle GPUs on {target.host}, not {len(free)}")
    idle[target.host] = free[count:]
    return free[:count]
