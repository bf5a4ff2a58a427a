"""Scale-down and scale-up as in DRAGON: running jobs shrink for a newcomer, or grow step by step.

Does: finds the targets of one plan. The policies say which jobs give, in which order, and when.
Nothing is predicted here, so a job with ``may_restart`` may repeat steps.
"""

from __future__ import annotations

from collections.abc import Iterable

from reshape_controller.core.model import HostId, JobId, Mechanism
from reshape_controller.core.plan import HostView, JobView, Snapshot, Target
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
    by_host: dict[HostId, list[JobView]] = {}
    for job in walk:
        for host_id in job.all_hosts:
            by_host.setdefault(host_id, []).append(job)
    hosts, found = gang_start.hosts_for(snapshot, newcomer), []
    for host in hosts:
        needed = shrinks.enough(host, size, by_host.get(host.id, ()))
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
    if snapshot.mechanism is Mechanism.NONE or not snapshot.idle:
        return ()
    idle = {host.id: host.idle for host in snapshot.hosts}
    rooms = {host.gpu_type: _Room(idle) for host in snapshot.hosts}
    for host in snapshot.idle:
        rooms[host.gpu_type].add(host)
    room_of = {host.id: rooms[host.gpu_type] for host in snapshot.hosts}
    turns = [job for job in snapshot.running if job.host in idle and not job.frozen]
    grown: dict[JobId, Target] = {}
    while turns:
        again = []
        for job in turns:
            before = grown.get(job.id)
            if job.shares:
                target = _step_of_gang(job, before, idle)
            else:
                assert job.host is not None
                target = _step(job, before, idle, room_of[job.host])
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
    job: JobView, target: Target | None, idle: dict[HostId, int], room: _Room
) -> Target | None:
    """Return the target of the job's next step; None if there is no next size or no room. ``room``:
    that of its GPU type."""
    assert job.host is not None
    size, own = (job.size, job.host) if target is None else (target.size, target.host)
    larger = next((each for each in job.sizes if each > size), None)
    if larger is None:
        return None
    host: HostId | None = own
    if larger - _size_on(job, target, own) > idle[own]:
        host = room.host_for(job, larger) if target is None else None
    return Target(job.id, larger, host) if host is not None else None


class _Room:
    """The hosts of a GPU type that have idle GPUs for jobs of other hosts."""

    def __init__(self, idle: dict[HostId, int]) -> None:
        """``idle``: the idle GPUs of each host, which only get fewer."""
        self._idle, self._hosts = idle, list[HostId]()
        self._most = 0
        """No host has more idle GPUs."""

    def add(self, host: HostView) -> None:
        """Add the next host, in their order."""
        self._hosts.append(host.id)
        self._most = max(self._most, host.idle)

    def host_for(self, job: JobView, size: int) -> HostId | None:
        """Return the first host on which a job for whose growth its own has no room may have
        ``size`` GPUs; None without one."""
        if size > self._most:
            return None
        for host in self._hosts:
            if size <= self._idle[host] and legal_moves.may_run_on(job, host):
                return host
        if job.only_host is None and not job.unfit_on:
            self._most = size - 1
        return None
