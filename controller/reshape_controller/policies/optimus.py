"""The paper's comparison (its section V.B): start small, then grow step by step.

Does: starts a queued job at its smallest size; then idle GPUs take a running job to its next size,
the job with the largest gain per GPU first. As in Optimus, the gain is that of the training alone:
the cost of a restart does not count. Jobs do not shrink or move.
"""

from __future__ import annotations

from reshape_controller.core.model import JobId
from reshape_controller.core.phrases import gpus
from reshape_controller.core.plan import JobView, Option, Plan, Snapshot
from reshape_controller.scheduling import gang_moves, gang_start, legal_moves
from reshape_controller.scheduling.predictor import Predictor


class Optimus:
    """The policy; it has no settings."""

    name = "optimus"

    def may_act(self, *, queued: bool, idle: bool) -> bool:
        """Return whether a plan may change anything: it gives idle GPUs alone."""
        return idle

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the next single decision."""
        if not snapshot.idle:
            return Plan()
        for newcomer in legal_moves.startable(snapshot):
            size = min(newcomer.sizes)
            targets = gang_start.start_on_idle(snapshot, newcomer, size)
            if targets:
                option = Option(targets, note="smallest size")
                return legal_moves.plan_of(
                    [option],
                    option,
                    code="starts-small",
                    text=f"{newcomer.spec.name} starts on {gpus(size)}, its smallest size",
                    about=newcomer.id,
                    weighed=1,
                )
        return _grow(snapshot)


def _grow(snapshot: Snapshot) -> Plan:
    """The plan that grows the job with the largest gain per GPU."""
    predictor = Predictor(snapshot)
    hosts = {host.id: host for host in snapshot.idle}
    ranked: list[tuple[float, int, JobId, JobView, int]] = []
    for job in legal_moves.growable(snapshot, snapshot.idle, gangs=True):
        larger = next((size for size in job.sizes if size > job.size), None)
        if larger is None or larger not in gang_moves.growth_sizes(job, hosts):
            continue
        assert job.host is not None
        gpu_type, on = hosts[job.host].gpu_type, len(job.all_hosts)
        now_s = predictor.train_s(job, gpu_type, job.size, on)
        then_s = predictor.train_s(job, gpu_type, larger, on)
        gain_s = (now_s - then_s) / (larger - job.size)
        if gain_s > 0:
            ranked.append((-gain_s, job.place, job.id, job, larger))
    if not ranked:
        return Plan()
    weighed = len(ranked)
    ranked = sorted(ranked) if snapshot.explain else [min(ranked)]
    options = [
        Option(
            (gang_moves.in_place(job, larger),),
            note=f"{job.size} to {larger}, {-negative_s:.0f} s less for each GPU",
        )
        for negative_s, _, _, job, larger in ranked
    ]
    _, _, _, job, larger = ranked[0]
    return legal_moves.plan_of(
        options,
        options[0],
        code="grows",
        text=f"{job.spec.name} grows from {job.size} to {gpus(larger)}",
        about=job.id,
        weighed=weighed,
    )
