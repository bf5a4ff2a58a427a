"""Options compared with each other: what each saves, which is best, and the plan that explains it.

The first half evaluates the options of many running jobs at once, without a ``Candidate`` for each
(``evaluate_shrinks``, ``evaluate_growths``). Bounds prune the jobs none of whose options can save
enough. An option that changes the schedule of the queue is left pending. The second half
(``Evaluation``) compares everything with the best option that reshapes no running job: it
evaluates what is pending as far as it can win, ranks, and writes the plan.

What a reshape has to save is given by the policy. A baseline is a makespan and a sum of completion
times. Times are milliseconds from now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappushpop, nsmallest
from itertools import chain
from typing import NamedTuple

from reshape_controller.core.plan import HostView, JobView, Option, Plan
from reshape_controller.scheduling import candidates, legal_moves
from reshape_controller.scheduling.bounds import PRUNED_SHOWN_MAX, DonorBounds, GrowthBounds
from reshape_controller.scheduling.candidates import BestFit, Candidate, RankedOption
from reshape_controller.scheduling.donor_gains import DonorRange
from reshape_controller.scheduling.donors import Donor, Donors
from reshape_controller.scheduling.forecast import Forecast, Outlook
from reshape_controller.scheduling.list_schedule import NEVER_MS
from reshape_controller.scheduling.option_text import text_of
from reshape_controller.scheduling.predictor import lent_loss_ms, to_ms
from reshape_controller.scheduling.rules import saves_enough


@dataclass(slots=True)
class EvaluatedOptions:
    """The options of a set of running jobs."""

    worthwhile: list[RankedOption] = field(default_factory=list)
    """Options that save enough."""
    others: list[RankedOption] = field(default_factory=list)
    """Options that do not."""
    pending: list[Candidate] = field(default_factory=list)
    """Options that change the schedule of the queue: each needs a list schedule of its own."""
    pruned_count: int = 0
    """Jobs that were pruned, and options that were dropped at once, or never made: they save too
    little and the plan is not explained, or it shows better ones."""
    pruned: PrunedJobs | None = None
    """The pruned jobs, if the plan is explained and there are any."""
    best: tuple[int, int] = (NEVER_MS, NEVER_MS)
    """The figures of the best option that saves enough, while options are evaluated."""
    worst: tuple[int, int] = (NEVER_MS, NEVER_MS)
    """The figures of the worst option that a plan would show, of those so far."""

    @property
    def count(self) -> int:
        """The number of options; a pruned job counts once."""
        return len(self.worthwhile) + len(self.others) + len(self.pending) + self.pruned_count


@dataclass(frozen=True, slots=True)
class PrunedJobs:
    """Running jobs none of whose options can save enough, by their bounds."""

    jobs: list[tuple[int, JobView]]
    """Each job with a figure; the smaller it is, the closer the job's bound comes to passing."""
    evaluator: ShrinkEvaluator | GrowthEvaluator

    def nearest(self) -> list[RankedOption]:
        """Return the options of the jobs that come closest, without those left pending."""
        nearest = nsmallest(PRUNED_SHOWN_MAX, self.jobs, key=lambda pair: (pair[0], pair[1].id))
        options = self.evaluator.evaluate([job for _, job in nearest])
        return options.worthwhile + options.others


_EndsByReleased = dict[int, list[tuple[int, int]]]
"""By the number of GPUs that a donor releases: the sizes at which a newcomer takes all of them.
Each has the end of the newcomer, which includes the donor's release."""
_DonorEntry = tuple[HostView, Donor, _EndsByReleased]
"""A donor on its host, with the sizes of the newcomer that need GPUs of it."""


@dataclass(frozen=True, slots=True)
class ShrinkEvaluator:
    """Evaluates the starts of a newcomer for which one donor shrinks."""

    outlook: Outlook
    newcomer: JobView
    donors: Donors
    baseline: tuple[int, int]
    """Makespan and sum of completion times of the best option that reshapes no running job."""
    keep_all: bool = True
    """Whether options that save too little are returned as well."""

    def evaluate(
        self, jobs: Sequence[JobView], ranges: Sequence[DonorRange] = ()
    ) -> EvaluatedOptions:
        """Evaluate every start that takes GPUs from one of ``jobs``, and those of ``ranges`` as far
        as they matter."""
        options = EvaluatedOptions()
        if not self.keep_all:
            options.worst = (-NEVER_MS, -NEVER_MS)  # a plan shows none
        if jobs or ranges:
            donors = self._with_newcomer_ends(chain(jobs, _in_turn(ranges, options)))
            _evaluate_donors(options, self.outlook, self.newcomer, donors, self.baseline)
        return options

    def _with_newcomer_ends(self, jobs: Iterable[JobView]) -> Iterator[_DonorEntry]:
        """Yield the donors beside which the newcomer has a size that needs GPUs of them."""
        forecast, predictor, newcomer = (
            self.outlook.forecast,
            self.outlook.forecast.predictor,
            self.newcomer,
        )
        ends: dict[tuple[str, int, float], _EndsByReleased] = {}
        for job in jobs:
            assert job.host is not None
            host = forecast.snapshot.hosts[forecast.numbers[job.host]]
            if newcomer.sizes[-1] <= host.idle:
                continue
            donor = self.donors.donor(job)
            key = (host.gpu_type, host.idle, donor.release_s)
            if key not in ends:
                ends[key] = {}
                for size in [size for size in newcomer.sizes if size > host.idle]:
                    end = to_ms(predictor.incoming_s(newcomer, host.gpu_type, size) + key[2])
                    for released in range(size - host.idle, size + 1):
                        ends[key].setdefault(released, []).append((size, end))
            yield host, donor, ends[key]


@dataclass(frozen=True, slots=True)
class GrowthEvaluator:
    """Evaluates growths and moves of running jobs while the queue is empty."""

    forecast: Forecast
    hosts: list[HostView]
    """At least the hosts with idle GPUs."""
    min_saving_ms: Callable[[int], int]
    """What a reshape has to save, as a function of the time until the job has left."""
    baseline: tuple[int, int]
    """Makespan and sum of completion times if nothing is done."""

    def evaluate(self, jobs: Iterable[JobView]) -> EvaluatedOptions:
        """Evaluate every growth and move of ``jobs``."""
        options, best_fit = EvaluatedOptions(), BestFit(self.hosts)
        by_id = {host.id: host for host in self.hosts}
        for job in jobs:
            own = by_id.get(job.host) if job.host is not None else None
            self._evaluate_job(options, job, own, best_fit)
        return options

    def _evaluate_job(
        self, options: EvaluatedOptions, job: JobView, own: HostView | None, best_fit: BestFit
    ) -> None:
        forecast = self.forecast
        before = forecast.end_ms(job)
        min_saving = self.min_saving_ms(before)
        others_end = forecast.latest_end_without((job.id,))
        totals_s: dict[tuple[str, bool], dict[int, float]] = {}
        for size, host in candidates.growth_sizes(job, own, best_fit, forecast.rules):
            stays, gpu_type = host is own, host.gpu_type
            if (gpu_type, stays) not in totals_s:
                totals_s[gpu_type, stays] = forecast.predictor.reshaped_by_size_s(
                    job, gpu_type, moves=not stays
                )
            end = to_ms(totals_s[gpu_type, stays][size])
            makespan, total = max(others_end, end), forecast.ends_sum_ms - before + end
            figures = (total, makespan) if forecast.by_sum else (makespan, total)
            moved = size - job.size if stays else size
            option = RankedOption(*figures, moved, job.id, size, host.id)
            if saves_enough(*figures, self.baseline, min_saving):
                options.worthwhile.append(option)
            else:
                options.others.append(option)


def evaluate_shrinks(
    outlook: Outlook,
    newcomer: JobView,
    hosts: list[HostView],
    bounds: DonorBounds,
    baseline: tuple[int, int],
    *,
    prune: bool,
) -> EvaluatedOptions:
    """Evaluate the starts of ``newcomer`` on ``hosts`` for which one donor shrinks. With ``prune``,
    jobs none of whose options can save enough are left out."""
    keep_all = not prune or outlook.forecast.snapshot.explain
    evaluator = ShrinkEvaluator(outlook, newcomer, bounds.donors, baseline, keep_all)
    if not prune:
        return evaluator.evaluate(bounds.donors.on_hosts(hosts))
    search = bounds.find(outlook, newcomer, hosts, baseline)
    options = evaluator.evaluate(search.candidates, search.ranges)
    options.pruned_count += search.pruned_count
    options.pruned = PrunedJobs(search.pruned, evaluator) if search.pruned else None
    return options


def evaluate_growths(
    outlook: Outlook, hosts: list[HostView], growth: GrowthBounds, baseline: tuple[int, int]
) -> EvaluatedOptions:
    """Evaluate the growths and moves of running jobs that can save enough. With a queue, all are
    left pending: each may change the schedule of the queue."""
    forecast = outlook.forecast
    if outlook.others or outlook.tail_area_ms:
        return EvaluatedOptions(pending=list(candidates.growths(forecast, hosts)))
    evaluator = GrowthEvaluator(forecast, hosts, growth.min_saving_ms, baseline)
    options = evaluator.evaluate(growth.candidates)
    options.pruned_count = growth.count - len(growth.candidates)
    pruned = growth.pruned() if forecast.snapshot.explain else []
    options.pruned = PrunedJobs(pruned, evaluator) if pruned else None
    return options


def _in_turn(ranges: Sequence[DonorRange], options: EvaluatedOptions) -> Iterator[JobView]:
    """Yield the donors of ``ranges``, the range with the best bound first, each as far as it may
    matter beside ``options``, which are evaluated meanwhile. The others are counted there."""
    for donors in sorted(ranges, key=lambda each: each.least(0)):
        for at, entry in enumerate(donors.entries):
            if not donors.may_matter(at, options.best, options.worst):
                options.pruned_count += (len(donors.entries) - at) * donors.options_each
                break
            yield entry.job


def _evaluate_donors(
    options: EvaluatedOptions,
    outlook: Outlook,
    newcomer: JobView,
    by_donor: Iterable[_DonorEntry],
    baseline: tuple[int, int],
) -> None:
    """Evaluate every pair of sizes of the newcomer and a donor. This is one long loop on purpose,
    with ``saves_enough`` written out: it runs thousands of times in a decision.

    While no free time that changes is within the reach of the queue, the queue's schedule stays,
    and the figures of an option differ from fixed sums by those of two jobs.
    """
    forecast, queue = outlook.forecast, outlook.if_started
    alone, tail_area, name = not outlook.others, outlook.tail_area_ms, newcomer.id
    gpu_count = forecast.gpus
    limits_ms = () if alone else outlook.reach.limits_ms
    queue_end, sums = queue.last_ms, forecast.ends_sum_ms + queue.sum_ms
    area = forecast.free_sum_ms + queue.busy_ms + tail_area
    base_first, base_second = baseline
    lends, by_sum = forecast.rules.lends, forecast.by_sum
    worthwhile, others = options.worthwhile.append, options.others.append
    best, worst = options.best, options.worst
    shown = [(-worst[0], -worst[1])] * legal_moves.OPTIONS_MAX
    for host, donor, newcomer_ends in by_donor:
        before, min_saving = donor.end_ms, donor.min_saving_ms
        floor = donor.others_end_ms
        floor = floor if floor > queue_end else queue_end
        limit = -1 if alone else limits_ms[forecast.type_of[forecast.numbers[host.id]]]
        is_exact, may_lend = False, lends and not donor.job.loses
        for keeps, released, end_if_kept, lost_part, shrinks in donor.smaller:
            for size, end in newcomer_ends.get(released, ()):
                is_exact, donor_end, returned = True, end_if_kept, 0
                if may_lend and end < end_if_kept:
                    lent_end = before + lent_loss_ms(donor.reshape_ms, lost_part, end)
                    if lent_end < end_if_kept:
                        donor_end, returned = lent_end, released
                if not alone and (
                    released != size or before <= limit or donor_end <= limit or end <= limit
                ):
                    candidate = candidates.shrink(forecast, newcomer, size, host, donor.job, keeps)
                    if not outlook.keeps_schedule(candidate.changes):
                        options.pending.append(candidate)
                        continue
                makespan = end if end > donor_end else donor_end
                makespan = makespan if makespan > floor else floor
                total = sums - before + donor_end + end
                if tail_area:
                    more = (keeps + returned) * donor_end - donor.job.size * before
                    more += (size - returned) * end
                    makespan = max(makespan, -(-(area + more) // gpu_count))
                first, second = (total, makespan) if by_sum else (makespan, total)
                saved = base_first - first
                enough = saved >= min_saving or (saved >= 0 and base_second - second >= min_saving)
                figures = (first, second)
                if figures <= worst or (enough and figures <= best):
                    option = RankedOption(first, second, size, name, size, host.id, shrinks)
                    (worthwhile if enough else others)(option)
                    best = min(best, figures) if enough else best
                    heappushpop(shown, (-first, -second))
                    worst = (-shown[0][0], -shown[0][1])
                    options.best, options.worst = best, worst
                else:
                    options.pruned_count += 1
        if not is_exact:
            sizes = [size for size in newcomer.sizes if size > host.idle]
            _evaluate_surplus(options, outlook, newcomer, host, donor, sizes, baseline)


def _evaluate_surplus(
    options: EvaluatedOptions,
    outlook: Outlook,
    newcomer: JobView,
    host: HostView,
    donor: Donor,
    sizes: list[int],
    baseline: tuple[int, int],
) -> None:
    """Evaluate the options of a donor that always releases more than the newcomer takes. There are
    at most as many as the newcomer has sizes."""
    for size, keeps in candidates.surplus_sizes(donor.job, sizes, host.idle):
        candidate = candidates.shrink(outlook.forecast, newcomer, size, host, donor.job, keeps)
        if not outlook.keeps_schedule(candidate.changes):
            options.pending.append(candidate)
            continue
        figures = outlook.evaluate(candidate.ends, candidate.changes)
        enough = saves_enough(*figures, baseline, donor.min_saving_ms)
        option = candidate.ranked(*figures)
        (options.worthwhile if enough else options.others).append(option)


WAITING_OPTIONS_MAX = 16
"""The most options that a plan to wait shows; a policy may decide so very often."""


class DoNothing(NamedTuple):
    """The evaluated option to do nothing. It sorts before every option with the same figures."""

    first_ms: int
    """The figure that decides."""
    second_ms: int


@dataclass(frozen=True)
class Ranking:
    """The options that reshape running jobs."""

    best: RankedOption | None = None
    """The best option; with ``must_save``, the best of those that save enough."""
    direct: list[RankedOption] = field(default_factory=list)
    """All options that needed no list schedule of their own."""
    scheduled: list[RankedOption] = field(default_factory=list)
    """The options that were pending, as far as they could win."""
    count: int = 0
    """The number of all options; a pruned job counts once."""
    pruned: PrunedJobs | None = None
    """The pruned jobs, if the plan is explained and there are any."""

    @cached_property
    def shown(self) -> list[RankedOption]:
        """The options that a plan may show."""
        nearest = self.pruned.nearest() if self.pruned is not None else []
        shown = nsmallest(legal_moves.OPTIONS_MAX, self.direct + nearest)
        if self.best is not None and self.best not in shown and self.best not in self.scheduled:
            shown.append(self.best)
        return shown + self.scheduled


class Evaluation:
    """A comparison of options with the baseline: the best option that reshapes no running job."""

    def __init__(
        self,
        outlook: Outlook,
        min_saving_ms: Callable[[int], int],
        do_nothing_note: str,
        idle_starts: list[Candidate],
    ) -> None:
        """``idle_starts``: the options that reshape no running job; without any, to do nothing is
        the baseline. ``do_nothing_note`` names that option in a plan."""
        self.outlook = outlook
        self.explains = outlook.forecast.snapshot.explain
        """Whether the plan shows its options."""
        self._min_saving_ms = min_saving_ms
        self._do_nothing_note = do_nothing_note
        self.idle_starts = sorted([self.evaluate(candidate) for candidate in idle_starts])
        """The options that reshape no running job, the best first."""
        self.baseline: RankedOption | DoNothing = (
            self.idle_starts[0] if self.idle_starts else DoNothing(*outlook.without_change())
        )

    def evaluate(self, candidate: Candidate) -> RankedOption:
        """Evaluate a candidate."""
        return candidate.ranked(*self.outlook.evaluate(candidate.ends, candidate.changes))

    def saves_enough(self, option: RankedOption, reshaped: list[JobView]) -> bool:
        """Whether an option saves what the reshape of each of the ``reshaped`` jobs has to."""
        end_ms = self.outlook.forecast.end_ms
        min_saving = self._min_saving_ms(max([end_ms(job) for job in reshaped]))
        return saves_enough(*option[:2], self.baseline[:2], min_saving)

    def rank(self, options: EvaluatedOptions, *, must_save: bool) -> Ranking:
        """Find the best of the options; those that are pending are evaluated as far as they can
        win. With ``must_save``, only options that save enough can win."""
        direct = options.worthwhile + options.others
        best = min(options.worthwhile if must_save else direct, default=None)
        best, scheduled = self._evaluate_all(options.pending, must_save=must_save, best=best)
        return Ranking(best, direct, scheduled, options.count, options.pruned)

    def rank_candidates(self, options: list[Candidate], *, must_save: bool) -> Ranking:
        """Find the best of candidates, which are evaluated as far as they can win."""
        best, evaluated = self._evaluate_all(options, must_save=must_save, best=None)
        return Ranking(best, [], evaluated, len(evaluated))

    def _evaluate_all(
        self, options: list[Candidate], *, must_save: bool, best: RankedOption | None
    ) -> tuple[RankedOption | None, list[RankedOption]]:
        """Evaluate the candidates that can beat ``best``; return the best option and the evaluated
        ones.

        Candidates that keep the schedule of the queue come first. The others follow in the order
        of their lower bounds, until the next bound is worse than the best option so far: then
        every further candidate is worse as well.
        """
        evaluated: list[RankedOption] = []
        bounds: list[tuple[RankedOption, Candidate]] = []
        for candidate in options:
            if self.outlook.keeps_schedule(candidate.changes):
                best = self._better(candidate, evaluated, best, must_save=must_save)
            else:
                bound = self.outlook.lower_bound(candidate.ends, candidate.changes)
                bounds.append((candidate.ranked(*bound), candidate))
        for at_best, candidate in sorted(bounds, key=lambda pair: pair[0]):
            if best is not None and at_best[:2] > best[:2]:
                break
            if not must_save or self.saves_enough(at_best, candidate.reshaped):
                best = self._better(candidate, evaluated, best, must_save=must_save)
        return best, evaluated

    def _better(
        self,
        candidate: Candidate,
        evaluated: list[RankedOption],
        best: RankedOption | None,
        *,
        must_save: bool,
    ) -> RankedOption | None:
        """Evaluate a candidate, add it to ``evaluated``, and return the better of it and
        ``best``."""
        option = self.evaluate(candidate)
        evaluated.append(option)
        if best is not None and option >= best:
            return best
        return option if not must_save or self.saves_enough(option, candidate.reshaped) else best

    def option_of(self, entry: RankedOption | DoNothing) -> Option:
        """Return an option in the form in which a plan shows it."""
        objective = self.outlook.forecast.rules.objective
        makespan_ms, total_ms = objective.in_order(*entry[:2])
        makespan_s, total_s = makespan_ms / 1000, total_ms / 1000
        if isinstance(entry, DoNothing):
            return Option((), makespan_s, self._do_nothing_note, total_s)
        forecast = self.outlook.forecast
        reshaped = [forecast.running(donor) for donor, _ in entry.shrinks]
        if not reshaped and entry.job in forecast.running_index.by_job:
            reshaped = [forecast.running(entry.job)]
        is_better = bool(reshaped) and entry[:2] < self.baseline[:2]
        too_little = is_better and not self.saves_enough(entry, reshaped)
        refused = "saves too little time" if too_little else ""
        return Option(entry.targets, makespan_s, "", total_s, refused)

    def plan(
        self, code: str, job: JobView, chosen: RankedOption, ranking: Ranking, count: int
    ) -> Plan:
        """Return the plan that takes ``chosen``, an option of ``job``. ``ranking``: the options
        that reshape running jobs; ``count``: the number of all options."""
        options, number = self._shown_with(chosen, ranking) if self.explains else ((), None)
        text = ""
        if self.explains:
            waits = isinstance(self.baseline, DoNothing) and not job.size
            text = text_of(self.outlook.forecast, job, chosen, self.baseline[:2], waits=waits)
        return Plan(chosen.targets, code, text, job.id, options, number, count)

    def _shown_with(self, chosen: RankedOption, ranking: Ranking) -> tuple[tuple[Option, ...], int]:
        """The options that the plan shows, and the position of ``chosen`` among them. The baseline
        and ``chosen`` are always there."""
        ranked: list[RankedOption | DoNothing] = sorted(
            [self.baseline, *self.idle_starts[1:], *ranking.shown]
        )
        shown = ranked[: legal_moves.OPTIONS_MAX]
        missing = []
        for entry in (self.baseline, chosen) if chosen != self.baseline else (chosen,):
            if entry not in shown:
                missing.append(entry)
        shown = ranked[: legal_moves.OPTIONS_MAX - len(missing)] + missing
        return tuple(self.option_of(entry) for entry in shown), shown.index(chosen)

    def waiting_options(self, ranking: Ranking) -> tuple[Option, ...]:
        """Return the options that a plan without targets shows."""
        if not self.explains:
            return ()
        ranked = sorted([self.baseline, *ranking.shown])
        return tuple(map(self.option_of, ranked[:WAITING_OPTIONS_MAX]))
