"""The moves that the engine's rules allow in a snapshot: which jobs may start, shrink and grow.

Does: lists the legal moves, so that each policy only adds its preference. Every list is in the
snapshot's order. Nothing is predicted here.
"""

from __future__ import annotations

from collections.abc import Iterable

from reshape_controller.core.fast_replace import replace
from reshape_controller.core.model import HostId, Job, JobId, Mechanism
from reshape_controller.core.plan import HostView, JobView, Option, Plan, Snapshot, Target

OPTIONS_MAX = 64
"""The most options that a plan shows, the best first; ``Plan.weighed`` is the number of all."""

FIXED_SHOWN_MAX = 3
"""The most jobs that a plan's text names because no plan may reshape them."""


def startable(snapshot: Snapshot) -> list[JobView]:
    """Return the queued jobs that may start now, in queue order."""
    return [job for job in snapshot.queued if may_start(snapshot, job)]


def may_start(snapshot: Snapshot, job: JobView) -> bool:
    """Whether a queued job may start now."""
    return not job.frozen and job.not_before_s <= snapshot.now_s and bool(job.sizes)


def hosts_for(snapshot: Snapshot, job: JobView) -> tuple[HostView, ...]:
    """Return the hosts on which a queued job may start.

    Once it is initialised on a host, only that one counts. Hosts on which it failed to start count
    only if no other can hold it. The result is the snapshot's own tuple if the job may start on
    any host.
    """
    only = job.host if job.initialized else job.only_host
    if only is not None:
        return tuple(host for host in snapshot.hosts if host.id == only)
    if not job.unfit_on:
        return snapshot.hosts
    least = min(job.sizes)
    others = (host for host in snapshot.hosts if may_run_on(job, host.id) and host.usable >= least)
    return tuple(others) or snapshot.hosts


def most_idle(hosts: Iterable[HostView]) -> int:
    """Return the largest number of idle GPUs on one of the hosts; 0 without hosts."""
    most = 0
    for host in hosts:
        if host.idle > most:
            most = host.idle
    return most


def may_run_on(job: JobView, host: HostId) -> bool:
    """Whether the job's files can be reached from the host, and it did not fail to start there."""
    return job.only_host in (None, host) and host not in job.unfit_on


def with_unusable_hosts(plan: Plan, job: Job | None, hosts: tuple[HostView, ...]) -> Plan:
    """Return the plan about ``job`` with the hosts in its text that are no option for the job."""
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
    subject = f"{len(others)} hosts are" if len(others) > 1 else f"{others[0]} is"
    return replace(plan, text=_and(plan.text, f"{subject} excluded: {because}"))


def with_fixed_jobs(plan: Plan, running: Iterable[JobView]) -> Plan:
    """Return the plan with the jobs in its text that no plan may reshape, each with the reason."""
    fixed = [
        f"{job.spec.name} is not reshaped: {job.fixed_because}"
        for job in running
        if job.fixed_because and job.trains  # of a program that starts, nothing is known yet
    ]
    if plan.about is None or not fixed:
        return plan
    more = (
        [f"{len(fixed) - FIXED_SHOWN_MAX} more jobs neither"]
        if len(fixed) > FIXED_SHOWN_MAX
        else []
    )
    return replace(plan, text=_and(plan.text, *fixed[:FIXED_SHOWN_MAX], *more))


def with_gangs_left(plan: Plan, running: Iterable[JobView], policy: str) -> Plan:
    """Return the plan of a policy that reshapes no gang, with that in its text if one runs."""
    gangs = [job for job in running if job.shares and not job.fixed_because]
    if plan.about is None or not gangs:
        return plan
    named = f"{gangs[0].spec.name} on {' and '.join(gangs[0].all_hosts)}"
    return replace(plan, text=_and(plan.text, f"{named} keeps its GPUs: {policy} reshapes no gang"))


def _and(text: str, *more: str) -> str:
    """Return the text of a plan, which may end as a sentence, with ``more`` clauses."""
    return "; ".join((text.removesuffix("."), *more))


def donors(snapshot: Snapshot) -> dict[HostId, list[JobView]]:
    """Return the running jobs that may shrink, by host; every host has a list. Those on several
    hosts are left out (``gang_moves.donors``)."""
    by_host: dict[HostId, list[JobView]] = {host.id: [] for host in snapshot.hosts}
    if snapshot.mechanism is Mechanism.NONE:
        return by_host
    now_s = snapshot.now_s
    for job in snapshot.running:
        sizes = job.sizes
        if job.frozen or not sizes or sizes[0] >= job.size or job.no_shrink_before_s > now_s:
            continue
        if job.shares:
            continue
        on_host = by_host.get(job.host) if job.host is not None else None
        if on_host is not None:
            on_host.append(job)
    return by_host


def growable(
    snapshot: Snapshot, hosts: Iterable[HostView] | None = None, *, gangs: bool = False
) -> list[JobView]:
    """Return the running jobs that may get more GPUs; with ``gangs`` also those on several hosts.
    ``hosts``: only jobs all of whose hosts are among them; None: among the usable ones."""
    if snapshot.mechanism is Mechanism.NONE:
        return []
    among = {host.id: None for host in (snapshot.hosts if hosts is None else hosts)}
    return [
        job
        for job in snapshot.running
        if job.host in among
        and job.growable
        and not job.frozen
        and (not job.shares or (gangs and all(host in among for host in job.all_hosts)))
    ]


def pinned(snapshot: Snapshot) -> list[JobView]:
    """Return the running jobs that a user has pinned to a size. Unlike ``growable``, their lengths
    may be unknown: a pinned job grows whatever the makespan is. Those on several hosts are left
    out."""
    if snapshot.mechanism is Mechanism.NONE:
        return []
    return [job for job in snapshot.running if job.pinned and not job.frozen and not job.shares]


def start(job: JobView, size: int, host: HostId, *shrinks: tuple[JobId, int]) -> tuple[Target, ...]:
    """Return the targets of a start; ``shrinks``: donors on the host, and the size that each
    keeps."""
    return (
        Target(job.id, size, host),
        *(Target(donor, keeps, host) for donor, keeps in shrinks),
    )


def plan_of(
    ranked: list[Option], chosen: Option, *, code: str, text: str, about: JobId, weighed: int
) -> Plan:
    """Return the plan that takes ``chosen``. It shows the first of ``ranked`` (best first), among
    them ``chosen``."""
    shown = ranked[:OPTIONS_MAX]
    if chosen not in shown:
        shown[-1:] = [chosen]
    return Plan(
        chosen.targets, code, text, about, tuple(shown), shown.index(chosen), weighed=weighed
    )
