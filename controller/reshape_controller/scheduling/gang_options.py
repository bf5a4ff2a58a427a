"""The options of one decision in which a job on several hosts starts, gives or grows.

Does: enumerates the starts of a job that may span on idle GPUs, starts on GPUs that a gang
releases, starts of a gang on GPUs that running jobs release on several hosts, the growth of a gang
in place, and the move of a running job to more GPUs of several hosts or of a gang to fewer. The
other options are those of ``candidates``. Times are milliseconds from now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest

from reshape_controller.core import gang
from reshape_controller.core.model import HostId, JobId, Share, Spans
from reshape_controller.core.plan import HostView, JobView, Snapshot, Target
from reshape_controller.scheduling import gang_moves, gang_start
from reshape_controller.scheduling.candidates import Candidate, donor_end_ms
from reshape_controller.scheduling.forecast import Forecast
from reshape_controller.scheduling.list_schedule import HostChange
from reshape_controller.scheduling.predictor import to_ms
from reshape_controller.scheduling.shrinks import Kept
from reshape_controller.scheduling.worker_rooms import Rooms, enough_on_several

GANGS_MAX = 16
"""So many gangs are tried as donors for a newcomer that is not overdue."""


def idle_starts(
    forecast: Forecast, newcomer: JobView, hosts: Sequence[HostView]
) -> Iterator[Candidate]:
    """Yield the starts of a job that may span on idle GPUs of ``hosts``."""
    for target in gang_start.starts(forecast.snapshot, newcomer, hosts):
        yield start(forecast, newcomer, target, ())


def donor_starts(
    forecast: Forecast,
    newcomer: JobView,
    hosts: Sequence[HostView],
    donors: Iterable[JobView],
    gangs: Sequence[JobView],
) -> Iterator[Candidate]:
    """Yield the starts for which one job shrinks: a gang of ``gangs`` for a start on one host, and
    for a start on several any job of ``gangs`` or ``donors``."""
    by_id = {host.id: host for host in hosts}
    for donor in gangs:
        own = [by_id[host] for host in donor.all_hosts if host in by_id]
        if own:
            host = min(own, key=lambda host: (-host.idle, host.id))
            for size, keeps in _sizes(donor, host, newcomer.sizes):
                target = Target(newcomer.id, size, host.id)
                yield start(forecast, newcomer, target, ((donor, keeps),))
    for size in newcomer.sizes:
        if not gang_start.spans_at(forecast.snapshot, newcomer, size):
            continue
        rooms = Rooms(newcomer, size, hosts)
        if rooms.are_enough:
            continue
        for donor in (*gangs, *donors) if rooms.any_room else gangs:
            for keeps in donor.sizes:
                if keeps < donor.size:
                    yield from _start_on_several(forecast, newcomer, rooms, ((donor, keeps),))


def cheapest(forecast: Forecast, newcomer: JobView, gangs: Sequence[JobView]) -> Sequence[JobView]:
    """Return at most ``GANGS_MAX`` of the gangs that may shrink: those whose GPUs cost least for
    the stay of the newcomer."""
    if len(gangs) <= GANGS_MAX:
        return gangs
    predictor, size = forecast.predictor, newcomer.sizes[0]
    stay_ms = to_ms(min([predictor.incoming_s(newcomer, kind, size) for kind in forecast.types]))

    def cost(donor: JobView) -> tuple[float, JobId]:
        keeps = donor.sizes[0]
        end, _ = donor_end_ms(forecast, donor, keeps, stay_ms)
        return (end - forecast.end_ms(donor)) / (donor.size - keeps), donor.id

    return nsmallest(GANGS_MAX, gangs, key=cost)


def several_donors_starts(
    forecast: Forecast,
    newcomer: JobView,
    hosts: Sequence[HostView],
    donors: Iterable[JobView],
) -> Iterator[Candidate]:
    """Yield the start of a gang at its smallest size for which several jobs shrink: those first
    whose GPUs cost least, or without ``lends`` those that end last."""
    size = newcomer.sizes[0]
    if not gang_start.spans_at(forecast.snapshot, newcomer, size):
        return
    rooms, by_cost = Rooms(newcomer, size, hosts), _by_loss if forecast.rules.lends else _by_end
    in_order = sorted(donors, key=lambda job: (by_cost(forecast, job), job.id))
    needed = enough_on_several(rooms, in_order, preempts=False)
    if len(needed) > 1:
        yield from _start_on_several(forecast, newcomer, rooms, tuple(needed))


def growths(
    forecast: Forecast, gangs: Iterable[JobView], hosts: Iterable[HostView]
) -> Iterator[Candidate]:
    """Yield the growths of gangs onto idle GPUs of their hosts."""
    by_id = {host.id: host for host in hosts}
    for job in gangs:
        for size in gang_moves.growth_sizes(job, by_id) if job.growable else ():
            yield grow(forecast, job, size)


def grow(forecast: Forecast, job: JobView, size: int) -> Candidate:
    """Return the growth of a running job in place."""
    end = to_ms(forecast.predictor.reshaped_by_size_s(job, job.gpu_type)[size])
    before = forecast.end_ms(job)
    changes = []
    for host, gpus in gang_moves.by_host(job, size).items():
        has = gpus * job.size // size
        removed = (0,) * (gpus - has) + (before,) * has
        changes.append((forecast.numbers[host], removed, (end,) * gpus))
    assert job.host is not None
    ends, moved = ((job, end),), size - job.size
    return Candidate(job, size, job.host, (), ends, tuple(changes), moved, job.shares)


def move_targets(
    snapshot: Snapshot, jobs: Iterable[JobView], hosts: Sequence[HostView]
) -> list[Target]:
    """Return the moves of running jobs by a relaunch, on idle GPUs of ``hosts`` and those that they
    have there, each size on each GPU type: to more GPUs on several hosts, and of a gang to as many
    or more on fewer hosts."""
    idle: dict[str, int] = {}
    for host in hosts:
        idle[host.gpu_type] = idle.get(host.gpu_type, 0) + host.idle
    found = []
    for job in jobs:
        if not job.growable or job.pinned or job.fixed_because or not gang_start.may_span(job):
            continue
        own = gang_moves.by_host(job, job.size)
        least = job.size if job.shares else job.size + 1
        for kind, count in sorted(idle.items()):
            has = job.size if kind == job.gpu_type else 0
            sizes = [size for size in job.sizes if least <= size <= has + count]
            if not count or not sizes:
                continue
            fit = [h for h in hosts if h.gpu_type == kind and h.id not in job.unfit_on]
            rooms = gang_start.with_idle(fit, own)
            for size in sizes:
                shares = gang_start.place(job, size, rooms)
                if _is_move(snapshot, job, own, size, shares):
                    found.append(gang_start.target_of(job, size, shares))
    return found


def _is_move(
    snapshot: Snapshot,
    job: JobView,
    own: Mapping[HostId, int],
    size: int,
    shares: Sequence[Share],
) -> bool:
    """Whether a running job may move to these shares and could gain by it: they are not those that
    it has, and are on fewer hosts or, with more GPUs, on several."""
    if not shares or sorted(shares) == sorted(job.shares):
        return False
    if len(shares) > 1 and not _may_span_now(snapshot, job, own, size):
        return False
    return len(shares) < len(own) or (len(shares) > 1 and size > job.size)


def _may_span_now(snapshot: Snapshot, job: JobView, own: Mapping[HostId, int], size: int) -> bool:
    """Whether the job may be on several hosts with so many GPUs: with ``span: if-needed`` no host
    has room for all of them now."""
    if job.spec.span is Spans.ANY:
        return True
    return all(host.idle + own.get(host.id, 0) < size for host in snapshot.hosts)


def move(forecast: Forecast, target: Target) -> Candidate:
    """Return the move of a running job to several hosts, or of a gang to fewer. GPUs that it leaves
    are free once its container has ended."""
    predictor, gpu_type = forecast.predictor, forecast.gpu_type(target.host)
    job = forecast.running(target.job)
    hosts = len(target.all_hosts)
    by_size = predictor.reshaped_by_size_s(job, gpu_type, moves=True, hosts=hosts)
    before, end = forecast.end_ms(job), to_ms(by_size[target.size])
    free = to_ms(predictor.release_s(job))
    has, gets = gang_moves.by_host(job, job.size), gang.wanted(target, job.spec)
    changes: list[HostChange] = []
    for host in dict.fromkeys((*has, *gets)):
        if host in forecast.numbers:
            old, new = has.get(host, 0), gets.get(host, 0)
            removed = (before,) * old + (0,) * max(0, new - old)
            added = (end,) * new + (free,) * max(0, old - new)
            changes.append((forecast.numbers[host], removed, added))
    return Candidate(
        job,
        target.size,
        target.host,
        (),
        ((job, end),),
        tuple(changes),
        target.size,
        target.shares,
    )


def start(
    forecast: Forecast, newcomer: JobView, target: Target, donors: tuple[Kept, ...]
) -> Candidate:
    """Return the start of ``newcomer`` for which ``donors`` shrink. GPUs that they release and the
    newcomer does not take become idle."""
    predictor, gpu_type = forecast.predictor, forecast.gpu_type(target.host)
    release_s = max([predictor.release_s(donor) for donor, _ in donors], default=0.0)
    on = len(target.all_hosts)
    end = to_ms(predictor.incoming_s(newcomer, gpu_type, target.size, hosts=on) + release_s)
    missing = gang.wanted(target, newcomer.spec)
    removed: dict[HostId, tuple[int, ...]] = dict.fromkeys(missing, ())
    added = dict(removed)
    ends, freed = [(newcomer, end)], 0
    for donor, keeps in donors:
        before = forecast.end_ms(donor)
        donor_end, returns = donor_end_ms(forecast, donor, keeps, end)
        ends.append((donor, donor_end))
        kept = gang_moves.by_host(donor, keeps)
        for host, gives in gang_moves.released(donor, keeps).items():
            taken = min(gives, missing.get(host, 0))
            missing[host] = missing.get(host, 0) - taken
            freed += gives
            back = taken if returns else 0
            removed[host] = removed.get(host, ()) + (before,) * (kept[host] + gives)
            added[host] = added.get(host, ()) + (donor_end,) * (kept[host] + back)
            added[host] += (end,) * (taken - back) + (to_ms(release_s),) * (gives - taken)
    changes: list[HostChange] = []
    for host, idle in missing.items():
        number = forecast.numbers[host]
        changes.append((number, removed[host] + (0,) * idle, added[host] + (end,) * idle))
    size = target.size
    return Candidate(
        newcomer,
        size,
        target.host,
        donors,
        tuple(ends),
        tuple(changes),
        max(size, freed),
        target.shares,
    )


def _start_on_several(
    forecast: Forecast, newcomer: JobView, rooms: Rooms, donors: tuple[Kept, ...]
) -> Iterator[Candidate]:
    """Yield the start on several hosts with what ``donors`` release, if that is enough."""
    hosts = rooms.hosts_with(donors)
    if hosts:
        shares = gang_start.place(newcomer, rooms.size, hosts)
        if len(shares) > 1:
            yield start(
                forecast, newcomer, gang_start.target_of(newcomer, rooms.size, shares), donors
            )


def _sizes(donor: JobView, host: HostView, sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield sizes of a newcomer on one host of a gang, each with a size that the gang may keep for
    it. It releases enough there, and not more than the newcomer takes; if no size does, as little
    more as it can."""
    for size in sizes:
        if size <= host.idle:
            continue
        gives = {
            keeps: gang_moves.released_on(donor, keeps, host.id)
            for keeps in donor.sizes
            if keeps < donor.size
        }
        enough = [keeps for keeps, released in gives.items() if released >= size - host.idle]
        exact = [keeps for keeps in enough if gives[keeps] <= size]
        for keeps in exact or enough[-1:]:
            yield size, keeps


def _by_loss(forecast: Forecast, donor: JobView) -> float:
    """What a GPU of a donor costs if it does not get it back, in milliseconds."""
    keeps = donor.sizes[0]
    total_s = forecast.predictor.reshaped_by_size_s(donor, donor.gpu_type)[keeps]
    return (to_ms(total_s) - forecast.end_ms(donor)) / (donor.size - keeps)


def _by_end(forecast: Forecast, donor: JobView) -> float:
    return -forecast.end_ms(donor)
