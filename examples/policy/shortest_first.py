"""The toy policy of CONTRIBUTING.md: the job with the fewest steps starts first.

Does: starts queued jobs on idle GPUs, each at its largest size that fits. Never: reshapes a job.
"""

from __future__ import annotations

from reshape_controller.core.model import LengthUnit
from reshape_controller.core.plan import JobView, Plan, Snapshot
from reshape_controller.scheduling import legal_moves


def steps(job: JobView) -> float:
    """Steps of a job's record; infinity if the record gives no number of steps."""
    length = job.spec.length
    return length.value if length and length.unit is LengthUnit.STEPS else float("inf")


class ShortestFirst:
    """Stateless; see the module."""

    name = "shortest-first"

    def decide(self, snapshot: Snapshot) -> Plan:
        """Start the shortest queued job that fits; an empty plan if none fits."""
        queue = legal_moves.startable(snapshot)
        for job in sorted(queue, key=lambda job: (steps(job), job.place, job.id)):
            for host in legal_moves.hosts_for(snapshot, job):
                sizes = [size for size in job.sizes if size <= host.idle]
                if sizes:
                    targets = legal_moves.start(job, max(sizes), host.id)
                    text = f"{job.spec.name} starts: no queued job has fewer steps"
                    return Plan(targets, "starts-shortest", text, job.id)
        return Plan()
