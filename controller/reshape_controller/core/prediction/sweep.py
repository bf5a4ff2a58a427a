"""Every option that reshapes one running job, weighed in one pass over the cluster.

Does: what the functions of ``candidates`` and ``Outlook.weigh`` do together, option by option in
whole numbers and without building a value for each: with a thousand running jobs these are most of
what a decision weighs. Never: differs from them (tests compare the two), or chooses. State: none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from heapq import nsmallest

from reshape_controller.core.plan import HostView, JobView
from reshape_controller.core.prediction import candidates
from reshape_controller.core.prediction.candidates import Candidate, Rank
from reshape_controller.core.prediction.forecast import Forecast, Outlook
from reshape_controller.core.prediction.givers import Giver, Givers, look
from reshape_controller.core.prediction.growth import Growth
from reshape_controller.core.prediction.predictor import to_ms

NEAREST = 8
"""So many of the jobs that were ruled out are weighed all the same, for people to see."""


@dataclass(slots=True)
class Swept:
    """What a sweep found. ``costly``: options whose effect on the queue is not known yet."""

    worth: list[Rank]
    """Options that save enough."""
    others: list[Rank]
    costly: list[Candidate]
    ruled_out: int = 0
    """Jobs none of whose options can save enough, which were not weighed; and options that save too
    little, if nobody asks which."""
    far: Far | None = None
    """These jobs, if somebody will look at them."""

    @property
    def count(self) -> int:
        """Options, and jobs of which none was weighed."""
        return len(self.worth) + len(self.others) + len(self.costly) + self.ruled_out


@dataclass(frozen=True, slots=True)
class Far:
    """Running jobs whose bound says that none of their options can save enough."""

    jobs: list[tuple[int, JobView]]
    """Each with a figure that is the smaller, the nearer it is to being worth it."""
    look: Starts | Growths

    def nearest(self) -> list[Rank]:
        """The options of those that lack least, for people to see; if they are quick."""
        near = nsmallest(NEAREST, self.jobs, key=lambda entry: (entry[0], entry[1].id))
        swept = self.look.weigh([job for _, job in near])
        return swept.worth + swept.others


@dataclass(frozen=True, slots=True)
class Starts:
    """Single-victim starts of a newcomer. ``base``: the makespan and the sum of completion times of
    the best option that reshapes nobody; ``all_kept``: those that save too little as well."""

    outlook: Outlook
    newcomer: JobView
    givers: Givers
    base: tuple[int, int]
    all_kept: bool = True

    def weigh(self, jobs: Iterable[JobView]) -> Swept:
        """Every one that takes GPUs from one of ``jobs``."""
        givers = [self.givers.of(job) for job in jobs]
        if not givers:
            return _none()
        return _swept(self.outlook, self.newcomer, givers, self.base, all_kept=self.all_kept)


@dataclass(frozen=True, slots=True)
class Growths:
    """Growths and moves of running jobs, with nobody queued."""

    forecast: Forecast
    hosts: list[HostView]
    least_ms: Callable[[int], int]
    base: tuple[int, int]

    def weigh(self, jobs: Iterable[JobView]) -> Swept:
        """Every one of ``jobs``."""
        found, fits = _none(), candidates.Fits(self.hosts)
        by_id = {host.id: host for host in self.hosts}
        for job in jobs:
            own = by_id.get(job.host) if job.host is not None else None
            _grown(found, self.forecast, job, own, fits, self.least_ms, self.base)
        return found


def _none() -> Swept:
    return Swept([], [], [])


def sweep(
    outlook: Outlook,
    newcomer: JobView,
    hosts: list[HostView],
    givers: Givers,
    base: tuple[int, int],
    *,
    gate: bool,
) -> Swept:
    """Weigh every single-victim start of ``newcomer`` (see ``Starts``). With ``gate``, jobs none of
    whose options can save enough are not weighed."""
    all_kept = not gate or outlook.forecast.snapshot.explained
    starts = Starts(outlook, newcomer, givers, base, all_kept)
    if not gate:
        return starts.weigh(givers.among(hosts))
    looked = look(outlook, newcomer, hosts, givers, base)
    found = starts.weigh(looked.near)
    found.ruled_out += looked.ruled_out
    found.far = Far(looked.far, starts) if looked.far else None
    return found


def sweep_growths(
    outlook: Outlook, hosts: list[HostView], growth: Growth, base: tuple[int, int]
) -> Swept:
    """Weigh growths and moves of running jobs that could save enough; with a queue, none is cheap
    to weigh."""
    forecast = outlook.forecast
    if outlook.others or outlook.rest_ms:
        return Swept([], [], list(candidates.growths(forecast, hosts)))
    growths = Growths(forecast, hosts, growth.least_ms, base)
    found = growths.weigh(growth.near)
    found.ruled_out = growth.count - len(growth.near)
    far = growth.far() if forecast.snapshot.explained else []
    found.far = Far(far, growths) if far else None
    return found


def _grown(
    found: Swept,
    forecast: Forecast,
    job: JobView,
    own: HostView | None,
    fits: candidates.Fits,
    least_ms: Callable[[int], int],
    base: tuple[int, int],
) -> None:
    """Every growth and move of a job, with nobody queued."""
    before = forecast.end_ms(job)
    least, floor = least_ms(before), forecast.latest_but((job.id,))
    ends_s: dict[tuple[str, bool], dict[int, float]] = {}
    for size, host in candidates.larger(job, own, fits):
        here, kind = host is own, host.gpu_type
        if (kind, here) not in ends_s:
            ends_s[kind, here] = forecast.predictor.reshaped_to_s(job, kind, moves=not here)
        end = to_ms(ends_s[kind, here][size])
        makespan = max(floor, end)
        shorter, sooner = base[0] - makespan, before - end
        total = forecast.ends_sum_ms - sooner
        worth = shorter >= least or (shorter >= 0 and base[1] - total >= least)
        moved = size - job.size if here else size
        rank = Rank(makespan, total, moved, job.id, size, host.id)
        (found.worth if worth else found.others).append(rank)


_Row = tuple[HostView, Giver, list[tuple[int, int]]]
"""A running job on its host, with the sizes of the newcomer that need a giver and when it ends with
each."""


def _swept(
    outlook: Outlook,
    newcomer: JobView,
    givers: Iterable[Giver],
    base: tuple[int, int],
    *,
    all_kept: bool,
) -> Swept:
    """Weigh every single-victim start that takes GPUs from one of ``givers``."""
    forecast, predictor = outlook.forecast, outlook.forecast.predictor
    rows: list[_Row] = []
    ends: dict[tuple[str, int, float], list[tuple[int, int]]] = {}
    for giver in givers:
        assert giver.job.host is not None
        host = forecast.snapshot.hosts[forecast.numbers[giver.job.host]]
        if newcomer.sizes[-1] <= host.idle:
            continue
        key = (host.gpu_type, host.idle, giver.release_s)
        if key not in ends:
            ends[key] = [
                (size, to_ms(predictor.incoming_s(newcomer, host.gpu_type, size) + key[2]))
                for size in newcomer.sizes
                if size > host.idle
            ]
        rows.append((host, giver, ends[key]))
    found = _none()
    _weigh(found, outlook, newcomer, rows, base, all_kept=all_kept)
    return found


def _weigh(
    found: Swept,
    outlook: Outlook,
    newcomer: JobView,
    rows: list[_Row],
    base: tuple[int, int],
    *,
    all_kept: bool,
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
                if saves or all_kept:
                    rank = Rank(makespan, total, size, name, size, host.id, given)
                    (worth if saves else others)(rank)
                else:
                    found.ruled_out += 1
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
        rank = option.ranked(makespan, total)
        (found.worth if worth else found.others).append(rank)
