"""Shortest remaining time first, with preemption as far as the engine allows it.

Does: starts the queued job that needs least time alone, at the size and on the GPU type at which it
ends first. If no queued job fits, the shortest one that may preempt takes the GPUs of the running
job with most to go (``scheduling.ratio_preemption``). Jobs do not grow or shrink.
"""

from __future__ import annotations

from reshape_controller.core.phrases import duration, gpus
from reshape_controller.core.plan import JobView, Plan, Preemption, Snapshot, Target
from reshape_controller.core.states import PreemptionReason
from reshape_controller.scheduling import gang_start, legal_moves
from reshape_controller.scheduling.alone import AloneTimes
from reshape_controller.scheduling.only_option import only_option
from reshape_controller.scheduling.predictor import Predictor
from reshape_controller.scheduling.ratio_preemption import RatioPreemption, ratio_text


class Srtf:
    """The policy; it has no settings."""

    name = "srtf"
    may_preempt = True

    def may_act(self, *, queued: bool, idle: bool) -> bool:
        """Return whether a plan may change anything: it starts jobs alone."""
        return queued

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the next single decision."""
        predictor = Predictor(snapshot)
        alone = AloneTimes(snapshot, predictor)
        queue = legal_moves.startable(snapshot)
        left_s = {job.id: alone.best_s(job) for job in queue}
        queue.sort(key=lambda job: (-job.spec.priority, left_s[job.id], job.place))
        for newcomer in queue:
            start = _start(snapshot, predictor, newcomer)
            if start is not None:
                needs = duration(left_s[newcomer.id])
                text = f"{newcomer.spec.name} needs {needs} alone and starts on {gpus(start.size)}"
                return only_option((start,), "starts-shortest", text, newcomer.id)
        return preempting_plan(snapshot, queue, RatioPreemption(snapshot, predictor, alone))


def _start(snapshot: Snapshot, predictor: Predictor, newcomer: JobView) -> Target | None:
    """Return the start on idle GPUs with which a job ends first; None if it does not fit."""
    if gang_start.may_span(newcomer):
        hosts = gang_start.hosts_for(snapshot, newcomer)
        options = gang_start.starts(snapshot, newcomer, hosts)
    elif newcomer.sizes[0] > snapshot.most_idle:
        return None
    else:
        hosts = legal_moves.hosts_for(snapshot, newcomer)
        options = [
            Target(newcomer.id, size, host.id)
            for host in (snapshot.idle if hosts is snapshot.hosts else hosts)
            for size in newcomer.sizes
            if size <= host.idle
        ]
    if not options:
        return None
    kinds = {host.id: host.gpu_type for host in snapshot.hosts}
    found = []
    for target in options:
        on, kind = len(target.all_hosts), kinds[target.host]
        takes_s = predictor.incoming_s(newcomer, kind, target.size, hosts=on)
        found.append((takes_s, target.size, target.host))
    return options[found.index(min(found))]


def preempting_plan(snapshot: Snapshot, queue: list[JobView], by_ratio: RatioPreemption) -> Plan:
    """Return the plan that preempts a job for the first of ``queue`` that may do so, or an empty
    one with the time at which a further one may."""
    again_s: list[float] = []
    for newcomer in queue:
        hosts = legal_moves.hosts_for(snapshot, newcomer)
        start, at_s = by_ratio.start(newcomer, hosts)
        if start is not None:
            text = ratio_text(newcomer, start)
            preemption = Preemption(PreemptionReason.RATIO)
            targets = start.targets(newcomer)
            return only_option(targets, "preempts-by-ratio", text, newcomer.id, preemption)
        again_s.append(at_s)
    wake_at_s = min([at_s for at_s in again_s if at_s < float("inf")], default=None)
    return Plan(wake_at_s=wake_at_s)
