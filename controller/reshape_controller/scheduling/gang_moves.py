"""What running jobs release and get in place, host by host: each worker as many GPUs as the others.

Does: counts the GPUs of a gang, or of a job on one host, by host. Nothing is predicted or preferred
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reshape_controller.core.model import HostId, Mechanism
from reshape_controller.core.plan import HostView, JobView, Snapshot, Target


def by_host(job: JobView, gpus: int) -> dict[HostId, int]:
    """Return so many GPUs of a running job by host, as its workers share them."""
    if not job.shares:
        return {} if job.host is None else {job.host: gpus}
    each = gpus // job.spec.workers
    return {share.host: share.workers * each for share in job.shares}


def released(job: JobView, keeps: int) -> dict[HostId, int]:
    """Return the GPUs of each host that a running job releases if it keeps so many."""
    return by_host(job, job.size - keeps)


def released_on(job: JobView, keeps: int, host: HostId) -> int:
    """Return the same for one of its hosts."""
    return released(job, keeps).get(host, 0) if job.shares else job.size - keeps


def in_place(job: JobView, size: int) -> Target:
    """Return the target of a running job that gets another size on its hosts; size 0: it is
    preempted."""
    assert job.host is not None
    return Target(job.id, size, job.host, job.shares if size else ())


def donors(snapshot: Snapshot, gangs: Iterable[JobView]) -> list[JobView]:
    """Return those of the running gangs that may shrink."""
    if snapshot.mechanism is Mechanism.NONE:
        return []
    usable = {host.id: None for host in snapshot.hosts}
    return [
        job
        for job in gangs
        if not job.frozen
        and job.sizes
        and job.sizes[0] < job.size
        and job.no_shrink_before_s <= snapshot.now_s
        and all(host in usable for host in job.all_hosts)
    ]


def growth_sizes(job: JobView, hosts: Mapping[HostId, HostView]) -> list[int]:
    """Return the larger sizes for which each host of a running job has idle GPUs. ``hosts``: at
    least those with idle GPUs."""
    return [
        size
        for size in job.sizes
        if size > job.size
        and all(
            host in hosts and hosts[host].idle >= gpus
            for host, gpus in by_host(job, size - job.size).items()
        )
    ]
