"""The paper's algorithms 1 and 2, as printed, with what their text leaves open filled in.

Does: runs algorithm 1 for each queued job in turn (every size, and one donor that gives the GPUs
that are missing), and algorithm 2 if the queue is empty and GPUs are idle. Their flaws stay: tests
show them, and ``adaptive`` corrects them.

Filled in: a queued job for which algorithm 1 finds no option waits until the next decision; idle
GPUs are those of one host, because a container lives on one; the makespan of algorithm 2 is over
all running jobs. If its ``span`` allows it, a job for which there is no option may start on idle
GPUs of several hosts, and keeps them: the paper has no such job.
"""

from __future__ import annotations

import math
from collections import defaultdict

from reshape_controller.core.model import HostId
from reshape_controller.core.phrases import gpus
from reshape_controller.core.plan import HostView, JobView, Option, Plan, Snapshot, Target
from reshape_controller.scheduling import gang_start, legal_moves
from reshape_controller.scheduling.only_option import only_option
from reshape_controller.scheduling.predictor import Predictor

_Removable = dict[tuple[HostId, int], list[JobView]]
"""By host and number of GPUs: the running jobs that can give exactly so many."""
_Able = dict[int, list[HostView]]
"""By size: the hosts on which so many GPUs are idle, or would be with those of one donor."""


class Paper:
    """The policy; it has no settings."""

    name = "paper"

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the next single decision."""
        predictor = Predictor(snapshot)
        incoming = legal_moves.startable(snapshot)
        removable = _removable(snapshot) if incoming else {}
        able = _able(snapshot, incoming, removable)
        for newcomer in incoming:
            plan = _start(snapshot, predictor, newcomer, able, removable)
            if plan.targets:
                return legal_moves.with_gangs_left(plan, snapshot.running, self.name)
        if not incoming:
            return _grow(snapshot, predictor)
        return Plan(reason_code="waits", text=f"{incoming[0].spec.name} and others wait for GPUs")


def _removable(snapshot: Snapshot) -> _Removable:
    """Algorithm 1, lines 5 to 11: the range from N_min to N_max is the printed one."""
    removable: _Removable = defaultdict(list)
    for host, jobs in legal_moves.donors(snapshot).items():
        for job in jobs:
            for remove in range(min(job.sizes), max(job.sizes) + 1):
                if job.size - remove in job.sizes:
                    removable[host, remove].append(job)
    return removable


def _able(snapshot: Snapshot, incoming: list[JobView], removable: _Removable) -> _Able:
    """Compute the hosts once for all queued jobs, of which there may be many."""
    sizes = {size for job in incoming for size in job.sizes}
    return {
        size: [
            host
            for host in snapshot.hosts
            if host.idle >= size or (host.id, size - host.idle) in removable
        ]
        for size in sizes
    }


def _start(
    snapshot: Snapshot,
    predictor: Predictor,
    newcomer: JobView,
    able: _Able,
    removable: _Removable,
) -> Plan:
    """Algorithm 1, lines 12 to 31."""
    options: list[Option] = []
    best, shortest_s = -1, math.inf
    own = legal_moves.hosts_for(snapshot, newcomer)
    for size in newcomer.sizes:
        for host in able[size]:
            if own is not snapshot.hosts and host not in own:
                continue
            new_s = predictor.incoming(newcomer, host.gpu_type, size).total_s
            if host.idle >= size:
                starts = [(Option(legal_moves.start(newcomer, size, host.id)), new_s)]
            else:
                remove = size - host.idle
                starts = []
                for donor in removable[host.id, remove]:
                    keeps = donor.size - remove
                    targets = legal_moves.start(newcomer, size, host.id, (donor.id, keeps))
                    donor_s = predictor.reshaped(donor, host.gpu_type, keeps).total_s
                    note = f"{donor.spec.name} {donor.size} to {keeps}"
                    starts.append((Option(targets, note=note), max(new_s, donor_s)))
            for option, makespan_s in starts:
                options.append(Option(option.targets, makespan_s, option.note))
                if makespan_s < shortest_s:
                    best, shortest_s = len(options) - 1, makespan_s
    if best < 0:
        return _start_gang(snapshot, newcomer)
    chosen = options[best]
    gives = f"; {chosen.note} GPUs" if chosen.note else " that are idle"
    return legal_moves.plan_of(
        sorted(options, key=lambda option: option.makespan_s or 0.0),
        chosen,
        code="shrinks-for-newcomer" if chosen.note else "starts-on-idle",
        text=f"{newcomer.spec.name} starts on {gpus(chosen.targets[0].size)}{gives}",
        about=newcomer.id,
        weighed=len(options),
    )


def _start_gang(snapshot: Snapshot, newcomer: JobView) -> Plan:
    """Start a job that may span on idle GPUs of several hosts, at its largest size: the paper has
    no such job. It keeps its size."""
    if not gang_start.may_span(newcomer):
        return Plan()
    starts = gang_start.starts(snapshot, newcomer, gang_start.hosts_for(snapshot, newcomer))
    if not starts:
        return Plan()
    where = " and ".join(starts[-1].all_hosts)
    text = f"{newcomer.spec.name} starts on {gpus(starts[-1].size)} of {where} that are idle"
    return only_option((starts[-1],), "starts-on-idle", text, newcomer.id)


def _grow(snapshot: Snapshot, predictor: Predictor) -> Plan:
    """Algorithm 2."""
    growable = legal_moves.growable(snapshot)
    left_s = {job.id: predictor.unchanged(job).total_s for job in snapshot.running}
    longest = sorted(left_s.values(), reverse=True)[:2]
    options: list[Option] = []
    best, shortest_s = -1, math.inf
    for add in range(1, legal_moves.most_idle(snapshot.hosts) + 1):
        for job in growable:
            size = job.size + add
            if size not in job.sizes:
                continue
            others_s = longest[1:] if left_s[job.id] == longest[0] else longest[:1]
            for host in snapshot.hosts:
                stays = host.id == job.host
                if host.idle < (add if stays else size) or not legal_moves.may_run_on(job, host.id):
                    continue
                job_s = predictor.reshaped(job, host.gpu_type, size, moves=not stays).total_s
                makespan_s = max([job_s, *others_s])
                note = "" if stays else f"moves to {host.id}"
                options.append(Option((Target(job.id, size, host.id),), makespan_s, note))
                if makespan_s < shortest_s:
                    best, shortest_s = len(options) - 1, makespan_s
    if best < 0:
        return Plan()
    chosen = options[best]
    grown = next(job for job in growable if job.id == chosen.targets[0].job)
    return legal_moves.plan_of(
        sorted(options, key=lambda option: option.makespan_s or 0.0),
        chosen,
        code="moves" if chosen.note else "grows",
        text=f"{grown.spec.name} grows from {grown.size} to {gpus(chosen.targets[0].size)}",
        about=grown.id,
        weighed=len(options),
    )
