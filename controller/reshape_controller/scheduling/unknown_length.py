"""The growth of jobs of unknown length, onto idle GPUs that no queued job wants.

Does: finds the job that has waited longest at its size. The gain cannot be predicted, so each job
trains for a while at a size first, and a queued job always comes before.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from reshape_controller.core.plan import HostView, JobView, Snapshot, Target
from reshape_controller.core.preemption import start_of
from reshape_controller.scheduling import gang_moves, gang_start


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
        if job.fixed_because or not job.trains or job.pinned:
            continue
        sizes = gang_moves.growth_sizes(job, by_id)
        if not sizes or any(_is_wanted(snapshot, by_id[host]) for host in job.all_hosts):
            continue
        since_s = _same_size_since_s(job)
        if since_s + after_s > snapshot.now_s:
            again_s = min(again_s, since_s + after_s)
        else:
            found.append((since_s, job.id, gang_moves.in_place(job, max(sizes))))
    return (min(found)[2] if found else None), again_s


def _same_size_since_s(job: JobView) -> float:
    """Return the time from which the job has had its size."""
    start_s = start_of(job)
    return start_s if job.reshaped_at_s is None else max(start_s, job.reshaped_at_s)


def _is_wanted(snapshot: Snapshot, host: HostView) -> bool:
    """Whether a queued job may start on the host, now or once more of its GPUs are idle."""
    for job in snapshot.queued:
        least = job.sizes[0] if job.sizes else 0
        if gang_start.may_span(job):
            least //= job.spec.workers
        if 0 < least <= host.usable and host in gang_start.hosts_for(snapshot, job):
            return True
    return False
