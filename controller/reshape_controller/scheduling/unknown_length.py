"""The growth of jobs of unknown length, onto idle GPUs that no queued job wants.

Does: finds the job that has waited longest at its size. The gain cannot be predicted, so each job
trains for a while at a size first, and a queued job always comes before.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from reshape_controller.core.plan import HostView, JobView, Snapshot, Target
from reshape_controller.core.preemption import start_of
from reshape_controller.scheduling import legal_moves


def growth(
    snapshot: Snapshot, jobs: Sequence[JobView], idle: Sequence[HostView], after_s: float
) -> tuple[Target | None, float]:
    """Return the growth of the job that has had its size for longest, and the time at which a
    further job may grow (infinite if there is none).

    ``jobs``: the running jobs of unknown length; ``idle``: hosts with idle GPUs; ``after_s``:
    shortest time at a size.
    """
    found: list[tuple[float, str, Target]] = []
    again_s = inf
    by_id = {host.id: host for host in idle}
    for job in jobs:
        if job.fixed_because or not job.trains or job.pinned or job.shares:
            continue
        host = by_id.get(job.host) if job.host is not None else None
        sizes = (
            [] if host is None else [n for n in job.sizes if job.size < n <= job.size + host.idle]
        )
        if host is None or not sizes or _is_wanted(snapshot, host):
            continue
        since_s = _same_size_since_s(job)
        if since_s + after_s > snapshot.now_s:
            again_s = min(again_s, since_s + after_s)
        else:
            found.append((since_s, job.id, Target(job.id, max(sizes), host.id)))
    return (min(found)[2] if found else None), again_s


def _same_size_since_s(job: JobView) -> float:
    """Return the time from which the job has had its size."""
    start_s = start_of(job)
    return start_s if job.reshaped_at_s is None else max(start_s, job.reshaped_at_s)


def _is_wanted(snapshot: Snapshot, host: HostView) -> bool:
    """Whether a queued job may start on the host, now or once more of its GPUs are idle."""
    for job in snapshot.queued:
        if (
            job.sizes
            and job.sizes[0] <= host.usable
            and host in legal_moves.hosts_for(snapshot, job)
        ):
            return True
    return False
