"""Scale-down and scale-up as in DRAGON: running jobs shrink for a newcomer, or grow step by step.

Does: finds the targets of one plan. The policies say which jobs give, in which order, and when.
Nothing is predicted here, so a job with ``may_restart`` may repeat steps.
"""

from __future__ import annotations

from collections.abc import Iterable

from reshape_controller.core.model import HostId, JobId, Mechanism
from reshape_controller.core.plan import JobView, Snapshot, Target
from reshape_controller.core.preemption import start_of
from reshape_controller.scheduling import gang_moves, gang_start, legal_moves, shrinks
from reshape_controller.scheduling.shrinks import Kept
from reshape_controller.scheduling.worker_rooms import Rooms, enough_on_several


def can_hold(snapshot: Snapshot, job: JobView, size: int) -> bool:
    """Whether hosts on which the queued job may start have ``size`` usable GPUs."""
    return gang_start.can_ever_hold(snapshot, job, size)


def donors_in_order(snapshot: Snapshot) -> list[JobView]:
    """Return the running jobs above their smallest size: the lowest priority first, of equal ones
    the newest start."""
    found = [job for jobs in legal_moves.donors(snapshot).values() for job in jobs]
    found += gang_moves.donors(snapshot, [job for job in snapshot.running if job.shares])
    return sorted(found, key=lambda job: (job.spec.priority, -start_of(job), job.id))


def refused_until_s(snapshot: Snapshot) -> list[float]:
    """Return the times at which jobs that refused to save may be asked again."""
    times_s = [job.no_shrink_before_s for job in snapshot.running]
    return [at_s for at_s in times_s if at_s > snapshot.now_s]


def scale_down(
    snapshot: Snapshot, newcomer: JobView, size: int, donors: Iterable[JobView]
) -> tuple[Target, ...]:
    """Return a start for which ``donors`` of one host shrink, in their order, or of several hosts
    if the newcomer may span; empty if all of them at their smallest sizes are not enough. The host
    with fewest given GPUs is taken."""
    walk = list(donors)
    hosts, found = gang_start.hosts_for(snapshot, newcomer), []
    for host in hosts:
        donors_here = [job for job in walk if job.host == host.id or _has_part_on(job, host.id)]
        needed = shrinks.enough(host, size, donors_here)
        if needed:
            target = Target(newcomer.id, size, host.id)
            found.append(_start_for(target, needed))
    if gang_start.spans_at(snapshot, newcomer, size):
        rooms = Rooms(newcomer, size, hosts)
        needed = enough_on_several(rooms, walk, preempts=False)
        shares = gang_start.place(newcomer, size, rooms.hosts_with(needed)) if needed else ()
        if shares:
            found.append(_start_for(gang_start.target_of(newcomer, size, shares), needed))
    return min(found, key=lambda entry: entry[0])[1] if found else ()


def _has_part_on(job: JobView, host: HostId) -> bool:
    """Whether a gang has workers on a host."""
    return any(share.host == host for share in job.shares)


def _start_for(target: Target, donors: Iterable[Kept]) -> tuple[int, tuple[Target, ...]]:
    """Return the GPUs that donors give, and the targets of the start for which they shrink."""
    given = sum(job.size - keeps for job, keeps in donors)
    return given, (target, *(gang_moves.in_place(job, keeps) for job, keeps in donors))


def scale_up(snapshot: Snapshot) -> tuple[Target, ...]:
    """Return the growth of running jobs onto the idle GPUs: one step to the next size for each job
    in queue order, and on in turn while there is room.

    A job grows on its host, or moves to another host of the same GPU type if its own has no room. A
    gang grows in place.
    """
    if snapshot.mechanism is Mechanism.NONE:
        return ()
    idle = {host.id: host.idle for host in snapshot.hosts}
    kinds = {host.id: host.gpu_type for host in snapshot.hosts}
    turns = [job for job in snapshot.running if job.host in idle and not job.frozen]
    grown: dict[JobId, Target] = {}
    while turns:
        again = []
        for job in turns:
            before = grown.get(job.id)
            if job.shares:
                target = _step_of_gang(job, before, idle)
            else:
                target = _step(job, before, idle, kinds)
                if target is not None:
                    idle[target.host] -= target.size - _size_on(job, before, target.host)
            if target is not None:
                grown[job.id] = target
                again.append(job)
        turns = again
    return tuple(grown.values())


def _size_on(job: JobView, target: Target | None, host: HostId) -> int:
    """Return the GPUs of a host that the job has, or has by the target so far."""
    if target is not None:
        return target.size if target.host == host else 0
    return job.size if job.host == host else 0


def _step_of_gang(job: JobView, target: Target | None, idle: dict[HostId, int]) -> Target | None:
    """Return the target of a gang's next step, and take its GPUs from ``idle``; None if there is no
    next size, or no room on one of its hosts."""
    size = job.size if target is None else target.size
    larger = next((each for each in job.sizes if each > size), size)
    more = gang_moves.by_host(job, larger - size)
    if larger == size or any(idle.get(host, 0) < gpus for host, gpus in more.items()):
        return None
    for host, gpus in more.items():
        idle[host] -= gpus
    return gang_moves.in_place(job, larger)


def _step(
    job: JobView, target: Target | None, idle: dict[HostId, int], kinds: dict[HostId, str]
) -> Target | None:
    """Return the target of the job's next step; None if there is no next size or no room."""
    assert job.host is not None
    size, own = (job.size, job.host) if target is None else (target.size, target.host)
    larger = next((each for each in job.sizes if each > size), None)
    if larger is None:
        return None
    others = () if target is not None else tuple(idle)
    for host in (own, *others):
        may_run = host == own or (kinds[host] == kinds[own] and legal_moves.may_run_on(job, host))
        if may_run and larger - _size_on(job, target, host) <= idle[host]:
            return Target(job.id, larger, host)
    return None
