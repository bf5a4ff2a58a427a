"""Attained service in two queues, after the idea of Tiresias: no length needs to be known.

Does: a job with less than ``service_s`` GPU-seconds so far is in the first queue, others are in the
second; each queue is in order of submission. A job starts at its smallest size. If nothing fits, a
job of the first queue takes the GPUs of a running one of the second, as far as the engine allows
it (``scheduling.ratio_preemption``). Jobs do not grow or shrink.
"""

from __future__ import annotations

from math import inf

from reshape_controller.core.phrases import gpus
from reshape_controller.core.plan import JobView, Plan, Snapshot
from reshape_controller.policies.srtf import preempting_plan
from reshape_controller.scheduling import gang_start, legal_moves
from reshape_controller.scheduling.alone import AloneTimes
from reshape_controller.scheduling.only_option import only_option
from reshape_controller.scheduling.predictor import Predictor
from reshape_controller.scheduling.ratio_preemption import RatioPreemption

SERVICE_S = 3600.0
"""GPU-seconds after which a job is in the second queue."""


class Tiresias:
    """The policy. Its name shows another ``service_s`` than the default."""

    may_preempt = True

    def __init__(self, service_s: float | str = SERVICE_S) -> None:
        """``service_s``: GPU-seconds, or the text of a number. Raises ValueError."""
        self._service_s = float(service_s)
        if not 0.0 < self._service_s < inf:
            raise ValueError(f"service_s is {service_s}, and must be above 0")
        usual = self._service_s == SERVICE_S
        self.name = "tiresias" if usual else f"tiresias:service_s={self._service_s:.12g}"

    def may_act(self, *, queued: bool, idle: bool) -> bool:
        """Return whether a plan may change anything: it starts jobs alone."""
        return queued

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the next single decision."""
        queue = legal_moves.startable(snapshot)
        queue.sort(key=lambda job: (self._is_second(snapshot, job), job.place))
        for newcomer in queue:
            size = newcomer.sizes[0]
            targets = gang_start.start_on_idle(snapshot, newcomer, size)
            if targets:
                number = 2 if self._is_second(snapshot, newcomer) else 1
                text = f"{newcomer.spec.name} of queue {number} starts on {gpus(size)}"
                return only_option(targets, "starts-by-service", text, newcomer.id)
        first = [job for job in queue if not self._is_second(snapshot, job)]
        predictor = Predictor(snapshot)
        by_ratio = RatioPreemption(
            snapshot,
            predictor,
            AloneTimes(snapshot, predictor),
            lambda job: self._is_second(snapshot, job),
        )
        return preempting_plan(snapshot, first, by_ratio)

    def _is_second(self, snapshot: Snapshot, job: JobView) -> bool:
        return job.served_s(snapshot.now_s) >= self._service_s
