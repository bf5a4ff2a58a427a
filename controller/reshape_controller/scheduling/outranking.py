"""The ways to start a queued job at the cost of running jobs of lower priority; of an overdue one
also at the cost of jobs of its own.

Does: finds shrinks of such jobs that are enough; if there are none, the jobs to preempt. A start of
this kind need not save any time: priorities and waits decide. Nothing is predicted here but which
job ends last, and how long a queued job needs alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf

from reshape_controller.core.limits import EQUAL_PREEMPTION_EVERY_S, EQUAL_RUNTIME_MIN_S
from reshape_controller.core.model import HostId, JobId, Share
from reshape_controller.core.phrases import duration, gpus
from reshape_controller.core.plan import HostView, JobView, Snapshot, Target
from reshape_controller.core.preemption import start_of
from reshape_controller.scheduling import gang_moves, gang_start, shrinks
from reshape_controller.scheduling.alone import AloneTimes
from reshape_controller.scheduling.donors import Donors
from reshape_controller.scheduling.forecast import Forecast
from reshape_controller.scheduling.preemption_reason import ROUNDING_S, overdue_wait_s
from reshape_controller.scheduling.shrinks import Kept
from reshape_controller.scheduling.worker_rooms import Rooms, enough_on_several


@dataclass(frozen=True, slots=True)
class OutrankingStart:
    """A start for which jobs of lower priority shrink or are preempted (size 0)."""

    size: int
    hosts: tuple[HostView, ...]
    donors: tuple[Kept, ...]
    """The donors, and the size that each keeps."""
    shares: tuple[Share, ...] = ()
    """The workers of the queued job by host, if it starts on several."""

    @property
    def preempts(self) -> bool:
        """Whether a donor is preempted."""
        return any(keeps == 0 for _, keeps in self.donors)

    @property
    def freed(self) -> int:
        """The number of GPUs that the donors give."""
        return sum(donor.size - keeps for donor, keeps in self.donors)

    def targets(self, newcomer: JobView) -> tuple[Target, ...]:
        """Return the targets of a plan that takes it."""
        first = Target(newcomer.id, self.size, self.hosts[0].id, self.shares)
        return (first, *(gang_moves.in_place(donor, keeps) for donor, keeps in self.donors))

    @property
    def where(self) -> str:
        """Its hosts in words."""
        return " and ".join([host.id for host in self.hosts])


def outranks(snapshot: Snapshot, newcomer: JobView) -> bool:
    """Whether any running job has a lower priority than a queued one."""
    running = snapshot.running  # in queue order, so the last has the lowest priority
    return bool(running) and running[-1].spec.priority < newcomer.spec.priority


def shrink_start(
    forecast: Forecast, newcomer: JobView, hosts: Sequence[HostView], donors: Donors
) -> OutrankingStart | None:
    """Return the start for which jobs of lower priority shrink and fewest GPUs change hands; None
    if shrinks are not enough on any of ``hosts``, or on several."""

    def order(job: JobView) -> tuple[int, int, JobId]:
        return job.spec.priority, -forecast.end_ms(job), job.id

    found, gangs = [], _lower(newcomer, donors.gangs)
    for host in hosts:
        lower = _lower(newcomer, donors.by_host.get(host.id, []))
        lower += [job for job in gangs if host.id in job.all_hosts]
        lower.sort(key=order)
        found += _start(newcomer, host, lower, shrinks.kept_size)
    if forecast.rules.gangs and gang_start.spans_at(forecast.snapshot, newcomer, newcomer.sizes[0]):
        lower = _lower(newcomer, donors.on_hosts(list(hosts))) + gangs
        found += start_on_several(newcomer, hosts, sorted(lower, key=order), preempts=False)
    return min(found, key=_preference, default=None)


def start_on_several(
    newcomer: JobView, hosts: Sequence[HostView], jobs: Iterable[JobView], *, preempts: bool
) -> list[OutrankingStart]:
    """Return the start of a gang at its smallest size that takes GPUs of several hosts from the
    first of ``jobs``; none if they are not enough, or if none has to give any."""
    size = newcomer.sizes[0]
    rooms = Rooms(newcomer, size, hosts)
    donors = enough_on_several(rooms, jobs, preempts=preempts)
    shares = gang_start.place(newcomer, size, rooms.hosts_with(donors)) if donors else ()
    if len(shares) < 2:
        return []
    by_id = {host.id: host for host in hosts}
    placed = tuple([by_id[share.host] for share in shares])
    return [OutrankingStart(size, placed, tuple(donors), shares)]


def preempting_start(
    snapshot: Snapshot, newcomer: JobView, hosts: Sequence[HostView], *, gangs: bool
) -> tuple[OutrankingStart | None, float]:
    """Return the start that preempts jobs of lower priority and takes fewest GPUs from them, the
    newest starts first, and the time at which a further job has run for long enough to be
    preempted (infinite if there is none). ``gangs``: whether jobs on several hosts start and
    leave."""
    lower = _lower(newcomer, snapshot.running)
    jobs, again_s = _preemptible(snapshot, lower, by_equal=False, gangs=gangs)
    spans = gangs and gang_start.spans_at(snapshot, newcomer, newcomer.sizes[0])
    return _start_that_preempts(newcomer, hosts, jobs, _has_run_at_s, spans=spans), again_s


def equal_start(
    forecast: Forecast, newcomer: JobView, hosts: Sequence[HostView]
) -> tuple[OutrankingStart | None, float]:
    """Return the start of an overdue job that preempts jobs of at most its priority and takes
    fewest GPUs from them, those first that end last, and the time at which to look again (infinite
    if there is none)."""
    snapshot, priority = forecast.snapshot, newcomer.spec.priority
    best_s = AloneTimes(snapshot, forecast.predictor).best_s(newcomer)
    due_s = newcomer.waits_since_s + overdue_wait_s(newcomer, best_s) + ROUNDING_S
    if due_s > snapshot.now_s:
        return None, due_s
    equals = [job for job in snapshot.running if job.spec.priority <= priority]
    gangs = forecast.rules.gangs
    jobs, again_s = _preemptible(snapshot, equals, by_equal=True, gangs=gangs)
    spans = gangs and gang_start.spans_at(snapshot, newcomer, newcomer.sizes[0])
    return _start_that_preempts(newcomer, hosts, jobs, forecast.end_ms, spans=spans), again_s


def preemptible_at_s(job: JobView, *, by_equal: bool) -> float:
    """Return from when on a running job may be preempted: it has run for its ``min_runtime_s``. By
    a job of equal priority, it also has run for so long as the engine asks, and was not preempted
    lately."""
    at_s = max(_has_run_at_s(job), job.no_shrink_before_s)
    if by_equal:
        at_s = max(at_s, start_of(job) + EQUAL_RUNTIME_MIN_S)
        if job.preempted_at_s is not None:
            at_s = max(at_s, job.preempted_at_s + EQUAL_PREEMPTION_EVERY_S)
    return at_s


def _has_run_at_s(job: JobView) -> float:
    return start_of(job) + job.spec.min_runtime_s


def _preemptible(
    snapshot: Snapshot, jobs: Iterable[JobView], *, by_equal: bool, gangs: bool
) -> tuple[list[JobView], float]:
    """Return those of ``jobs`` that may be preempted now, and when a further one may be (infinite
    if there is none)."""
    found: list[JobView] = []
    again_s = inf
    for job in jobs:
        if job.fixed_because or job.loses or job.host is None or (job.shares and not gangs):
            continue
        at_s = preemptible_at_s(job, by_equal=by_equal)
        if at_s > snapshot.now_s:
            again_s = min(again_s, at_s)
        elif job.frozen or not job.trains:  # nothing tells when it will train
            again_s = min(again_s, snapshot.now_s + job.spec.min_runtime_s)
        else:
            found.append(job)
    return found, again_s


def _lower(newcomer: JobView, jobs: Iterable[JobView]) -> list[JobView]:
    priority = newcomer.spec.priority
    return [job for job in jobs if job.spec.priority < priority]


def _start(
    newcomer: JobView, host: HostView, jobs: list[JobView], keeps: shrinks.KeptSize
) -> list[OutrankingStart]:
    """Return the start that takes GPUs from the first of ``jobs``; none if they are not enough.

    It has the largest size that its donors and the idle GPUs allow, and each donor gives a GPU that
    the newcomer takes.
    """
    donors = shrinks.enough(host, newcomer.sizes[0], jobs, keeps)
    if not donors:
        return []
    count = host.idle + sum(gang_moves.released_on(job, kept, host.id) for job, kept in donors)
    size = max(size for size in newcomer.sizes if size <= count)
    return [OutrankingStart(size, (host,), tuple(donors))]


def _start_that_preempts(
    newcomer: JobView,
    hosts: Sequence[HostView],
    jobs: list[JobView],
    at: Callable[[JobView], float],
    *,
    spans: bool,
) -> OutrankingStart | None:
    """Return the start that preempts fewest GPUs, on each host those jobs first of which ``at`` is
    latest. Where shrinks would do there is none: the newcomer starts after their cool-down."""

    def order(job: JobView) -> tuple[int, float, JobId]:
        return job.spec.priority, -at(job), job.id

    by_host: dict[HostId, list[JobView]] = {}
    for job in jobs:
        for host_id in job.all_hosts:
            by_host.setdefault(host_id, []).append(job)
    found: list[OutrankingStart] = []
    for host in hosts:
        on_host = sorted(by_host.get(host.id, ()), key=order)
        found += _start(newcomer, host, on_host, lambda job, missing, host: 0)
    if spans:
        found += start_on_several(newcomer, hosts, sorted(jobs, key=order), preempts=True)
    found = [start for start in found if not _shrinks_would_do(newcomer, start)]
    return min(found, key=_preference, default=None)


def _shrinks_would_do(newcomer: JobView, start: OutrankingStart) -> bool:
    """Whether the donors of a start could shrink and train on instead."""
    workers = {share.host: share.workers for share in start.shares}
    each = newcomer.sizes[0] // newcomer.spec.workers
    for host in start.hosts:
        gives = 0
        for job, _ in start.donors:
            least = min(job.sizes, default=job.size)
            if least < job.size and host.id in job.all_hosts:
                gives += gang_moves.released_on(job, least, host.id)
        if host.idle + gives < each * workers.get(host.id, newcomer.spec.workers):
            return False
    return True


def _preference(start: OutrankingStart) -> tuple[int, int, str]:
    return start.freed, len(start.donors), start.hosts[0].id


def text(newcomer: JobView, start: OutrankingStart) -> str:
    """Return what the start does, and for which priorities."""
    what = f"{newcomer.spec.name} starts on {gpus(start.size)} of {start.where}"
    for donor, keeps in start.donors:
        name, priority = donor.spec.name, donor.spec.priority
        does = f"goes from {donor.size} to {keeps}" if keeps else "is preempted"
        what += f"; {name} {does} (priority {priority}, below {newcomer.spec.priority})"
    return what + "."


def equal_text(newcomer: JobView, start: OutrankingStart, now_s: float) -> str:
    """Return what the start of an overdue job does, and why."""
    what = f"{newcomer.spec.name} starts on {gpus(start.size)} of {start.where}"
    preempted = ", ".join(donor.spec.name for donor, _ in start.donors)
    wait = duration(now_s - newcomer.waits_since_s)
    return f"{what}; it is overdue (waited {wait}), and preempts {preempted}."
