"""The shrinks of jobs on one host that free enough GPUs for a start, and none that is not needed.

Nothing is predicted or preferred here: the callers order the jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reshape_controller.core.model import HostId
from reshape_controller.core.plan import HostView, JobView
from reshape_controller.scheduling.gang_moves import released_on

Kept = tuple[JobView, int]
"""A donor, and the size that it keeps."""
KeptSize = Callable[[JobView, int, HostId], int]
"""The size of a donor afterwards, given the GPUs that are missing on a host."""


def kept_size(job: JobView, missing: int, host: HostId) -> int:
    """Return the largest size at which a donor gives enough on a host, or else its smallest."""
    enough = [n for n in job.sizes if n < job.size and released_on(job, n, host) >= missing]
    return max(enough) if enough else job.sizes[0]


def enough(
    host: HostView,
    size: int,
    jobs: Iterable[JobView],
    keeps: KeptSize = kept_size,
) -> list[Kept]:
    """Return the donors for a start on ``size`` GPUs of a host: the first of ``jobs`` that are
    enough, without those whose GPUs are not needed; empty if they are not enough, or if none is
    needed. ``jobs``: on this host, gangs with a part of their GPUs."""
    missing = size - host.idle
    chosen: list[Kept] = []
    for job in jobs:
        if missing > 0:
            chosen.append((job, keeps(job, missing, host.id)))
            missing -= released_on(*chosen[-1], host.id)
    if missing > 0:
        return []
    needed, surplus = [], -missing
    for job, kept in chosen:
        gives = released_on(job, kept, host.id)
        if gives <= surplus:
            surplus -= gives
        else:
            needed.append((job, kept))
    return needed
