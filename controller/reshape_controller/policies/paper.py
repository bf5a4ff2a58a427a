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

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from reshape_controller.core.model import HostId, JobId
from reshape_controller.core.phrases import gpus
from reshape_controller.core.plan import HostView, JobView, Option, Plan, Snapshot, Target
from reshape_controller.scheduling import gang_start, legal_moves
from reshape_controller.scheduling.only_option import only_option
from reshape_controller.scheduling.predictor import Predictor

_Removable = dict[tuple[HostId, int], list[JobView]]
"""By host and number of GPUs: the running jobs that can give exactly so many."""
_Able = dict[int, list[HostView]]
"""By size: the hosts on which so many GPUs are idle, or would be with those of one donor."""


class _Start(NamedTuple):
    """A start of a queued job."""

    makespan_s: float
    size: int
    host: HostView
    donor: JobView | None = None
    """The job that gives the missing GPUs, if they are not idle, and the size that it keeps."""
    keeps: int = 0

    def option(self, newcomer: JobView) -> Option:
        """Return the start as a plan shows it."""
        shrinks, note = [], ""
        if self.donor is not None:
            shrinks = [(self.donor.id, self.keeps)]
            note = f"{self.donor.spec.name} {self.donor.size} to {self.keeps}"
        targets = legal_moves.start(newcomer, self.size, self.host.id, *shrinks)
        return Option(targets, self.makespan_s, note)


class _Growth(NamedTuple):
    """A growth of a running job on its host, or its move to another one."""

    makespan_s: float
    job: JobView
    size: int
    host: HostView

    def option(self) -> Option:
        """Return the growth as a plan shows it."""
        note = "" if self.host.id == self.job.host else f"moves to {self.host.id}"
        return Option((Target(self.job.id, self.size, self.host.id),), self.makespan_s, note)


_Each = TypeVar("_Each", _Start, _Growth)


class Paper:
    """The policy; it has no settings."""

    name = "paper"

    def may_act(self, *, queued: bool, idle: bool) -> bool:
        """Return whether a plan may change anything: a start, or growth onto idle GPUs."""
        return queued or idle

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
    own = legal_moves.hosts_for(snapshot, newcomer)
    new_s: dict[tuple[str, int], float] = {}
    starts: list[_Start] = []
    for size in newcomer.sizes:
        for host in able[size]:
            if own is not snapshot.hosts and host not in own:
                continue
            key = (host.gpu_type, size)
            if key not in new_s:
                new_s[key] = predictor.incoming(newcomer, *key).total_s
            if host.idle >= size:
                starts.append(_Start(new_s[key], size, host))
                continue
            for donor in removable[host.id, size - host.idle]:
                keeps = donor.size - (size - host.idle)
                donor_s = predictor.reshaped(donor, host.gpu_type, keeps).total_s
                starts.append(_Start(max(new_s[key], donor_s), size, host, donor, keeps))
    if not starts:
        return _start_gang(snapshot, newcomer)
    options = [start.option(newcomer) for start in _shown(snapshot, starts)]
    chosen = options[0]
    gives = f"; {chosen.note} GPUs" if chosen.note else " that are idle"
    return legal_moves.plan_of(
        options,
        chosen,
        code="shrinks-for-newcomer" if chosen.note else "starts-on-idle",
        text=f"{newcomer.spec.name} starts on {gpus(chosen.targets[0].size)}{gives}",
        about=newcomer.id,
        weighed=len(starts),
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
    found = sorted(_growths(snapshot), key=lambda growth: growth[:3])
    if not found:
        return Plan()
    left_s = {job.id: predictor.unchanged_s(job) for job in snapshot.running}
    longest = sorted(left_s.values(), reverse=True)[:2]
    grown_s: dict[tuple[JobId, int, str, bool], float] = {}
    growths = []
    for _, _, _, job, size, host in found:
        stays = host.id == job.host
        key = (job.id, size, host.gpu_type, stays)
        if key not in grown_s:
            predicted = predictor.reshaped(job, host.gpu_type, size, moves=not stays)
            grown_s[key] = predicted.total_s
        others_s = longest[1:] if left_s[job.id] == longest[0] else longest[:1]
        growths.append(_Growth(max([grown_s[key], *others_s]), job, size, host))
    options = [growth.option() for growth in _shown(snapshot, growths)]
    job = min(growths, key=_makespan_s).job
    return legal_moves.plan_of(
        options,
        options[0],
        code="moves" if options[0].note else "grows",
        text=f"{job.spec.name} grows from {job.size} to {gpus(options[0].targets[0].size)}",
        about=job.id,
        weighed=len(growths),
    )


def _growths(
    snapshot: Snapshot,
) -> Iterator[tuple[int, int, int, JobView, int, HostView]]:
    """Return the growths and moves that idle GPUs allow: the added GPUs, the numbers of job and
    host, the job, its size and its host. In the order of the first three, algorithm 2 looks at
    them."""
    idle = list(enumerate(snapshot.idle))
    by_id = {host.id: (number, host) for number, host in idle}
    for job_number, job in enumerate(legal_moves.growable(snapshot)):
        own = [by_id[job.host]] if job.host in by_id else []
        for size in job.sizes:
            if size <= job.size:
                continue
            add = size - job.size
            for number, host in idle if size <= snapshot.most_idle else own:
                least = add if host.id == job.host else size
                if host.idle >= least and legal_moves.may_run_on(job, host.id):
                    yield add, job_number, number, job, size, host


def _makespan_s(each: _Start | _Growth) -> float:
    return each.makespan_s


def _shown(snapshot: Snapshot, found: list[_Each]) -> list[_Each]:
    """Return the starts or growths that a plan shows, the best first; of equal ones that which came
    first."""
    if not snapshot.explain:
        return [min(found, key=_makespan_s)]
    return sorted(found, key=_makespan_s)[: legal_moves.OPTIONS_MAX]
