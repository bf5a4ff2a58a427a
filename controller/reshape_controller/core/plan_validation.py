"""The check of a policy's plan against the state, and its start.

Does: rejects a plan that breaks a rule as a whole, with an error that names the rule; begins the
hand-overs of an accepted plan.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.core import gang, preemption
from reshape_controller.core.coordinator import handover
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.model import (
    GpuId,
    HostId,
    Job,
    JobId,
    Mechanism,
    Spans,
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
        handover.begin(tx, start.job, start.idle, start.donors, start.hosts)
    for growth in moves.grows:
        handover.grow(tx, growth.job, growth.keeps, growth.idle, growth.hosts, growth.donors)
    for job, keeps in moves.shrinks:
        handover.shrink(tx, job, keeps)


@dataclass(frozen=True, slots=True)
class _Start:
    job: JobId
    hosts: tuple[HostId, ...]
    idle: tuple[GpuId, ...]
    donors: tuple[handover.DonorShare, ...]


@dataclass(frozen=True, slots=True)
class _Growth:
    job: JobId
    hosts: tuple[HostId, ...]
    keeps: tuple[GpuId, ...]
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
        elif target.size < len(job.gpus) and gang.in_place(job, target):
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
    if target.shares:
        _check_shares(target, job)
    for host_id in target.all_hosts:
        host = state.hosts.get(host_id)
        if host is None or host.no_option:
            why = f": {host.no_option}" if host is not None else ""
            raise PlanRejected(f"{target.job}: host {host_id} cannot be used{why}")
        if job.only_host not in (None, host_id):
            raise PlanRejected(f"{target.job}: can run only on {job.only_host}, not on {host_id}")
    if target.shares:
        _check_span(state, target, job)
    if not job.reachable:
        raise PlanRejected(f"{target.job}: its SideCar is unreachable")
    return job


def _check_shares(target: Target, job: Job) -> None:
    """Check that shares are a placement of the job's workers on several hosts."""
    hosts, workers = target.all_hosts, sum([share.workers for share in target.shares])
    if len(hosts) < 2 or len(set(hosts)) < len(hosts) or target.host != hosts[0]:
        wrong = f"shares name {', '.join(hosts)}, and host is {target.host}"
        raise PlanRejected(
            f"{job.id}: {wrong}: name two hosts or more, each once, first {hosts[0]}"
        )
    if workers != job.spec.workers or any(share.workers < 1 for share in target.shares):
        raise PlanRejected(f"{job.id}: shares place {workers} of its {job.spec.workers} workers")


def _check_span(state: State, target: Target, job: Job) -> None:
    """Check that the job may be on the several hosts of a target."""
    hosts, types = target.all_hosts, {state.hosts[host].gpu_type: None for host in target.all_hosts}
    if job.spec.span is Spans.NEVER:
        raise PlanRejected(f"{job.id}: its span is never, so it cannot be on {' and '.join(hosts)}")
    if len(types) > 1:
        raise PlanRejected(f"{job.id}: its workers would have GPUs of types {', '.join(types)}")
    if job.spec.span is Spans.IF_NEEDED and not gang.in_place(job, target):
        host = _host_with_room(state, job, target.size)
        if host is not None:
            has = f"{host} has room for all {target.size} GPUs now"
            raise PlanRejected(f"{job.id}: its span is if-needed, and {has}")


def _host_with_room(state: State, job: Job, size: int) -> HostId | None:
    """Return the first host on which the job could have ``size`` GPUs now, its own and idle ones;
    None if there is none. A host on which it could not start does not count."""
    for host in state.hosts.values():
        if host.no_option or host.id in job.unfit_on:
            continue
        own = sum([state.gpus[gpu].host == host.id for gpu in job.gpus])
        if own + len(state.idle_gpus(host.id)) >= size:
            return host.id
    return None


def _start(state: State, target: Target, shrinks: list[Target], idle: _Idle) -> _Start:
    job = state.jobs[target.job]
    if job.stage is Stage.READY and not gang.in_place(job, target):
        there, named = " and ".join(job.all_hosts), " and ".join(target.all_hosts)
        raise PlanRejected(f"{job.id}: is initialised on {there}, not {named}")
    if waits_until(job) > state.now_s:
        raise PlanRejected(f"{job.id}: waits for its retry after a failure")
    donors, missing = _donors(state, target, gang.wanted(target, job.spec), shrinks)
    return _Start(job.id, target.all_hosts, _take(state, target, missing, idle), donors)


def _growth(state: State, target: Target, shrinks: list[Target], idle: _Idle) -> _Growth:
    job = state.jobs[target.job]
    if gang.in_place(job, target) and target.size == len(job.gpus):
        raise PlanRejected(f"{job.id}: has {target.size} GPUs already")
    want = gang.wanted(target, job.spec)
    keeps = gang.kept(state.gpus, job, want)
    donors, missing = _donors(state, target, gang.lacking(state.gpus, keeps, want), shrinks)
    return _Growth(job.id, target.all_hosts, keeps, _take(state, target, missing, idle), donors)


def _donors(
    state: State, receiver: Target, lacks: dict[HostId, int], shrinks: list[Target]
) -> tuple[tuple[handover.DonorShare, ...], dict[HostId, int]]:
    """Return what each donor gives to a receiver that lacks so many GPUs of each host, and what it
    lacks after that."""
    donors, missing = [], dict(lacks)
    for shrink in shrinks:
        donor, keeps = _shrink(state, shrink)
        there = state.jobs[donor].all_hosts
        if not any(host in missing for host in there):
            named = f"{' and '.join(there)}, {receiver.job} on {' and '.join(receiver.all_hosts)}"
            raise PlanRejected(f"{donor}: is on {named}")
        # GPUs that the receiver does not take become idle once their release is verified.
        gives = []
        for gpu in state.jobs[donor].gpus:
            host = state.gpus[gpu].host
            if gpu not in keeps and missing.get(host, 0):
                missing[host] -= 1
                gives.append(gpu)
        if not gives:
            raise PlanRejected(f"{donor}: would give GPUs that {receiver.job} does not take")
        donors.append(handover.DonorShare(donor, keeps, tuple(gives)))
    return tuple(donors), missing


def _shrink(state: State, target: Target) -> tuple[JobId, tuple[GpuId, ...]]:
    """Return a donor and the GPUs that it keeps."""
    donor = state.jobs[target.job]
    if donor.refused_until_s > state.now_s:
        raise PlanRejected(f"{donor.id}: refused to save a short time ago")
    if target.size == 0:
        return donor.id, ()
    return donor.id, gang.kept(state.gpus, donor, gang.wanted(target, donor.spec))


def _take(
    state: State, target: Target, missing: dict[HostId, int], idle: _Idle
) -> tuple[GpuId, ...]:
    """Take the missing GPUs of each host from the idle ones."""
    taken: tuple[GpuId, ...] = ()
    for host, count in missing.items():
        free = idle.get(host)
        if free is None:
            free = state.idle_gpus(host)
        if len(free) < count:
            raise PlanRejected(f"{target.job}: {count} idle GPUs on {host}, not {len(free)}")
        idle[host] = free[count:]
        taken += free[:count]
    return taken
