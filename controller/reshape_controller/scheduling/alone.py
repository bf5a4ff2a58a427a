"""How long a queued job needs by itself, on the GPUs that suit it best and as if they were idle."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from reshape_controller.core.plan import JobView, Snapshot
from reshape_controller.scheduling import gang_start
from reshape_controller.scheduling.gang_room import GangRoom
from reshape_controller.scheduling.predictor import Predictor


def best_time_s(snapshot: Snapshot, predictor: Predictor, job: JobView) -> float:
    """Return the seconds at the size that suits the job best; infinite if no usable hosts can hold
    it."""
    return _shortest_s(snapshot, predictor, job, job.sizes)


def time_at_s(snapshot: Snapshot, predictor: Predictor, job: JobView, size: int) -> float:
    """Return the seconds at ``size`` GPUs; infinite if no usable hosts can hold so many."""
    return _shortest_s(snapshot, predictor, job, [size])


def _shortest_s(
    snapshot: Snapshot, predictor: Predictor, job: JobView, sizes: Iterable[int]
) -> float:
    hosts = gang_start.hosts_for(snapshot, job)
    room = GangRoom.of(hosts)
    times_s = [
        predictor.incoming_s(job, gpu_type, size, hosts=room.needed(job, gpu_type, size))
        for size in sizes
        for gpu_type in gang_start.types_for(job, size, hosts)
    ]
    return min(times_s, default=inf)
