"""Where the workers of a queued job start: on one host, or as a gang on several, whole or not at
all.

Does: packs workers onto as few hosts as possible, or spreads them over as many, on idle GPUs of one
type. With ``span: if-needed`` a job is on several hosts only while no host has enough idle GPUs.
For equal workers the greedy choice is exact: filling the hosts with most room first takes the
fewest hosts. Nothing is predicted here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reshape_controller.core.fast_replace import replace
from reshape_controller.core.model import HostId, Placement, Share, Spans
from reshape_controller.core.plan import HostView, JobView, Snapshot, Target
from reshape_controller.scheduling import legal_moves

Rooms = list[tuple[HostView, int]]
"""Hosts of one GPU type, each with the number of workers for which it has idle GPUs."""


def may_span(job: JobView) -> bool:
    """Whether a plan may put the workers of a queued job on several hosts."""
    spec = job.spec
    return spec.span is not Spans.NEVER and spec.workers > 1 and job.only_host is None


def target(
    snapshot: Snapshot, job: JobView, size: int, placement: Placement | None = None
) -> Target | None:
    """Return the start of a queued job at ``size`` on idle GPUs; None if they are not enough.
    ``placement``: instead of the one of its record."""
    shares = place(job, size, hosts_for(snapshot, job), placement)
    return target_of(job, size, shares) if shares else None


def target_of(job: JobView, size: int, shares: tuple[Share, ...]) -> Target:
    """Return the target of a job with its workers on one host or several."""
    return Target(job.id, size, shares[0].host, shares if len(shares) > 1 else ())


def start_on_idle(snapshot: Snapshot, job: JobView, size: int) -> tuple[Target, ...]:
    """Return the start on the first host with ``size`` idle GPUs; of a job that may span, on the
    hosts of its placement. Empty if the GPUs are not enough."""
    if may_span(job):
        found = target(snapshot, job, size)
        return () if found is None else (found,)
    hosts = legal_moves.hosts_for(snapshot, job)
    if hosts is snapshot.hosts:
        hosts = snapshot.idle if size <= snapshot.most_idle else ()
    for host in hosts:
        if size <= host.idle:
            return legal_moves.start(job, size, host.id)
    return ()


def spans_at(snapshot: Snapshot, job: JobView, size: int) -> bool:
    """Whether a plan may put a queued job on several hosts now, with ``size`` GPUs in all. With
    ``span: if-needed`` no host has so many idle GPUs then."""
    if not may_span(job) or job.initialized:
        return bool(job.initialized and job.shares)
    if job.spec.span is Spans.ANY:
        return True
    return legal_moves.most_idle(hosts_for(snapshot, job)) < size


def starts(snapshot: Snapshot, job: JobView, hosts: Sequence[HostView]) -> list[Target]:
    """Return the starts of a job that may span on idle GPUs of ``hosts``, which are some of
    ``hosts_for``: each size, on each GPU type in alphabetical order."""
    by_type: dict[str, list[HostView]] = {}
    for host in hosts:
        by_type.setdefault(host.gpu_type, []).append(host)
    found = []
    for size in job.sizes:
        spans = spans_at(snapshot, job, size)
        for gpu_type in sorted(by_type):
            shares = place(job, size, by_type[gpu_type])
            if shares and (spans or len(shares) == 1):
                found.append(target_of(job, size, shares))
    return found


def can_ever_hold(snapshot: Snapshot, job: JobView, size: int) -> bool:
    """Whether usable hosts could hold the job at ``size`` if all their GPUs were idle."""
    hosts = hosts_for(snapshot, job)
    if hosts is snapshot.hosts and not may_span(job):
        return any(size <= most for _, most in snapshot.largest)
    return bool(types_for(job, size, hosts))


def types_for(job: JobView, size: int, hosts: Iterable[HostView]) -> list[str]:
    """Return the GPU types of which ``hosts`` could hold the job at ``size`` if all their GPUs were
    idle, in alphabetical order."""
    found, slots = dict[str, None](), dict[str, int]()
    spans, workers = may_span(job), job.spec.workers
    each = size // workers
    for host in hosts:
        if host.usable >= size:
            found[host.gpu_type] = None
        elif spans:
            slots[host.gpu_type] = slots.get(host.gpu_type, 0) + host.usable // each
    found.update([(kind, None) for kind, count in slots.items() if count >= workers])
    return sorted(found)


def hosts_for(snapshot: Snapshot, job: JobView) -> tuple[HostView, ...]:
    """Return the hosts on which workers of a queued job may start (``legal_moves.hosts_for``; a
    host need not hold all of them if the job may span)."""
    if job.initialized and job.shares:
        own = {share.host: None for share in job.shares}
        return tuple(host for host in snapshot.hosts if host.id in own)
    if not may_span(job) or job.initialized:
        return legal_moves.hosts_for(snapshot, job)
    if not job.unfit_on:
        return snapshot.hosts
    fit = tuple(host for host in snapshot.hosts if host.id not in job.unfit_on)
    each = min(job.sizes) // job.spec.workers
    slots = sum(host.usable // each for host in fit)
    return fit if slots >= job.spec.workers else snapshot.hosts


def place(
    job: JobView, size: int, hosts: Sequence[HostView], placement: Placement | None = None
) -> tuple[Share, ...]:
    """Return the workers of a queued job by host, on idle GPUs of ``hosts``, which are some of
    ``hosts_for``; empty if they are not enough."""
    if job.initialized and job.shares:
        return job.shares if _fits(job, size, hosts) else ()
    workers, spreads = job.spec.workers, (placement or job.spec.placement) is Placement.SPREAD
    one = [host for host in hosts if host.idle >= size]
    spans = may_span(job) and not job.initialized
    if one and not (spreads and spans and job.spec.span is Spans.ANY):
        emptiest = -1 if spreads else 1
        best = min(one, key=lambda host: (emptiest * host.idle, host.id))
        return (Share(best.id, workers),)
    if not spans:
        return ()
    each = size // workers
    found = []
    for gpu_type in sorted({host.gpu_type for host in hosts}):
        rooms = [(h, h.idle // each) for h in hosts if h.gpu_type == gpu_type and h.idle >= each]
        if sum(room for _, room in rooms) >= workers:
            found.append(_spread(rooms, workers) if spreads else _pack(rooms, workers))
    most_first = -1 if spreads else 1
    return min(found, key=lambda shares: most_first * len(shares), default=())


def with_idle(hosts: Iterable[HostView], more: Mapping[HostId, int]) -> list[HostView]:
    """Return the hosts with so many more idle GPUs."""
    return [
        replace(host, idle=host.idle + more[host.id]) if more.get(host.id) else host
        for host in hosts
    ]


def _fits(job: JobView, size: int, hosts: Iterable[HostView]) -> bool:
    """Whether the hosts of an initialised gang have enough idle GPUs."""
    idle, each = {host.id: host.idle for host in hosts}, size // job.spec.workers
    return all(idle.get(share.host, 0) >= share.workers * each for share in job.shares)


def _pack(rooms: Rooms, workers: int) -> tuple[Share, ...]:
    """Fill the hosts with most room first; the last host is the fullest that holds the rest."""
    left, shares = workers, []
    free = sorted(rooms, key=lambda entry: (-entry[1], entry[0].idle, entry[0].id))
    while left:
        holds = [entry for entry in free if entry[1] >= left]
        host, room = min(holds, key=_fullest) if holds else free[0]
        free.remove((host, room))
        shares.append(Share(host.id, min(room, left)))
        left -= min(room, left)
    return tuple(shares)


def _fullest(entry: tuple[HostView, int]) -> tuple[int, HostId]:
    return entry[0].idle, entry[0].id


def _spread(rooms: Rooms, workers: int) -> tuple[Share, ...]:
    """Give each worker to the host that has fewest of this job, of these the emptiest."""
    given: dict[HostId, int] = {}
    each_turn = sorted(rooms, key=lambda entry: (-entry[0].idle, entry[0].id))
    turn = 0
    while sum(given.values()) < workers:
        for host, room in each_turn:
            if room > turn and sum(given.values()) < workers:
                given[host.id] = turn + 1
        turn += 1
    return tuple([Share(host, count) for host, count in given.items()])
