"""The start for which a job that waits far longer than it trains sends one job back to the queue.

Does: finds the one job to preempt by the reason ``ratio``, under the rules of
``preemption_reason`` and ``core.preemption``, so that a plan with it is not rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from math import inf

from reshape_controller.core.model import HostId, JobId
from reshape_controller.core.phrases import gpus
from reshape_controller.core.plan import HostView, JobView, Snapshot
from reshape_controller.scheduling import gang_moves, gang_start
from reshape_controller.scheduling.alone import AloneTimes
from reshape_controller.scheduling.outranking import (
    OutrankingStart,
    preemptible_at_s,
    start_on_several,
)
from reshape_controller.scheduling.predictor import Predictor
from reshape_controller.scheduling.preemption_reason import (
    LEFT_RATIO_MIN,
    RATIO_MIN,
    ROUNDING_S,
    idle_would_do,
)


class RatioPreemption:
    """What the queued jobs of one snapshot may preempt for the reason ``ratio``."""

    def __init__(
        self,
        snapshot: Snapshot,
        predictor: Predictor,
        alone: AloneTimes,
        may_give: Callable[[JobView], bool] = lambda job: True,
    ) -> None:
        """``may_give``: further conditions of a policy on the job that is preempted."""
        self._snapshot, self._predictor, self._alone = snapshot, predictor, alone
        self._may_give = may_give

    def start(
        self, newcomer: JobView, hosts: Iterable[HostView]
    ) -> tuple[OutrankingStart | None, float]:
        """Return the start on the GPUs of the running job that has most to go, and the time at
        which the newcomer has waited for long enough (infinite if it has)."""
        snapshot, best_s = self._snapshot, self._alone.best_s(newcomer)
        wait_s = snapshot.now_s - newcomer.waits_since_s
        if not (wait_s + best_s) / best_s >= RATIO_MIN:
            return None, newcomer.waits_since_s + (RATIO_MIN - 1.0) * best_s + ROUNDING_S
        if idle_would_do(snapshot, newcomer):
            return None, inf
        all_hosts = hosts is snapshot.hosts
        by_id = self._hosts_by_id if all_hosts else {host.id: host for host in hosts}
        spans = gang_start.may_span(newcomer)
        for left_s, job in self._donors:
            if left_s < LEFT_RATIO_MIN * best_s:
                break
            if job.spec.priority > newcomer.spec.priority:
                continue
            if not job.shares and not spans:
                host = by_id.get(job.host) if job.host is not None else None
                if host is None or host.idle + job.size < newcomer.sizes[0]:
                    continue
            start = _start(newcomer, job, by_id)
            if start is not None:
                return start, inf
        return None, inf

    @cached_property
    def _hosts_by_id(self) -> dict[HostId, HostView]:
        return {host.id: host for host in self._snapshot.hosts}

    @cached_property
    def _donors(self) -> list[tuple[float, JobView]]:
        """The jobs that the engine lets a newcomer preempt if its priority allows it, and their
        seconds to go; those with most first."""
        found: list[tuple[float, JobId, JobView]] = [
            (-self._predictor.unchanged_s(job), job.id, job)
            for job in self._snapshot.running
            if _may_be_preempted(self._snapshot, job) and self._may_give(job)
        ]
        found.sort(key=lambda entry: entry[:2])
        return [(-negative_s, job) for negative_s, _, job in found]


def _start(
    newcomer: JobView, donor: JobView, by_id: Mapping[HostId, HostView]
) -> OutrankingStart | None:
    """Return the start in the place of a running job: on the one of its hosts with most GPUs, or of
    a job that may span on several; None if they are not enough."""
    found = []
    for host_id, gives in gang_moves.released(donor, 0).items():
        host = by_id.get(host_id)
        if host is not None and host.idle + gives >= newcomer.sizes[0]:
            found.append((-host.idle - gives, host_id, host))
    if found:
        most, _, host = min(found)
        size = max(n for n in newcomer.sizes if n <= -most)
        return OutrankingStart(size, (host,), ((donor, 0),))
    if not gang_start.may_span(newcomer):
        return None
    several = start_on_several(newcomer, list(by_id.values()), [donor], preempts=True)
    return several[0] if several else None


def ratio_text(newcomer: JobView, start: OutrankingStart) -> str:
    """Return what the start does."""
    (donor, _), *_ = start.donors
    what = f"{newcomer.spec.name} starts on {gpus(start.size)} of {start.where}"
    why = "which has far more to go, is preempted and waits in its old place"
    return f"{what}; {donor.spec.name}, {why}."


def _may_be_preempted(snapshot: Snapshot, job: JobView) -> bool:
    """Whether the engine lets a newcomer preempt a running job for the reason ``ratio``, if the
    newcomer's priority allows it."""
    if job.frozen or not job.trains or job.loses or job.fixed_because:
        return False
    return job.size == min(job.sizes) and preemptible_at_s(job, by_equal=True) <= snapshot.now_s
