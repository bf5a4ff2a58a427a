"""For how many workers of a gang the hosts have room, and which running jobs make more.

Does: counts the rooms of workers by GPU type, and finds the donors for a start on several hosts.
Nothing is predicted or preferred here: the callers order the jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reshape_controller.core.plan import HostView, JobView
from reshape_controller.scheduling import gang_moves, gang_start
from reshape_controller.scheduling.shrinks import Kept


class Rooms:
    """The rooms of a job's workers on hosts, with what some donors release."""

    def __init__(self, job: JobView, size: int, hosts: Sequence[HostView]) -> None:
        """``hosts``: those on which the workers may start, at ``size`` GPUs in all."""
        self.size = size
        self._workers, self._each = job.spec.workers, size // job.spec.workers
        self._hosts = hosts
        self._kinds = {host.id: host.gpu_type for host in hosts}
        self._idle = {host.id: host.idle for host in hosts}
        self._count = dict.fromkeys(self._kinds.values(), 0)
        """Rooms by GPU type."""
        for host in hosts:
            self._count[host.gpu_type] += host.idle // self._each

    @property
    def are_enough(self) -> bool:
        """Whether the hosts of one GPU type have a room for each worker."""
        return any(count >= self._workers for count in self._count.values())

    @property
    def any_room(self) -> bool:
        """Whether any host has a room."""
        return any(self._count.values())

    def add(self, donor: JobView, keeps: int, before: int | None = None) -> None:
        """Count what a donor releases that keeps so many GPUs instead of ``before`` (its size, if
        that is None)."""
        freed = (donor.size if before is None else before) - keeps
        for host, gpus in gang_moves.by_host(donor, freed).items():
            if host in self._idle:
                kind, idle = self._kinds[host], self._idle[host]
                self._idle[host] = idle + gpus
                self._count[kind] += (idle + gpus) // self._each - idle // self._each

    def hosts_with(self, donors: Iterable[Kept]) -> list[HostView]:
        """Return the hosts with the GPUs that ``donors`` release as idle ones; none if that is not
        enough."""
        for donor, keeps in donors:
            self.add(donor, keeps)
        enough = self.are_enough
        more = {host.id: self._idle[host.id] - host.idle for host in self._hosts} if enough else {}
        for donor, keeps in donors:
            self.add(donor, donor.size, keeps)
        return gang_start.with_idle(self._hosts, more) if enough else []


def enough_on_several(rooms: Rooms, jobs: Iterable[JobView], *, preempts: bool) -> list[Kept]:
    """Return the donors for a start on several hosts: the first of ``jobs`` that are enough,
    without those that are not needed, each as large as it can stay; with ``preempts`` at size 0.
    Empty if they are not enough. The rooms are as before then."""
    chosen: list[Kept] = []
    for job in jobs:
        if rooms.are_enough:
            break
        chosen.append((job, 0 if preempts else job.sizes[0]))
        rooms.add(*chosen[-1])
    needed = (
        [kept for kept in chosen if not _is_superfluous(rooms, kept)] if rooms.are_enough else []
    )
    if not preempts:
        needed = [(job, _raised(rooms, job, kept)) for job, kept in needed]
    for job, kept in needed or chosen:
        rooms.add(job, job.size, kept)
    return needed


def _is_superfluous(rooms: Rooms, donor: Kept) -> bool:
    """Whether the others are enough without a donor; then its GPUs count no more."""
    job, kept = donor
    rooms.add(job, job.size, kept)
    if rooms.are_enough:
        return True
    rooms.add(job, kept)
    return False


def _raised(rooms: Rooms, job: JobView, kept: int) -> int:
    """Return the largest size at which a donor still gives enough, and count what it gives then."""
    for size in reversed([size for size in job.sizes if kept < size < job.size]):
        rooms.add(job, size, kept)
        if rooms.are_enough:
            return size
        rooms.add(job, kept, size)
    return kept
