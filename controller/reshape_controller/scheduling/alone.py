"""How long a queued job needs by itself, on the GPUs that suit it best and as if they were idle."""

from __future__ import annotations

from math import inf

from reshape_controller.core.job_estimate import JobEstimate
from reshape_controller.core.plan import HostView, JobView, Snapshot
from reshape_controller.scheduling import gang_start
from reshape_controller.scheduling.gang_room import GangRoom
from reshape_controller.scheduling.predictor import Predictor

_Class = tuple[JobEstimate, bool, tuple[int, ...], bool, int]
"""All that the time of a job depends on that may start on every host."""
_Places = dict[tuple[int, bool, int], list[tuple[str, int]]]
"""The GPU types that can hold a job, each with the fewest hosts: by its size, whether it may be on
several hosts, and its workers."""


class AloneTimes:
    """The times of the queued jobs of one snapshot; jobs of a class are looked up once."""

    def __init__(self, snapshot: Snapshot, predictor: Predictor) -> None:
        self._snapshot, self._predictor = snapshot, predictor
        self._by_class: dict[_Class, float] = {}
        self._places: _Places = {}

    def best_s(self, job: JobView) -> float:
        """Return the seconds at the size that suits the job best; infinite if no usable hosts can
        hold it."""
        return self._shortest_s(job, job.sizes)

    def at_s(self, job: JobView, size: int) -> float:
        """Return the seconds at ``size`` GPUs; infinite if no usable hosts can hold so many."""
        return self._shortest_s(job, (size,))

    def _shortest_s(self, job: JobView, sizes: tuple[int, ...]) -> float:
        hosts = gang_start.hosts_for(self._snapshot, job)
        if hosts is not self._snapshot.hosts:
            return self._compute_s(job, sizes, hosts, {})
        spans, workers = gang_start.may_span(job), job.spec.workers
        key = (self._predictor.estimate(job), job.initialized, sizes, spans, workers)
        shortest_s = self._by_class.get(key)
        if shortest_s is None:
            shortest_s = self._compute_s(job, sizes, hosts, self._places)
            self._by_class[key] = shortest_s
        return shortest_s

    def _compute_s(
        self, job: JobView, sizes: tuple[int, ...], hosts: tuple[HostView, ...], places: _Places
    ) -> float:
        """``places``: those on ``hosts`` so far."""
        times_s = [inf]
        for size in sizes:
            key = (size, gang_start.may_span(job), job.spec.workers)
            if key not in places:
                room, types = GangRoom.of(hosts), gang_start.types_for(job, size, hosts)
                places[key] = [(gpu_type, room.needed(job, gpu_type, size)) for gpu_type in types]
            times_s += [
                self._predictor.incoming_s(job, gpu_type, size, hosts=on)
                for gpu_type, on in places[key]
            ]
        return min(times_s)
