"""What a policy may do at all, from the snapshot: who may start where, who may give, who may grow.

Does: lists what the engine's rules allow, so that each policy says only what it prefers. Never:
predicts or prefers anything. Every list is in the snapshot's order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from reshape_controller.core.model import HostId, Job, JobId, Mechanism
from reshape_controller.core.plan import HostView, JobView, Option, Plan, Snapshot, Target

OPTIONS_KEPT_MAX = 64
"""Options that a plan keeps, the best first; ``Plan.weighed`` has the number of all."""


def startable(snapshot: Snapshot) -> list[JobView]:
    """Queued jobs that may start now, in queue order."""
    return [job for job in snapshot.queued if may_start(snapshot, job)]


def may_start(snapshot: Snapshot, job: JobView) -> bool:
    """Whether a queued job may start now."""
    return not job.frozen and job.not_before_s <= snapshot.now_s and bool(job.sizes)


def hosts_for(snapshot: Snapshot, job: JobView) -> tuple[HostView, ...]:
    """Hosts on which a queued job may start: its own once it is initialised there; those on which
    it could not start if no other can hold it. The snapshot's own tuple, if it may start on
    any."""
    only = job.host if job.initialized else job.only_host
    if only is not None:
        return tuple(host for host in snapshot.hosts if host.id == only)
    if not job.unfit_on:
        return snapshot.hosts
    least = min(job.sizes)
    others = (host for host in snapshot.hosts if may_be(job, host.id) and host.usable >= least)
    return tuple(others) or snapshot.hosts


def most_idle(hosts: Iterable[HostView]) -> int:
    """The most idle GPUs that one of the hosts has."""
    most = 0
    for host in hosts:
        if host.idle > most:
            most = host.idle
    return most


def may_be(job: JobView, host: HostId) -> bool:
    """Whether the job's files can be reached from the host, and it did not fail to start there."""
    return job.only_host in (None, host) and host not in job.unfit_on


def with_unusable_hosts(plan: Plan, job: Job | None, hosts: tuple[HostView, ...]) -> Plan:
    """The plan about ``job``, with the hosts named that are no option for it."""
    if job is None:
        return plan
    if job.only_host is not None:
        others = [host.id for host in hosts if host.id != job.only_host]
        because = job.only_host_because
    else:
        others = [host.id for host in hosts if host.id in job.unfit_on]
        because = "it failed to start there"
    if not others:
        return plan
    said = f"{len(others)} hosts are" if len(others) > 1 else f"{others[0]} is"
    return replace(plan, text=f"{plan.text}; {said} excluded: {because}")


def donors(snapshot: Snapshot) -> dict[HostId, list[JobView]]:
    """Running jobs that may be asked to shrink, by host."""
    found: dict[HostId, list[JobView]] = {host.id: [] for host in snapshot.hosts}
    if snapshot.mechanism is Mechanism.NONE:
        return found
    now_s = snapshot.now_s
    for job in snapshot.running:
        sizes = job.sizes
        if job.frozen or not sizes or sizes[0] >= job.size or job.no_shrink_before_s > now_s:
            continue
        here = found.get(job.host) if job.host is not None else None
        if here is not None:
            here.append(job)
    return found


def growable(snapshot: Snapshot) -> list[JobView]:
    """Running jobs that may get more GPUs."""
    if snapshot.mechanism is Mechanism.NONE:
        return []
    usable = {host.id: None for host in snapshot.hosts}
    return [
        job for job in snapshot.running if job.growable and not job.frozen and job.host in usable
    ]


def pinned(snapshot: Snapshot) -> list[JobView]:
    """Running jobs that somebody keeps to a size, whether or not it is known how long they train:
    that matters to who grows for the makespan's sake."""
    if snapshot.mechanism is Mechanism.NONE:
        return []
    return [job for job in snapshot.running if job.pinned and not job.frozen]


def start(job: JobView, size: int, host: HostId, *shrinks: tuple[JobId, int]) -> tuple[Target, ...]:
    """Targets of a start; ``shrinks``: running jobs of the host and the size that each keeps."""
    return (
        Target(job.id, size, host),
        *(Target(donor, keeps, host) for donor, keeps in shrinks),
    )


def decided(
    ranked: list[Option], chosen: Option, *, code: str, text: str, about: JobId, weighed: int
) -> Plan:
    """A plan that takes ``chosen``, with the first of ``ranked`` (best first) beside it."""
    kept = ranked[:OPTIONS_KEPT_MAX]
    if chosen not in kept:
        kept[-1:] = [chosen]
    return Plan(chosen.targets, code, text, about, tuple(kept), kept.index(chosen), weighed=weighed)
