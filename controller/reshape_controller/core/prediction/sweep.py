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
from reshape_controller.core.prediction.candidates import Candidate
from reshape_controller.core.prediction.forecast import Forecast, Outlook, to_ms

Rank = tuple[int, int, int, str, int, str, tuple[tuple[str, int], ...]]
"""Makespan, sum of completion times, and the candidate's ``order``: sorts as options do."""


Ends = dict[tuple[str, int, float], list[tuple[int, int]]]
"""By GPU type, idle GPUs, and seconds until a donor has released its own: the sizes that need a
donor, and when the newcomer ends with each."""


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


def sweep(
    outlook: Outlook,
    newcomer: JobView,
    hosts: list[HostView],
    donors: dict[HostId, list[JobView]],
    least_ms: Callable[[int], int],
    base: tuple[int, int],
) -> Swept:
    """Weigh every single-victim start of ``newcomer``.

    ``least_ms`` gives what has to be saved, from what the victim has left; ``base`` is the makespan
    and the sum of completion times of the best option that reshapes nobody.
    """
    found = Swept([], [], [])
    predictor = outlook.forecast.predictor
    ends: Ends = {}
    for host in hosts:
        sizes = [size for size in newcomer.sizes if size > host.idle]
        here = donors.get(host.id)
        if not sizes or not here:
            continue
        for donor in here:
            key = (host.gpu_type, host.idle, predictor.release_s(donor))
            if key not in ends:
                new_s = [predictor.incoming_s(newcomer, host.gpu_type, size) for size in sizes]
                ends[key] = [(n, to_ms(s + key[2])) for n, s in zip(sizes, new_s, strict=True)]
        _host(found, outlook, newcomer, host, here, sizes, ends, least_ms, base)
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
    predictor, base_makespan, base_total = forecast.predictor, *base
    by_id = {host.id: host for host in hosts}
    fits = candidates.Fits(hosts)
    for job in moves.growable(forecast.snapshot):
        own = by_id.get(job.host) if job.host is not None else None
        most = job.size + own.idle if own is not None else 0
        before = forecast.ends_ms[job.id]
        least, floor = least_ms(before), forecast.latest_but(job.id)
        for size in job.sizes:
            if size < job.size:
                continue
            places = [own] if own is not None and job.size < size <= most else []
            for other in fits.beside(size, job.host):
                if size > job.size or other.gpu_type != job.gpu_type:
                    places.append(other)
            for host in places:
                here = host is own
                then_s = predictor.reshaped_to_s(job, host.gpu_type, moves=not here)
                end = to_ms(then_s[size])
                makespan = max(floor, end)
                total = forecast.ends_sum_ms - before + end
                shorter = base_makespan - makespan
                worth = shorter >= least or (shorter >= 0 and base_total - total >= least)
                moved = size - job.size if here else size
                rank: Rank = (makespan, total, moved, job.id, size, host.id, ())
                (found.worth if worth else found.others).append(rank)
    return found


def rebuilt_growth(forecast: Forecast, rank: Rank) -> Candidate:
    """The candidate that a rank stands for."""
    job, size, host = forecast.running[JobId(rank[3])], rank[4], HostId(rank[5])
    return candidates.grow(forecast, job, size, forecast.snapshot.hosts[forecast.numbers[host]])


def rebuilt(forecast: Forecast, newcomer: JobView, rank: Rank) -> Candidate:
    """The candidate that a rank stands for."""
    _, _, _, _, size, host_id, ((donor_id, keeps),) = rank
    host = forecast.snapshot.hosts[forecast.numbers[HostId(host_id)]]
    donor = forecast.running[JobId(donor_id)]
    return candidates.shrink(forecast, newcomer, size, host, donor, keeps)


def _host(
    found: Swept,
    outlook: Outlook,
    newcomer: JobView,
    host: HostView,
    here: list[JobView],
    sizes: list[int],
    end_of: Ends,
    least_ms: Callable[[int], int],
    base: tuple[int, int],
) -> None:
    """The options on one host. One long loop on purpose: it runs thousands of times."""
    forecast, queue = outlook.forecast, outlook.if_started
    predictor, kind, idle = forecast.predictor, host.gpu_type, host.idle
    late = queue.late_ms[forecast.type_of[forecast.numbers[host.id]]] if outlook.others else -1
    alone = not outlook.others
    base_makespan, base_total = base
    gpus, rest = forecast.gpus, outlook.rest_ms
    busy = forecast.free_sum_ms + queue.busy_ms + rest
    for donor in here:
        before = forecast.ends_ms[donor.id]
        least = least_ms(before)
        ends = end_of[kind, idle, predictor.release_s(donor)]
        then_s = predictor.reshaped_to_s(donor, kind)
        floor = max(queue.last_ms, forecast.latest_but(donor.id))
        sum_ms = forecast.ends_sum_ms + queue.sum_ms - before
        exact = False
        for keeps in donor.sizes:
            takes = donor.size - keeps
            if takes <= 0:
                break
            donor_end = to_ms(then_s[keeps])
            given = ((donor.id, keeps),)
            least_end = donor_end if donor_end > floor else floor
            for size, end in ends:
                if not size - idle <= takes <= size:
                    continue
                exact = True
                known = alone or (
                    takes == size and before > late and donor_end > late and end > late
                )
                if not known:
                    option = candidates.shrink(forecast, newcomer, size, host, donor, keeps)
                    if not outlook.known(option.changes):
                        found.costly.append(option)
                        continue
                makespan = end if end > least_end else least_end
                total = sum_ms + donor_end + end
                if rest:
                    more = keeps * donor_end + size * end - donor.size * before
                    makespan = max(makespan, -(-(busy + more) // gpus))
                shorter = base_makespan - makespan
                worth = shorter >= least or (shorter >= 0 and base_total - total >= least)
                rank = (makespan, total, size, newcomer.id, size, host.id, given)
                (found.worth if worth else found.others).append(rank)
        if not exact:
            _spare(found, outlook, newcomer, host, donor, sizes, least, base)


def _spare(
    found: Swept,
    outlook: Outlook,
    newcomer: JobView,
    host: HostView,
    donor: JobView,
    sizes: list[int],
    least: int,
    base: tuple[int, int],
) -> None:
    """The options of a donor that cannot but give too much; they are few."""
    for size, keeps in candidates.spare(donor, sizes, host.idle):
        option = candidates.shrink(outlook.forecast, newcomer, size, host, donor, keeps)
        if not outlook.known(option.changes):
            found.costly.append(option)
            continue
        makespan, total = outlook.weigh(option.ends, option.changes)
        shorter = base[0] - makespan
        worth = shorter >= least or (shorter >= 0 and base[1] - total >= least)
        rank: Rank = (makespan, total, *option.order)
        (found.worth if worth else found.others).append(rank)
