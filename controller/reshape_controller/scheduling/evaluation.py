"""Options against each other: what each brings, what is worth it, and the plan that tells of it.

Does: weighs candidates with an outlook, keeps what can win, ranks, and turns the choice into a plan
with its options and a sentence for people. Never: sets the rules: what a reshape has to save is
given. State: the base of one comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from heapq import nsmallest
from typing import NamedTuple

from reshape_controller.core.explanation import duration, gpus
from reshape_controller.core.plan import HostView, JobView, Option, Plan
from reshape_controller.scheduling import candidates, legal_moves
from reshape_controller.scheduling.candidates import Candidate, Rank
from reshape_controller.scheduling.donors import Donor, Donors, find_donors
from reshape_controller.scheduling.forecast import Forecast, Outlook
from reshape_controller.scheduling.growth import Growth
from reshape_controller.scheduling.predictor import to_ms

NEAREST = 8
"""So many of the jobs that were ruled out are weighed all the same, for people to see."""


@dataclass(slots=True)
class SweptOptions:
    """What a sweep found. ``costly``: options whose effect on the queue is not known yet."""

    worth: list[Rank]
    """Options that save enough."""
    others: list[Rank]
    costly: list[Candidate]
    ruled_out: int = 0
    """Jobs none of whose options can save enough, which were not weighed; and options that save too
    little, if nobody asks which."""
    far: RuledOut | None = None
    """These jobs, if somebody will look at them."""

    @property
    def count(self) -> int:
        """Options, and jobs of which none was weighed."""
        return len(self.worth) + len(self.others) + len(self.costly) + self.ruled_out


@dataclass(frozen=True, slots=True)
class RuledOut:
    """Running jobs whose bound says that none of their options can save enough."""

    jobs: list[tuple[int, JobView]]
    """Each with a figure that is the smaller, the nearer it is to being worth it."""
    options: DonorOptions | GrowthOptions

    def nearest(self) -> list[Rank]:
        """The options of those that lack least, for people to see; if they are quick."""
        near = nsmallest(NEAREST, self.jobs, key=lambda entry: (entry[0], entry[1].id))
        swept = self.options.evaluate([job for _, job in near])
        return swept.worth + swept.others


@dataclass(frozen=True, slots=True)
class DonorOptions:
    """Single-victim starts of a newcomer. ``base``: the makespan and the sum of completion times of
    the best option that reshapes nobody; ``all_kept``: those that save too little as well."""

    outlook: Outlook
    newcomer: JobView
    donors: Donors
    base: tuple[int, int]
    all_kept: bool = True

    def evaluate(self, jobs: Iterable[JobView]) -> SweptOptions:
        """Every one that takes GPUs from one of ``jobs``."""
        donors = [self.donors.of(job) for job in jobs]
        if not donors:
            return _none()
        return _swept(self.outlook, self.newcomer, donors, self.base, all_kept=self.all_kept)


@dataclass(frozen=True, slots=True)
class GrowthOptions:
    """Growths and moves of running jobs, with nobody queued."""

    forecast: Forecast
    hosts: list[HostView]
    least_ms: Callable[[int], int]
    base: tuple[int, int]

    def evaluate(self, jobs: Iterable[JobView]) -> SweptOptions:
        """Every one of ``jobs``."""
        found, fits = _none(), candidates.Fits(self.hosts)
        by_id = {host.id: host for host in self.hosts}
        for job in jobs:
            own = by_id.get(job.host) if job.host is not None else None
            _grown(found, self.forecast, job, own, fits, self.least_ms, self.base)
        return found


def _none() -> SweptOptions:
    return SweptOptions([], [], [])


def evaluate_shrinks(
    outlook: Outlook,
    newcomer: JobView,
    hosts: list[HostView],
    donors: Donors,
    base: tuple[int, int],
    *,
    gate: bool,
) -> SweptOptions:
    """Weigh every single-victim start of ``newcomer`` (see ``Starts``). With ``gate``, jobs none of
    whose options can save enough are not weighed."""
    all_kept = not gate or outlook.forecast.snapshot.explained
    starts = DonorOptions(outlook, newcomer, donors, base, all_kept)
    if not gate:
        return starts.evaluate(donors.among(hosts))
    looked = find_donors(outlook, newcomer, hosts, donors, base)
    found = starts.evaluate(looked.near)
    found.ruled_out += looked.ruled_out
    found.far = RuledOut(looked.far, starts) if looked.far else None
    return found


def evaluate_growths(
    outlook: Outlook, hosts: list[HostView], growth: Growth, base: tuple[int, int]
) -> SweptOptions:
    """Weigh growths and moves of running jobs that could save enough; with a queue, none is cheap
    to weigh."""
    forecast = outlook.forecast
    if outlook.others or outlook.rest_ms:
        return SweptOptions([], [], list(candidates.growths(forecast, hosts)))
    growths = GrowthOptions(forecast, hosts, growth.least_ms, base)
    found = growths.evaluate(growth.near)
    found.ruled_out = growth.count - len(growth.near)
    far = growth.far() if forecast.snapshot.explained else []
    found.far = RuledOut(far, growths) if far else None
    return found


def _grown(
    found: SweptOptions,
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


_Row = tuple[HostView, Donor, list[tuple[int, int]]]
"""A running job on its host, with the sizes of the newcomer that need a giver and when it ends with
each."""


def _swept(
    outlook: Outlook,
    newcomer: JobView,
    donors: Iterable[Donor],
    base: tuple[int, int],
    *,
    all_kept: bool,
) -> SweptOptions:
    """Weigh every single-victim start that takes GPUs from one of ``givers``."""
    forecast, predictor = outlook.forecast, outlook.forecast.predictor
    rows: list[_Row] = []
    ends: dict[tuple[str, int, float], list[tuple[int, int]]] = {}
    for donor in donors:
        assert donor.job.host is not None
        host = forecast.snapshot.hosts[forecast.numbers[donor.job.host]]
        if newcomer.sizes[-1] <= host.idle:
            continue
        key = (host.gpu_type, host.idle, donor.release_s)
        if key not in ends:
            ends[key] = [
                (size, to_ms(predictor.incoming_s(newcomer, host.gpu_type, size) + key[2]))
                for size in newcomer.sizes
                if size > host.idle
            ]
        rows.append((host, donor, ends[key]))
    found = _none()
    _evaluate(found, outlook, newcomer, rows, base, all_kept=all_kept)
    return found


def _evaluate(
    found: SweptOptions,
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
    for host, donor, ends in rows:
        idle, before, least, floor = host.idle, donor.before_ms, donor.least_ms, donor.others_ms
        floor = floor if floor > last else last
        late = -1 if alone else late_ms[forecast.type_of[forecast.numbers[host.id]]]
        exact = False
        for keeps, takes, donor_end, given in donor.keeps:
            for size, end in ends:
                if not size - idle <= takes <= size:
                    continue
                exact = True
                if not alone and (
                    takes != size or before <= late or donor_end <= late or end <= late
                ):
                    option = candidates.shrink(forecast, newcomer, size, host, donor.job, keeps)
                    if not outlook.known(option.changes):
                        found.costly.append(option)
                        continue
                makespan = end if end > donor_end else donor_end
                makespan = makespan if makespan > floor else floor
                total = sums - before + donor_end + end
                if rest:
                    more = keeps * donor_end + size * end - donor.job.size * before
                    makespan = max(makespan, -(-(area + more) // gpus))
                shorter = base_makespan - makespan
                saves = shorter >= least or (shorter >= 0 and base_total - total >= least)
                if saves or all_kept:
                    rank = Rank(makespan, total, size, name, size, host.id, given)
                    (worth if saves else others)(rank)
                else:
                    found.ruled_out += 1
        if not exact:
            _spare(found, outlook, newcomer, host, donor, [size for size, _ in ends], base)


def _spare(
    found: SweptOptions,
    outlook: Outlook,
    newcomer: JobView,
    host: HostView,
    donor: Donor,
    sizes: list[int],
    base: tuple[int, int],
) -> None:
    """The options of a donor that cannot but give too much; they are few."""
    for size, keeps in candidates.spare(donor.job, sizes, host.idle):
        option = candidates.shrink(outlook.forecast, newcomer, size, host, donor.job, keeps)
        if not outlook.known(option.changes):
            found.costly.append(option)
            continue
        makespan, total = outlook.evaluate(option.ends, option.changes)
        shorter, least = base[0] - makespan, donor.least_ms
        worth = shorter >= least or (shorter >= 0 and base[1] - total >= least)
        rank = option.ranked(makespan, total)
        (found.worth if worth else found.others).append(rank)


WAITING_KEPT_MAX = 16
"""Options that are kept of a decision to wait; such a decision may be repeated often."""


class Nothing(NamedTuple):
    """What comes of doing nothing; sorts before every option that is as good."""

    makespan_ms: int
    total_ms: int


@dataclass(frozen=True)
class Evaluated:
    """Options beside those that reshape nobody."""

    best: Rank | None = None
    """The best that is worth it."""
    quick: list[Rank] = field(default_factory=list)
    """All that were cheap to weigh."""
    costly: list[Rank] = field(default_factory=list)
    """Of the others those that could have won."""
    count: int = 0
    far: RuledOut | None = None
    """Jobs that were ruled out without weighing their options."""

    @cached_property
    def kept(self) -> list[Rank]:
        """What a plan may show of them."""
        ruled_out = self.far.nearest() if self.far is not None else []
        kept = nsmallest(legal_moves.OPTIONS_KEPT_MAX, self.quick + ruled_out)
        if self.best is not None and self.best not in kept and self.best not in self.costly:
            kept.append(self.best)
        return kept + self.costly


class Evaluation:
    """One comparison: every option against ``base``, the best that reshapes nobody."""

    def __init__(
        self, outlook: Outlook, least_ms: Callable[[int], int], nothing: str, quiet: list[Candidate]
    ) -> None:
        """``quiet``: options that reshape nobody; without any, doing ``nothing`` is the base."""
        self.outlook = outlook
        self.explained = outlook.forecast.snapshot.explained
        """Whether somebody will look at the options."""
        self._least_ms = least_ms
        self._nothing = nothing
        self.quiet = sorted([self.evaluate(candidate) for candidate in quiet])
        self.base: Rank | Nothing = self.quiet[0] if self.quiet else Nothing(*outlook.waits())

    def evaluate(self, candidate: Candidate) -> Rank:
        """What a candidate brings."""
        return candidate.ranked(*self.outlook.evaluate(candidate.ends, candidate.changes))

    def worth(self, option: Rank, reshaped: list[JobView]) -> bool:
        """Whether a reshape saves enough: in the makespan, or in the sum of completion times
        while the makespan does not rise."""
        end_ms = self.outlook.forecast.end_ms
        least = self._least_ms(max([end_ms(job) for job in reshaped]))
        shorter = self.base.makespan_ms - option.makespan_ms
        sooner = self.base.total_ms - option.total_ms
        return shorter >= least or (shorter >= 0 and sooner >= least)

    def best_of(self, swept: SweptOptions, *, gate: bool) -> Evaluated:
        """The best of what was swept, and what is costly to weigh as far as it can win. With
        ``gate``, only what saves enough can win."""
        quick = swept.worth + swept.others
        best = min(swept.worth if gate else quick, default=None)
        best, costly = self._evaluate_all(swept.costly, gate=gate, best=best)
        return Evaluated(best, quick, costly, swept.count, swept.far)

    def best_of_all(self, found: list[Candidate], *, gate: bool) -> Evaluated:
        """The best of candidates, weighed as far as they can win."""
        best, weighed = self._evaluate_all(found, gate=gate, best=None)
        return Evaluated(best, [], weighed, len(weighed))

    def _evaluate_all(
        self, found: list[Candidate], *, gate: bool, best: Rank | None
    ) -> tuple[Rank | None, list[Rank]]:
        """Weigh what can win against ``best``: first what is cheap to weigh; of the rest, in the
        order of what each could be at best, until none can beat the best so far."""
        done: list[Rank] = []
        costly: list[tuple[Rank, Candidate]] = []
        for candidate in found:
            if self.outlook.known(candidate.changes):
                best = self._better(candidate, done, best, gate=gate)
            else:
                bound = self.outlook.bound(candidate.ends, candidate.changes)
                costly.append((candidate.ranked(*bound), candidate))
        for at_best, candidate in sorted(costly, key=lambda entry: entry[0]):
            if best is not None and at_best[:2] > best[:2]:
                break
            if not gate or self.worth(at_best, candidate.reshaped):
                best = self._better(candidate, done, best, gate=gate)
        return best, done

    def _better(
        self, candidate: Candidate, done: list[Rank], best: Rank | None, *, gate: bool
    ) -> Rank | None:
        """The better of a candidate, which is weighed, and the ``best`` of those that are
        ``done``."""
        option = self.evaluate(candidate)
        done.append(option)
        better = best is None or option < best
        return option if better and (not gate or self.worth(option, candidate.reshaped)) else best

    def option(self, entry: Rank | Nothing) -> Option:
        """An option as it is kept."""
        makespan_s, total_s = entry.makespan_ms / 1000, entry.total_ms / 1000
        if isinstance(entry, Nothing):
            return Option((), makespan_s, self._nothing, total_s)
        forecast = self.outlook.forecast
        reshaped = [forecast.running(donor) for donor, _ in entry.shrinks]
        if not reshaped and entry.job in forecast.running_index.by_job:
            reshaped = [forecast.running(entry.job)]
        better = bool(reshaped) and entry[:2] < self.base[:2]
        too_little = better and not self.worth(entry, reshaped)
        refused = "saves too little time" if too_little else ""
        return Option(entry.targets, makespan_s, "", total_s, refused)

    def plan(self, code: str, job: JobView, chosen: Rank, found: Evaluated, weighed: int) -> Plan:
        """The plan that takes ``chosen``, an option of ``job``; ``found``: what there was beside
        the quiet ones."""
        options, number = self._beside(chosen, found) if self.explained else ((), None)
        text = self._text(job, chosen) if self.explained else ""
        return Plan(chosen.targets, code, text, job.id, options, number, weighed)

    def _beside(self, chosen: Rank, found: Evaluated) -> tuple[tuple[Option, ...], int]:
        """What a plan shows beside what it takes, and where that stands."""
        keep: list[Rank | Nothing] = sorted([self.base, *self.quiet[1:], *found.kept])
        needed = []
        for entry in (self.base, chosen) if chosen != self.base else (chosen,):
            if entry not in keep[: legal_moves.OPTIONS_KEPT_MAX]:
                needed.append(entry)
        keep = keep[: legal_moves.OPTIONS_KEPT_MAX - len(needed)] + needed
        return tuple(self.option(entry) for entry in keep), keep.index(chosen)

    def waiting(self, found: Evaluated) -> tuple[Option, ...]:
        """What a plan that takes nothing shows."""
        if not self.explained:
            return ()
        return tuple(map(self.option, sorted([self.base, *found.kept])[:WAITING_KEPT_MAX]))

    def _text(self, job: JobView, chosen: Rank) -> str:
        """The decision in a sentence or two."""
        base, makespan = self.base, chosen.makespan_ms
        sooner = base.total_ms - chosen.total_ms
        text = f"{self._what(job, chosen)}. All jobs end in {duration(makespan / 1000)}"
        if makespan != base.makespan_ms:
            waits = isinstance(base, Nothing) and not job.size
            otherwise = "if it waited" if waits else "otherwise"
            text += f" instead of {duration(base.makespan_ms / 1000)} {otherwise}"
        elif sooner > 0:
            text += f" either way; their completion times sum to {duration(sooner / 1000)} less"
        return text + " (predicted)."

    def _what(self, job: JobView, chosen: Rank) -> str:
        size, host = chosen.size, chosen.host
        if not job.size:
            text = f"{job.spec.name} starts on {gpus(size)} of {host}"
        elif host == job.host:
            text = f"{job.spec.name} grows from {job.size} to {gpus(size)}"
        else:
            text = f"{job.spec.name} moves from {gpus(job.size)} of {job.host} to {size} of {host}"
        for donor, keeps in chosen.shrinks:
            view = self.outlook.forecast.running(donor)
            text += f"; {view.spec.name} goes from {view.size} to {keeps}"
        return text
