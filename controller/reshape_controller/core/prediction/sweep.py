"""Every option that reshapes one running job, weighed in one pass over the cluster.

Does: what the functions of ``candidates`` and ``Outlook.weigh`` do together, option by option in
whole numbers and without building a value for each: with a thousand running jobs these are most of
what a decision weighs. Never: differs from them (tests compare the two), or chooses. State: none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reshape_controller.core.model import HostId, JobId
from reshape_controller.core.plan import HostView, JobView
from reshape_controller.core.prediction import candidates, moves
from reshape_controller.core.prediction.candidates import Candidate, Rank
from reshape_controller.core.prediction.forecast import Forecast, Outlook
from reshape_controller.core.prediction.predictor import to_ms


@dataclass(slots=True)
class Swept:
    """What a sweep found. ``costly``: options whose effect on the queue is not known yet."""

    worth: list[Rank]
    """Options that save enough."""
    others: list[Rank]
    costly: list[Candidate]

    @property
    def count(self) -> int:
        return len(self.worth) + len(self.others) + len(self.costly)


@dataclass(frozen=True, slots=True)
class Giver:
    """A running job that may give GPUs: what of its options no newcomer changes."""

    job: JobView
    before_ms: int
    """When it ends as it is."""
    least_ms: int
    """What its reshape has to save."""
    others_ms: int
    """When the last of the others ends."""
    release_s: float
    keeps: tuple[tuple[int, int, int, tuple[tuple[JobId, int]]], ...]
    """Smaller sizes: the size, what it takes from the job, when the job ends then, and the two as
    an option has them."""


Givers = dict[HostId, list[Giver]]


def givers(
    forecast: Forecast, donors: dict[HostId, list[JobView]], least_ms: Callable[[int], int]
) -> Givers:
    """The ``donors`` of each host. ``least_ms`` gives what has to be saved, from what the victim
    has left."""
    found: Givers = {}
    for host, jobs in donors.items():
        if not jobs:
            continue
        found[host] = here = []
        for job in jobs:
            before = forecast.ends_ms[job.id]
            then_s = forecast.predictor.reshaped_to_s(job, job.gpu_type)
            keeps = tuple(
                (size, job.size - size, to_ms(then_s[size]), ((job.id, size),))
                for size in job.sizes
                if size < job.size
            )
            others, release_s = forecast.latest_but(job.id), forecast.predictor.release_s(job)
            here.append(Giver(job, before, least_ms(before), others, release_s, keeps))
    return found


def sweep(
    outlook: Outlook,
    newcomer: JobView,
    hosts: list[HostView],
    donors: Givers,
    base: tuple[int, int],
) -> Swept:
    """Weigh every single-victim start of ``newcomer``. ``base``: the makespan and the sum of
    completion times of the best option that reshapes nobody."""
    predictor = outlook.forecast.predictor
    rows: list[_Row] = []
    ends: dict[tuple[str, int, float], list[tuple[int, int]]] = {}
    for host in hosts:
        idle, here = host.idle, donors.get(host.id)
        if not here or newcomer.sizes[-1] <= idle:
            continue
        for giver in here:
            key = (host.gpu_type, idle, giver.release_s)
            if key not in ends:
                ends[key] = [
                    (size, to_ms(predictor.incoming_s(newcomer, host.gpu_type, size) + key[2]))
                    for size in newcomer.sizes
                    if size > idle
                ]
            rows.append((host, giver, ends[key]))
    found = Swept([], [], [])
    _weigh(found, outlook, newcomer, rows, base)
    return found


def sweep_growths(
    outlook: Outlook, hosts: list[HostView], least_ms: Callable[[int], int], base: tuple[int, int]
) -> Swept:
    """Weigh every growth and move of a running job; with a queue, none is cheap to weigh."""
    found = Swept([], [], [])
    forecast, rest = outlook.forecast, outlook.rest_ms
    if outlook.others or rest:
        found.costly = list(candidates.growths(forecast, hosts))
        return found
    predictor, base_makespan, base_total = forecast.predictor, base[0], base[1]
    by_id = {host.id: host for host in hosts}
    fits = candidates.Fits(hosts)
    for job in moves.growable(forecast.snapshot):
        own = by_id.get(job.host) if job.host is not None else None
        most = job.size + own.idle if own is not None else 0
        before = forecast.ends_ms[job.id]
        least, floor = least_ms(before), forecast.latest_but(job.id)
        ends_s: dict[tuple[str, bool], dict[int, float]] = {}
        for size in job.sizes:
            if size < job.size:
                continue
            places = [own] if own is not None and job.size < size <= most else []
            for other in fits.beside(size, job.host) if job.only_host is None else ():
                if size > job.size or other.gpu_type != job.gpu_type:
                    places.append(other)
            for host in places:
                here = host is own
                kind = host.gpu_type
                if (kind, here) not in ends_s:
                    ends_s[kind, here] = predictor.reshaped_to_s(job, kind, moves=not here)
                end = to_ms(ends_s[kind, here][size])
                makespan = max(floor, end)
                total = forecast.ends_sum_ms - before + end
                shorter = base_makespan - makespan
                worth = shorter >= least or (shorter >= 0 and base_total - total >= least)
                moved = size - job.size if here else size
                rank: Rank = (makespan, total, moved, job.id, size, host.id, ())
                (found.worth if worth else found.others).append(rank)
    return found


_Row = tuple[HostView, Giver, list[tuple[int, int]]]
"""A running job on its host, with the sizes of the newcomer that need a giver and when it ends with
each."""


def _weigh(
    found: Swept, outlook: Outlook, newcomer: JobView, rows: list[_Row], base: tuple[int, int]
) -> None:
    """One long loop on purpose: it runs thousands of times."""
    forecast, queue = outlook.forecast, outlook.if_started
    alone, rest, gpus, name = not outlook.others, outlook.rest_ms, forecast.gpus, newcomer.id
    late_ms = () if alone else outlook.reach.late_ms
    last, sums = queue.last_ms, forecast.ends_sum_ms + queue.sum_ms
    area = forecast.free_sum_ms + queue.busy_ms + rest
    base_makespan, base_total = base
    worth, others = found.worth.append, found.others.append
    for host, giver, ends in rows:
        idle, before, least, floor = host.idle, giver.before_ms, giver.least_ms, giver.others_ms
        floor = floor if floor > last else last
        late = -1 if alone else late_ms[forecast.type_of[forecast.numbers[host.id]]]
        exact = False
        for keeps, takes, donor_end, given in giver.keeps:
            for size, end in ends:
                if not size - idle <= takes <= size:
                    continue
                exact = True
                if not alone and (
                    takes != size or before <= late or donor_end <= late or end <= late
                ):
                    option = candidates.shrink(forecast, newcomer, size, host, giver.job, keeps)
                    if not outlook.known(option.changes):
                        found.costly.append(option)
                        continue
                makespan = end if end > donor_end else donor_end
                makespan = makespan if makespan > floor else floor
                total = sums - before + donor_end + end
                if rest:
                    more = keeps * donor_end + size * end - giver.job.size * before
                    makespan = max(makespan, -(-(area + more) // gpus))
                shorter = base_makespan - makespan
                saves = shorter >= least or (shorter >= 0 and base_total - total >= least)
                rank: Rank = (makespan, total, size, name, size, host.id, given)
                (worth if saves else others)(rank)
        if not exact:
            _spare(found, outlook, newcomer, host, giver, [size for size, _ in ends], base)


def _spare(
    found: Swept,
    outlook: Outlook,
    newcomer: JobView,
    host: HostView,
    giver: Giver,
    sizes: list[int],
    base: tuple[int, int],
) -> None:
    """The options of a donor that cannot but give too much; they are few."""
    for size, keeps in candidates.spare(giver.job, sizes, host.idle):
        option = candidates.shrink(outlook.forecast, newcomer, size, host, giver.job, keeps)
        if not outlook.known(option.changes):
            found.costly.append(option)
            continue
        makespan, total = outlook.weigh(option.ends, option.changes)
        shorter, least = base[0] - makespan, giver.least_ms
        worth = shorter >= least or (shorter >= 0 and base[1] - total >= least)
        rank: Rank = (makespan, total, *option.order)
        (found.worth if worth else found.others).append(rank)
