"""Prices of GPU-seconds that rise with their allocation, after OASIS: which queued jobs pay them.

Does: computes each job's weight, its value per GPU-second, and the price
p = L * (U / L) ** (z / c): z of c usable GPUs are allocated; L and U are the least and the largest
value of the known jobs. So every job pays while nothing is allocated, and at most the most valuable
one if all is.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp

from reshape_controller.core.model import JobId
from reshape_controller.core.phrases import gpus
from reshape_controller.core.plan import JobView, Snapshot
from reshape_controller.core.preemption import start_of
from reshape_controller.scheduling.alone import AloneTimes
from reshape_controller.scheduling.predictor import Predictor

PRIORITIES = (1, 100)
"""The least and the largest priority that a weight counts."""
ROUNDING = 1e-9


def weight(priority: int, criticality: float = 0.0) -> float:
    """Return a job's weight as printed: ``priority`` (1 to 100) over 1 + e to the ``criticality``
    (0 to 1). It falls with the criticality."""
    least, largest = PRIORITIES
    return min(largest, max(least, priority)) / (1.0 + exp(criticality))


class Prices:
    """The price in a snapshot, and which queued jobs pay it."""

    def __init__(
        self, snapshot: Snapshot, predictor: Predictor, sizes: Mapping[JobId, int]
    ) -> None:
        """``sizes``: the start size of each queued job that can start."""
        self._sizes, alone = sizes, AloneTimes(snapshot, predictor)
        self._values = {
            job.id: _value(job, sizes[job.id], alone.at_s(job, sizes[job.id]))
            for job in snapshot.queued
            if job.id in sizes
        }
        known = list(self._values.values())
        for job in snapshot.running:
            ran_s = max(0.0, snapshot.now_s - start_of(job))
            known.append(_value(job, job.size, ran_s + predictor.unchanged_s(job)))
        usable = sum(host.usable for host in snapshot.hosts)
        idle = sum(host.idle for host in snapshot.hosts)
        least, largest = min(known), max(known)
        self.price: float = least * (largest / least) ** ((usable - idle) / usable)

    def admits(self, job: JobView) -> bool:
        """Whether the weight of a queued job is at least what its GPU-seconds cost."""
        return self._values[job.id] >= self.price * (1.0 - ROUNDING)

    def text(self, job: JobView) -> str:
        """Return why a queued job is not admitted."""
        value = self._values[job.id]
        return (
            f"{job.spec.name} waits: a GPU-second of its {gpus(self._sizes[job.id])} is worth "
            f"{value:.3g} to it, and costs {self.price:.3g} while as many GPUs are allocated"
        )


def _value(job: JobView, size: int, takes_s: float) -> float:
    """Return the weight per GPU-second."""
    return weight(job.spec.priority) / (size * max(1.0, takes_s))
