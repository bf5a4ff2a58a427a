"""The workers of one attempt on several hosts: a gang, which gets and gives GPUs as a whole.

Does: says on which host each worker is, which GPUs of each host a job keeps, lacks or gives at
another size, and in which order its workers have them. An attempt on one host is no gang, whatever
its number of workers.

The k-th of N workers has the k-th part of ``Job.gpus``, so GPUs are listed in the order of hosts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reshape_controller.core.model import Gpu, GpuId, HostId, Job, JobSpec, Share
from reshape_controller.core.plan import Target

Gpus = Mapping[GpuId, Gpu]


def hosts_of_shares(shares: Iterable[Share]) -> tuple[HostId, ...]:
    """Return the host of each worker, in order."""
    return tuple([share.host for share in shares for _ in range(share.workers)])


def shares_of(hosts: Iterable[HostId]) -> tuple[Share, ...]:
    """Return the shares of workers on ``hosts``, which are one entry for each worker."""
    counts: dict[HostId, int] = {}
    for host in hosts:
        counts[host] = counts.get(host, 0) + 1
    return tuple([Share(host, workers) for host, workers in counts.items()])


def hosts_by_worker(gpus: Gpus, ordered: tuple[GpuId, ...], workers: int) -> tuple[HostId, ...]:
    """Return the host of each worker that has its part of ``ordered``; empty if all are on one."""
    first = gpus[ordered[0]].host
    if workers < 2 or all(gpus[gpu].host == first for gpu in ordered):
        return ()
    each = len(ordered) // workers
    return tuple([gpus[ordered[number * each]].host for number in range(workers)])


def place(
    gpus: Gpus, ordered: tuple[GpuId, ...], workers: int
) -> tuple[HostId, tuple[HostId, ...]]:
    """Return the host of the first worker that has its part of ``ordered``, and the host of each
    worker if they are on several."""
    return gpus[ordered[0]].host, hosts_by_worker(gpus, ordered, workers)


def in_place(job: Job, target: Target) -> bool:
    """Whether every worker of a job that has a container stays on its host. A job of which nothing
    stays (size 0) is named by its first host."""
    if target.host != job.host:
        return False
    return target.size == 0 or hosts_of_shares(target.shares) == job.hosts


def wanted(target: Target, spec: JobSpec) -> dict[HostId, int]:
    """Return how many GPUs the job is to have on each host."""
    if not target.shares:
        return {target.host: target.size}
    each = target.size // spec.workers
    return {share.host: share.workers * each for share in target.shares}


def kept(gpus: Gpus, job: Job, want: Mapping[HostId, int]) -> tuple[GpuId, ...]:
    """Return those of its GPUs that a job keeps if it is to have so many on each host: the first of
    each."""
    if not job.hosts and job.host is not None and job.host in want:
        return job.gpus[: want[job.host]]
    left, keeps = dict(want), []
    for gpu in job.gpus:
        host = gpus[gpu].host
        if left.get(host, 0):
            left[host] -= 1
            keeps.append(gpu)
    return tuple(keeps)


def lacking(gpus: Gpus, keeps: Iterable[GpuId], want: Mapping[HostId, int]) -> dict[HostId, int]:
    """Return how many GPUs of each host are missing beside those that are kept."""
    missing = dict(want)
    for gpu in keeps:
        missing[gpus[gpu].host] -= 1
    return missing


def by_worker(
    gpus: Gpus, unordered: tuple[GpuId, ...], hosts: Iterable[HostId]
) -> tuple[GpuId, ...]:
    """Return GPUs in the order in which workers on ``hosts`` have them; unchanged for one host."""
    order = {host: number for number, host in enumerate(dict.fromkeys(hosts))}
    if len(order) < 2:
        return unordered
    return tuple(sorted(unordered, key=lambda gpu: order[gpus[gpu].host]))
