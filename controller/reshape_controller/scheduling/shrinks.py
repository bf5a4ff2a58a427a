"""The shrinks of jobs on one host that free enough GPUs for a start, and none that is not needed.

Nothing is predicted or preferred here: the callers order the jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reshape_controller.core.plan import HostView, JobView

Kept = tuple[JobView, int]
"""A donor, and the size that it keeps."""


def kept_size(job: JobView, missing: int) -> int:
    """Return the largest size at which a donor gives enough, or else its smallest."""
    enough = [size for size in job.sizes if size < job.size and job.size - size >= missing]
    return max(enough) if enough else job.sizes[0]


def enough(
    host: HostView,
    size: int,
    jobs: Iterable[JobView],
    keeps: Callable[[JobView, int], int] = kept_size,
) -> list[Kept]:
    """Return the donors for a start on ``size`` GPUs of a host: the first of ``jobs`` that are
    enough, without those whose GPUs are not needed; empty if they are not enough, or if none is
    needed. ``keeps``: the size of a donor after it, given the missing GPUs."""
    missing = size - host.idle
    chosen: list[Kept] = []
    for job in jobs:
        if missing > 0:
            chosen.append((job, keeps(job, missing)))
            missing -= job.size - chosen[-1][1]
    if missing > 0:
        return []
    needed, surplus = [], -missing
    for job, kept in chosen:
        if job.size - kept <= surplus:
            surplus -= job.size - kept
        else:
            needed.append((job, kept))
    return needed
