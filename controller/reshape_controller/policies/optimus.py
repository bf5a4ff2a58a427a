"""The paper's comparison (its section V.B): start small, then grow step by step.

Does: starts a queued job at its smallest size; then idle GPUs take a running job to its next size,
the job with the largest gain per GPU first. As in Optimus, the gain is that of the training alone:
the cost of a restart does not count. Jobs do not shrink or move.
"""

from __future__ import annotations

from reshape_controller.core.phrases import gpus
from reshape_controller.core.plan import Option, Plan, Snapshot
from reshape_controller.scheduling import gang_moves, gang_start, legal_moves
from reshape_controller.scheduling.predictor import Predictor


class Optimus:
    """The policy; it has no settings."""

    name = "optimus"

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the next single decision."""
        most_idle = legal_moves.most_idle(snapshot.hosts)
        if not most_idle:
            return Plan()
        for newcomer in legal_moves.startable(snapshot):
            size = min(newcomer.sizes)
            if size > most_idle and not gang_start.may_span(newcomer):
                continue
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
    hosts = {host.id: host for host in snapshot.hosts}
    ranked = []
    for job in legal_moves.growable(snapshot, gangs=True):
        assert job.host is not None
        host = hosts[job.host]
        larger = [size for size in job.sizes if size > job.size]
        if not larger or larger[0] not in gang_moves.growth_sizes(job, hosts):
            continue
        on = len(job.all_hosts)
        now_s = predictor.train_s(job, host.gpu_type, job.size, on)
        then_s = predictor.train_s(job, host.gpu_type, larger[0], on)
        gain_s = (now_s - then_s) / (larger[0] - job.size)
        if gain_s > 0:
            note = f"{job.size} to {larger[0]}, {gain_s:.0f} s less for each GPU"
            ranked.append((-gain_s, job, Option((gang_moves.in_place(job, larger[0]),), note=note)))
    if not ranked:
        return Plan()
    ranked.sort(key=lambda entry: (entry[0], entry[1].place, entry[1].id))
    _, job, chosen = ranked[0]
    return legal_moves.plan_of(
        [option for _, _, option in ranked],
        chosen,
        code="grows",
        text=f"{job.spec.name} grows from {job.size} to {gpus(chosen.targets[0].size)}",
        about=job.id,
        weighed=len(ranked),
    )
