"""A decision of ``adaptive``: of all single changes possible now, the best one by the given rules.

Does: compares each option by the predicted ends of all accepted jobs (``forecast``); to do nothing
and to wait are options as well. An option that reshapes a running job has to save enough. Jobs that
wait too long come first. Costs count once: they are part of the predicted times.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from heapq import nsmallest

from reshape_controller.core.fast_replace import replace
from reshape_controller.core.model import Mechanism, Spans
from reshape_controller.core.phrases import gpus
from reshape_controller.core.plan import HostView, JobView, Plan, Preemption, Snapshot, Target
from reshape_controller.core.states import PreemptionReason
from reshape_controller.scheduling import (
    candidates,
    gang_moves,
    gang_options,
    gang_start,
    legal_moves,
    outranking,
    unknown_length,
)
from reshape_controller.scheduling.alone import AloneTimes
from reshape_controller.scheduling.bounds import DonorBounds, GrowthBounds
from reshape_controller.scheduling.candidates import Candidate
from reshape_controller.scheduling.cluster_index import RunningEntry
from reshape_controller.scheduling.donors import Donors
from reshape_controller.scheduling.empty_plan import EmptyPlanBuilder
from reshape_controller.scheduling.evaluation import (
    DoNothing,
    Evaluation,
    Ranking,
    evaluate_growths,
    evaluate_shrinks,
)
from reshape_controller.scheduling.forecast import Forecast
from reshape_controller.scheduling.only_option import only_option
from reshape_controller.scheduling.predictor import Predictor
from reshape_controller.scheduling.queue_turns import ids_of, turn_text
from reshape_controller.scheduling.ratio_preemption import RatioPreemption, ratio_text
from reshape_controller.scheduling.rules import QueueOrder, Rules

NEWCOMERS_MAX = 4
"""For so many queued jobs a decision evaluates options that reshape running jobs. The others are
started on idle GPUs only."""
EXAMINED_MAX = 32
"""So many queued jobs, in queue order, are examined to find these newcomers."""
UNKNOWN_GROWS_AFTER_S = 300.0
"""A job of unknown length has its size for so long before it gets idle GPUs."""
HOSTS_MAX = 16
"""On so many hosts several donors are tried for a newcomer that is not overdue."""


class Decision:
    """One call of ``decide``."""

    def __init__(self, rules: Rules, snapshot: Snapshot) -> None:
        self._rules = rules
        self._snapshot = snapshot
        self._predictor = Predictor(snapshot)
        self._hosts = list(snapshot.hosts)
        """The hosts that are not held for an overdue job."""
        self._idle = list(snapshot.idle)
        """Those of ``_hosts`` with idle GPUs."""
        self._most_idle = legal_moves.most_idle(self._idle)
        self._empty = EmptyPlanBuilder(snapshot.now_s)
        self._newcomers = 0
        """Queued jobs for which options that reshape running jobs were evaluated."""
        self._examined = 0
        """Queued jobs that were examined to find these."""
        self._outranking = 0
        """Queued jobs that were examined to start at the cost of jobs of lower priority."""
        self._fitting: dict[tuple[object, ...], bool] = {}
        """Whether a job that may span fits on idle GPUs, by what that depends on."""
        self._cooling = self._find_cooling() if snapshot.queued else []

    def make(self) -> Plan:
        """Return the plan: the first step that finds one decides."""
        plan = self._start_overdue() or self._start_in_time() or self._start_by_ratio()
        plan = plan or self._grow() or self._grow_unknown_length()
        return plan if plan is not None else self._empty.build()

    def _start_overdue(self) -> Plan | None:
        """Start a queued job that has waited too long, or hold GPUs for it."""
        snapshot = self._snapshot
        if not snapshot.queued:
            return None
        turns = self._forecast.turns
        self._empty.wake(turns.next_overdue_s)
        for newcomer in turns.overdue:
            if self._is_all_held():
                break
            if legal_moves.may_start(snapshot, newcomer):
                plan = self._start(newcomer, overdue=True) or self._start_outranking(newcomer)
                plan = plan or self._start_before_equals(newcomer)
                if plan is not None:
                    return plan
                self._hold(newcomer)
        return None

    def _start_in_time(self) -> Plan | None:
        """Start one of the other queued jobs, in the order of their turns."""
        snapshot, default_wait_s = self._snapshot, self._rules.max_wait_s
        if self._is_all_held():
            self._empty.set_looked_up_to(snapshot.queued[-1], default_wait_s)
            return None
        if not snapshot.queued:
            return None
        overdue = ids_of(self._forecast.turns.overdue)
        for newcomer in self._forecast.turns.jobs:
            if newcomer.id in overdue or not legal_moves.may_start(snapshot, newcomer):
                continue
            outranks = self._may_outrank(newcomer)
            if not outranks and self._can_only_wait(newcomer):
                if self._most_idle == 0:  # then all jobs behind it can only wait as well
                    if self._comes_last or self._donors.max_gpus == 0:
                        self._empty.set_looked_up_to(newcomer, default_wait_s)
                    break
                continue
            plan = self._start(newcomer, overdue=False)
            if plan is None and outranks:
                plan = self._start_outranking(newcomer)
            if plan is not None:
                return plan
        return None

    @property
    def _comes_last(self) -> bool:
        """Whether a job that is queued now has its turn behind all others of its priority."""
        rules = self._rules
        return rules.queue_order is not QueueOrder.SHORTEST and not rules.critical_first

    def _may_outrank(self, newcomer: JobView) -> bool:
        """Whether starts at the cost of jobs of lower priority are examined for a queued job."""
        snapshot = self._snapshot
        if snapshot.mechanism is Mechanism.NONE or self._outranking >= NEWCOMERS_MAX:
            return False
        return outranking.outranks(snapshot, newcomer)

    def _start_outranking(self, newcomer: JobView) -> Plan | None:
        """Start a queued job at the cost of running jobs of lower priority: by shrinks if they are
        enough, or else by preemption. No such start has to save time."""
        snapshot = self._snapshot
        if not self._may_outrank(newcomer):
            return None
        self._outranking += 1
        hosts = self._hosts_for(newcomer)
        code, preemption = "shrinks-for-priority", None
        start = outranking.shrink_start(self._forecast, newcomer, hosts, self._donors)
        if start is None:
            start, at_s = outranking.preempting_start(
                snapshot, newcomer, hosts, gangs=self._rules.gangs
            )
            self._empty.wake(at_s)
            code = "preempts-for-priority"
            preemption = Preemption(PreemptionReason.PRIORITY)
        if start is None:
            return None
        text = outranking.text(newcomer, start)
        return only_option(start.targets(newcomer), code, text, newcomer.id, preemption)

    def _start_before_equals(self, newcomer: JobView) -> Plan | None:
        """Start an overdue job in the place of jobs of its own priority, if that is asked for."""
        snapshot = self._snapshot
        if not self._rules.preempts_overdue or snapshot.mechanism is Mechanism.NONE:
            return None
        start, at_s = outranking.equal_start(self._forecast, newcomer, self._hosts_for(newcomer))
        self._empty.wake(at_s)
        if start is None:
            return None
        text = outranking.equal_text(newcomer, start, snapshot.now_s)
        preemption = Preemption(PreemptionReason.OVERDUE)
        code = "preempts-for-overdue"
        return only_option(start.targets(newcomer), code, text, newcomer.id, preemption)

    def _start_by_ratio(self) -> Plan | None:
        """Start a queued job that waits far longer than it trains in the place of a running one,
        if that is asked for."""
        snapshot = self._snapshot
        if not self._rules.preempts_by_ratio or snapshot.mechanism is Mechanism.NONE:
            return None
        jobs = self._forecast.turns.jobs[:EXAMINED_MAX] if snapshot.queued else ()
        alone = AloneTimes(snapshot, self._predictor)
        by_ratio = RatioPreemption(snapshot, self._predictor, alone)
        for newcomer in jobs:
            if not legal_moves.may_start(snapshot, newcomer):
                continue
            hosts = self._hosts_for(newcomer)
            start, at_s = by_ratio.start(newcomer, hosts)
            self._empty.wake(at_s)
            if start is not None:
                code, text = "preempts-by-ratio", ratio_text(newcomer, start)
                preemption = Preemption(PreemptionReason.RATIO)
                return only_option(start.targets(newcomer), code, text, newcomer.id, preemption)
        return None

    def _is_all_held(self) -> bool:
        """Whether all hosts are held for overdue jobs, and the plan has its reason."""
        return not self._hosts and self._empty.has_reason

    def _can_only_wait(self, newcomer: JobView) -> bool:
        """Whether a queued job can be skipped: it fits on no idle GPUs, no donor may be examined
        for it, and the plan already has a reason."""
        if not self._empty.has_reason or self._fits(newcomer):
            return False
        enough = self._examined >= EXAMINED_MAX or self._newcomers >= NEWCOMERS_MAX
        return enough or (self._most_idle == 0 and self._donors.max_gpus == 0)

    def _start(self, newcomer: JobView, *, overdue: bool) -> Plan | None:
        """Evaluate every way to start a queued job; None: it waits."""
        fits = self._fits(newcomer)
        reshapes = self._may_reshape(newcomer, always=overdue or fits)
        if not fits and not reshapes:
            self._empty.add_nothing_fits(newcomer, spans=self._spans(newcomer))
            return None
        hosts = self._hosts_for(newcomer)
        idle_hosts = self._idle if hosts is self._hosts else [host for host in hosts if host.idle]
        idle = list(self._idle_starts(newcomer, idle_hosts)) if fits else []
        outlook = self._forecast.outlook(newcomer)
        evaluation = Evaluation(outlook, self._rules.min_saving_ms, "wait", idle)
        ranking = Ranking()
        if reshapes:
            ranking = self._rank_shrinks(evaluation, newcomer, hosts, overdue=overdue)
        if not idle and not ranking.count:
            self._empty.add_nothing_fits(newcomer, spans=self._spans(newcomer))
            return None
        better = [] if ranking.best is None else [ranking.best]
        if overdue:
            better += evaluation.idle_starts
        chosen = min(better, default=evaluation.baseline)
        count = ranking.count + max(1, len(idle))
        if isinstance(chosen, DoNothing):
            text = f"{newcomer.spec.name} waits for GPUs: no reshape would save enough time"
            self._add_waiting(newcomer, "waits-gain-too-small", text, evaluation, ranking, count)
            return None
        code = "starts-on-idle"
        if chosen.shrinks:
            code = "shrinks-for-overdue" if overdue else "shrinks-for-newcomer"
        plan = evaluation.plan(code, newcomer, chosen, ranking, count)
        return replace(plan, text=plan.text + self._turn_text(newcomer)) if plan.text else plan

    def _spans(self, newcomer: JobView) -> bool:
        """Whether starts of a queued job on several hosts are options."""
        return newcomer.spec.span is not Spans.NEVER and self._rules.gangs

    def _fits(self, newcomer: JobView) -> bool:
        """Whether the idle GPUs that are not held could be enough for a queued job."""
        if newcomer.sizes[0] <= self._most_idle:
            return True
        if not self._most_idle or not self._spans(newcomer):
            return False
        own = newcomer.id if newcomer.initialized or newcomer.unfit_on else None
        spec = newcomer.spec
        key = (own, newcomer.sizes, spec.workers, spec.span, spec.placement, newcomer.only_host)
        if key not in self._fitting:
            hosts = self._hosts_for(newcomer)
            self._fitting[key] = bool(gang_start.starts(self._snapshot, newcomer, hosts))
        return self._fitting[key]

    def _idle_starts(self, newcomer: JobView, hosts: list[HostView]) -> Iterator[Candidate]:
        """The starts of a queued job on idle GPUs."""
        if self._spans(newcomer):
            return gang_options.idle_starts(self._forecast, newcomer, hosts)
        return candidates.idle_starts(self._forecast, newcomer, hosts)

    def _turn_text(self, newcomer: JobView) -> str:
        """Why a queued job has its turn before others; empty if the order of the queue says it."""
        snapshot = self._snapshot
        if self._rules.queue_order is QueueOrder.PLACE or len(snapshot.queued) < 2:
            return ""
        return turn_text(snapshot, self._predictor, self._forecast.turns, newcomer)

    def _hosts_for(self, newcomer: JobView) -> list[HostView]:
        """The hosts on which a queued job may start and that are not held."""
        find = gang_start.hosts_for if self._spans(newcomer) else legal_moves.hosts_for
        own = find(self._snapshot, newcomer)
        if own is self._snapshot.hosts:
            return self._hosts
        return [host for host in self._hosts if host in own]

    def _may_reshape(self, newcomer: JobView, *, always: bool) -> bool:
        """Whether options that reshape running jobs are evaluated for this newcomer."""
        if self._snapshot.mechanism is Mechanism.NONE or not self._hosts:
            return False
        if always:
            return True
        least, donors = newcomer.sizes[0], self._donors
        if self._examined >= EXAMINED_MAX:
            return False
        if (least > donors.max_gpus and least > donors.max_gpus_of_several) and not (
            self._spans(newcomer) and donors.can_make_rooms(newcomer, self._hosts_for(newcomer))
        ):
            return False
        self._examined += 1
        return self._newcomers < NEWCOMERS_MAX

    def _rank_shrinks(
        self, evaluation: Evaluation, newcomer: JobView, hosts: list[HostView], *, overdue: bool
    ) -> Ranking:
        """Rank the starts that take GPUs from running jobs. A job that no single donor can serve
        may have several. No start of an overdue job has to save anything."""
        baseline = evaluation.baseline[:2]
        options = evaluate_shrinks(
            evaluation.outlook, newcomer, hosts, self._donor_bounds, baseline, prune=not overdue
        )
        options.pending += self._gang_starts(newcomer, hosts, overdue=overdue)
        if isinstance(evaluation.baseline, DoNothing) and not options.count:
            several = self._several_donors_starts(newcomer, hosts, overdue=overdue)
            self._newcomers += bool(several)
            return evaluation.rank_candidates(several, must_save=not overdue)
        self._newcomers += bool(options.count)
        return evaluation.rank(options, must_save=not overdue)

    def _gang_starts(
        self, newcomer: JobView, hosts: list[HostView], *, overdue: bool
    ) -> list[Candidate]:
        """The starts for which a gang shrinks, and those on several hosts for which one job
        does."""
        gangs, spans = self._donors.gangs, self._spans(newcomer)
        if not gangs and not spans:
            return []
        donors = self._donors.on_hosts(hosts) if spans else []
        if not overdue:
            gangs = gang_options.cheapest(self._forecast, newcomer, gangs)
        return list(gang_options.donor_starts(self._forecast, newcomer, hosts, donors, gangs))

    def _several_donors_starts(
        self, newcomer: JobView, hosts: list[HostView], *, overdue: bool
    ) -> list[Candidate]:
        """The starts for which several jobs shrink."""
        tried, donors = hosts if overdue else _with_most_idle(hosts), self._donors
        found = list(candidates.multi_donor_starts(self._forecast, newcomer, tried, donors.by_host))
        if self._spans(newcomer):
            jobs = [*donors.gangs, *donors.on_hosts(hosts)]
            found += gang_options.several_donors_starts(self._forecast, newcomer, hosts, jobs)
        return found

    def _grow(self) -> Plan | None:
        """Give idle GPUs that no queued job can use to a running job, if that saves enough."""
        if self._most_idle == 0 or self._no_job_grows():
            return None
        outlook = self._forecast.outlook()
        evaluation = Evaluation(
            outlook, self._rules.min_saving_ms, "change nothing", idle_starts=[]
        )
        pinned = [job for job in self._growing_gangs if job.pinned]
        for job in (*legal_moves.pinned(self._snapshot), *pinned):
            plan = self._grow_to_pin(evaluation, job)
            if plan is not None:
                return plan
        options = evaluate_growths(outlook, self._idle, self._growth, evaluation.baseline[:2])
        options.pending += gang_options.growths(self._forecast, self._growing_gangs, self._idle)
        options.pending += [gang_options.move(self._forecast, move) for move in self._gang_moves]
        ranking = evaluation.rank(options, must_save=True)
        if ranking.best is not None:
            job = self._forecast.running(ranking.best.job)
            code = "grows" if ranking.best.stays(job) else "moves"
            return evaluation.plan(code, job, ranking.best, ranking, options.count + 1)
        shown = ranking.shown if evaluation.explains else []
        if shown:
            text = "GPUs stay idle: no running job would gain enough from them"
            job = self._forecast.running(min(shown).job)
            self._add_waiting(job, "keeps-sizes", text, evaluation, ranking, options.count + 1)
        return None

    def _grow_unknown_length(self) -> Plan | None:
        """Give idle GPUs that no queued job wants to a job of unknown length."""
        if self._most_idle == 0:
            return None
        target, at_s = unknown_length.growth(
            self._snapshot,
            [*self._growth.unknown_length, *(g for g in self._growing_gangs if not g.growable)],
            self._idle,
            UNKNOWN_GROWS_AFTER_S,
        )
        self._empty.wake(at_s)
        if target is None:
            return None
        job = self._forecast.running(target.job)
        text = (
            f"{job.spec.name} grows from {job.size} to {gpus(target.size)}: its length is unknown, "
            "and no queued job wants them."
        )
        return only_option((target,), "grows-length-unknown", text, job.id)

    def _no_job_grows(self) -> bool:
        """Whether the bounds alone show that no job grows. If the plan is explained, it has to say
        how far off the jobs are, so the answer is False."""
        snapshot = self._snapshot
        if snapshot.explain or snapshot.queued:
            return False
        growth = self._growth
        alone = growth.any_pinned or growth.candidates
        return not (alone or self._growing_gangs or self._gang_moves)

    def _grow_to_pin(self, evaluation: Evaluation, job: JobView) -> Plan | None:
        """Give a pinned job its size as soon as enough GPUs are idle on its host, or hosts."""
        size = job.sizes[-1] if job.sizes else 0
        if size not in gang_moves.growth_sizes(job, {host.id: host for host in self._idle}):
            return None
        option = evaluation.evaluate(gang_options.grow(self._forecast, job, size))
        return evaluation.plan("grows-to-pin", job, option, Ranking(best=option), 2)

    @cached_property
    def _growing_gangs(self) -> list[JobView]:
        """The gangs for which each of their hosts has idle GPUs."""
        by_id = {host.id: host for host in self._idle}
        gangs = self._growth.may_span if self._rules.gangs else []
        return [job for job in gangs if job.shares and gang_moves.growth_sizes(job, by_id)]

    @cached_property
    def _gang_moves(self) -> list[Target]:
        """The moves of running jobs to several hosts."""
        jobs = self._growth.may_span if self._rules.gangs else []
        return gang_options.move_targets(self._snapshot, jobs, self._hosts)

    def _find_cooling(self) -> list[RunningEntry]:
        """The running jobs that were reshaped, or refused to be, and may not be shrunk yet."""
        now_s, cooling, index = self._snapshot.now_s, [], self._forecast.running_index
        for entry in (*index.maybe_cooling.values(), *index.gangs.values()):
            job = entry.job
            at_s = job.no_shrink_before_s
            if at_s <= now_s and job.reshaped_at_s is not None:
                at_s = self._cool_at_s(job, job.reshaped_at_s)
            if at_s > now_s:
                self._empty.wake(at_s)
                cooling.append(entry)
        return cooling

    def _cool_at_s(self, job: JobView, reshaped_at_s: float) -> float:
        """When a job that was reshaped may be shrunk again (Unix seconds)."""
        cost_s = job.reshape_cost_s
        if cost_s is None:
            cost_s = self._predictor.reshape_s(job)
        return reshaped_at_s + self._rules.cool_down * cost_s

    @cached_property
    def _forecast(self) -> Forecast:
        return Forecast(self._snapshot, self._predictor, self._rules)

    @cached_property
    def _growth(self) -> GrowthBounds:
        rules = self._rules
        return GrowthBounds(self._snapshot, self._predictor, rules.min_saving_ms, rules)

    @cached_property
    def _donors(self) -> Donors:
        rules, gangs = self._rules, list[JobView]()
        if rules.gangs and self._forecast.running_index.gangs:
            cooling = ids_of([entry.job for entry in self._cooling])
            entries = self._forecast.running_index.gangs.values()
            gangs = [entry.job for entry in entries if entry.job.id not in cooling]
            gangs = gang_moves.donors(self._snapshot, gangs)
        return Donors(self._forecast, self._cooling, rules.min_saving_ms, gangs)

    @cached_property
    def _donor_bounds(self) -> DonorBounds:
        return DonorBounds(self._donors)

    def _hold(self, newcomer: JobView) -> None:
        """Hold the hosts on which an overdue job could start: no other job gets their GPUs."""
        own, least = self._hosts_for(newcomer), newcomer.sizes[0]
        if self._spans(newcomer) and gang_start.may_span(newcomer):
            least //= newcomer.spec.workers
        held = {host.id for host in own if host.usable >= least}
        others = [host for host in self._hosts if host.id not in held]
        if len(others) < len(self._hosts):
            self._empty.add_held_for(newcomer, sum([host.idle for host in own if host.id in held]))
        self._hosts = others
        self._fitting.clear()
        self._idle = [host for host in self._idle if host.id not in held]
        self._most_idle = legal_moves.most_idle(self._idle)

    def _add_waiting(
        self,
        job: JobView,
        code: str,
        text: str,
        evaluation: Evaluation,
        ranking: Ranking,
        count: int,
    ) -> None:
        """Give the empty plan a reason with options, if it has none yet."""
        if not self._empty.has_reason:
            options = evaluation.waiting_options(ranking)
            self._empty.set_reason(Plan((), code, text, job.id, options, weighed=count))


def _with_most_idle(hosts: list[HostView]) -> list[HostView]:
    """Return the hosts whose idle GPUs leave fewest to several donors; at most ``HOSTS_MAX``."""
    if len(hosts) <= HOSTS_MAX:
        return hosts
    return nsmallest(HOSTS_MAX, hosts, key=lambda host: (-host.idle, host.id))
