"""Where the workers of a queued job start: on one host, or as a gang on several, whole or not at
all.

Does: packs workers onto as few hosts as possible, or spreads them over as many, on idle GPUs of one
type. For equal workers the greedy choice is exact: filling the hosts with most room first takes the
fewest hosts. Nothing is predicted here.
"""

from __future__ import annotations

from reshape_controller.core.model import HostId, Placement, Share, Spans
from reshape_controller.core.plan import HostView, JobView, Snapshot, Target
from reshape_controller.scheduling import legal_moves

Rooms = list[tuple[HostView, int]]
"""Hosts of one GPU type, each with the number of workers for which it has idle GPUs."""


def target(
    snapshot: Snapshot, job: JobView, size: int, placement: Placement | None = None
) -> Target | None:
    """Return the start of a queued job at ``size`` on idle GPUs; None if they are not enough.
    ``placement``: instead of the one of its record."""
    shares = place(snapshot, job, size, placement or job.spec.placement)
    if not shares:
        return None
    return Target(job.id, size, shares[0].host, shares if len(shares) > 1 else ())


def can_ever_hold(snapshot: Snapshot, job: JobView, size: int) -> bool:
    """Whether usable hosts could hold the job at ``size`` if all their GPUs were idle."""
    hosts = _hosts(snapshot, job)
    if any(host.usable >= size for host in hosts):
        return True
    if not _may_span(snapshot, job, size):
        return False
    each, slots = size // job.spec.workers, dict[str, int]()
    for host in hosts:
        slots[host.gpu_type] = slots.get(host.gpu_type, 0) + host.usable // each
    return any(count >= job.spec.workers for count in slots.values())


def place(snapshot: Snapshot, job: JobView, size: int, placement: Placement) -> tuple[Share, ...]:
    """Return the workers of a queued job by host, on idle GPUs; empty if they are not enough."""
    if job.initialized and job.shares:
        return job.shares if _fits(snapshot, job, size) else ()
    hosts, workers = _hosts(snapshot, job), job.spec.workers
    spreads, spans = placement is Placement.SPREAD, _may_span(snapshot, job, size)
    if not (spreads and spans):
        one = [host for host in hosts if host.idle >= size]
        if one:
            emptiest = -1 if spreads else 1
            best = min(one, key=lambda host: (emptiest * host.idle, host.id))
            return (Share(best.id, workers),)
    if not spans or job.initialized:
        return ()
    each = size // workers
    found = []
    for gpu_type in sorted({host.gpu_type for host in hosts}):
        rooms = [(h, h.idle // each) for h in hosts if h.gpu_type == gpu_type and h.idle >= each]
        if sum(room for _, room in rooms) >= workers:
            found.append(_spread(rooms, workers) if spreads else _pack(rooms, workers))
    most_first = -1 if spreads else 1
    return min(found, key=lambda shares: most_first * len(shares), default=())


def _may_span(snapshot: Snapshot, job: JobView, size: int) -> bool:
    span = job.spec.span
    if span is Spans.NEVER or job.only_host is not None or job.spec.workers < 2:
        return False
    return span is Spans.ANY or all(host.total < size for host in snapshot.hosts)


def _hosts(snapshot: Snapshot, job: JobView) -> tuple[HostView, ...]:
    if job.spec.span is Spans.NEVER or job.initialized or job.only_host is not None:
        return legal_moves.hosts_for(snapshot, job)
    fit = tuple(host for host in snapshot.hosts if host.id not in job.unfit_on)
    each = min(job.sizes) // job.spec.workers
    slots = sum(host.usable // each for host in fit)
    return fit if slots >= job.spec.workers else snapshot.hosts


def _fits(snapshot: Snapshot, job: JobView, size: int) -> bool:
    """Whether the hosts of an initialised gang have enough idle GPUs."""
    idle, each = {host.id: host.idle for host in snapshot.hosts}, size // job.spec.workers
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
