"""Our scheduler: of everything that can be done now, what lets all accepted jobs end earliest.

Does: weighs each option by the makespan over all accepted jobs (``scheduling.forecast``), doing
nothing and queueing among them; takes an option that reshapes a running job only if it is worth it,
and looks after jobs that wait too long. docs/policies.md has the rules, docs/decisions/0010 the
reasons. Never: counts a cost twice (costs are in the predicted times). State: none.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from math import inf

from reshape_controller.core.explanation import gpus
from reshape_controller.core.model import JobId, Mechanism
from reshape_controller.core.plan import HostView, JobView, Plan, Snapshot
from reshape_controller.scheduling import candidates, legal_moves
from reshape_controller.scheduling.cluster_index import is_overdue
from reshape_controller.scheduling.donors import Donors
from reshape_controller.scheduling.evaluation import (
    Evaluated,
    Evaluation,
    Nothing,
    evaluate_growths,
    evaluate_shrinks,
)
from reshape_controller.scheduling.forecast import Forecast
from reshape_controller.scheduling.growth import Growth
from reshape_controller.scheduling.predictor import Predictor
from reshape_controller.scheduling.running_classes import RunningEntry

HOLDS = "holds-for-overdue"


class EmptyPlan:
    """Made up while a decision looks for something better."""

    def __init__(self, now_s: float) -> None:
        self._now_s = now_s
        self._plan = Plan()
        self._wake_at_s = inf
        self._looked_up_to: JobId | None = None

    @property
    def says_why(self) -> bool:
        """Whether somebody was named who waits."""
        return self._plan.about is not None

    def made(self) -> Plan:
        """The plan."""
        wake_at_s = None if self._wake_at_s == inf else self._wake_at_s
        return replace(self._plan, wake_at_s=wake_at_s, looked_up_to=self._looked_up_to)

    def wake(self, at_s: float) -> None:
        """Something may be other than now at this time."""
        if at_s > self._now_s:
            self._wake_at_s = min(self._wake_at_s, at_s)

    def looked_up_to(self, job: JobView, usual_wait_s: float) -> None:
        """Whoever stands behind this job would not be looked at; if this is asked again before
        somebody who comes now would have waited for ``usual_wait_s``."""
        if self._wake_at_s <= self._now_s + usual_wait_s:
            self._looked_up_to = job.id

    def because(self, plan: Plan) -> None:
        """This is why; the first reason counts, so ask before whether it ``says_why``."""
        self._plan = plan

    def nothing_fits(self, newcomer: JobView) -> None:
        """Nobody can give the newcomer what it needs."""
        if not self.says_why:
            text = (
                f"{newcomer.spec.name} waits: no usable host has the {gpus(newcomer.sizes[0])} "
                "that it needs at least, idle or taken from one running job"
            )
            self.because(Plan((), "waits-nothing-fits", text, newcomer.id))

    def is_kept_for(self, newcomer: JobView) -> None:
        """GPUs are kept for somebody who waited too long, which comes before other reasons."""
        if self._plan.reason_code != HOLDS:
            text = f"{newcomer.spec.name} waited past max_wait_s: idle GPUs are reserved for it"
            self.because(Plan((), HOLDS, text, newcomer.id))


GAIN = 0.05
"""A reshape has to save this part of the remaining time of the job that is reshaped."""
COOL_DOWN = 5.0
"""A job that was reshaped is not shrunk for so many times what that cost."""
MAX_WAIT_S = 3600.0
"""A queued job without a ``max_wait_s`` of its own is started at any price after so long."""
NEWCOMERS_MAX = 4
"""Queued jobs for which running ones may be reshaped are looked for among the first so many that
could get GPUs in this way; all others are started on idle GPUs only."""
LOOKED_MAX = 32
"""And so many are looked at, in queue order, to find these."""


class Adaptive:
    """Holds its three settings and nothing else; the name has those that are not the usual."""

    def __init__(
        self,
        gain: float | str = GAIN,
        cool_down: float | str = COOL_DOWN,
        max_wait_s: float | str = MAX_WAIT_S,
    ) -> None:
        """Settings are numbers, or the text of one. Raises ValueError."""
        values = {
            "gain": float(gain),
            "cool_down": float(cool_down),
            "max_wait_s": float(max_wait_s),
        }
        if not all(0.0 <= value < math.inf for value in values.values()) or values["gain"] >= 1.0:
            raise ValueError(
                "gain must lie between 0 and 1; cool_down and max_wait_s must be 0 or more"
            )
        self._gain_ppm = round(values["gain"] * 1e6)
        self._cool_down, self.max_wait_s = values["cool_down"], values["max_wait_s"]
        usual = {"gain": GAIN, "cool_down": COOL_DOWN, "max_wait_s": MAX_WAIT_S}
        changed = [f"{name}={value:.12g}" for name, value in values.items() if value != usual[name]]
        self.name = ":".join(["adaptive", ",".join(changed)] if changed else ["adaptive"])

    def decide(self, snapshot: Snapshot) -> Plan:
        """The next single decision."""
        return _Decision(self, snapshot).make()

    def least_ms(self, left_ms: int) -> int:
        """What a reshape of a job with ``left_ms`` to go has to save."""
        return -(-self._gain_ppm * left_ms // 1_000_000) or 1

    def cool_at_s(self, predictor: Predictor, job: JobView) -> float:
        """Until when a job that was reshaped may not be shrunk again."""
        assert job.reshaped_at_s is not None
        cost_s = job.reshape_cost_s
        if cost_s is None:
            cost_s = predictor.reshape_s(job)
        return job.reshaped_at_s + self._cool_down * cost_s


class _Decision:
    """One call of ``decide``."""

    def __init__(self, policy: Adaptive, snapshot: Snapshot) -> None:
        self._policy = policy
        self._snapshot = snapshot
        self._predictor = Predictor(snapshot)
        self._hosts, self._idle = list(snapshot.hosts), list(snapshot.idle)
        """Hosts that are not held for somebody, and those of them with idle GPUs."""
        self._most_idle = legal_moves.most_idle(self._idle)
        self._empty = EmptyPlan(snapshot.now_s)
        self._weighed_for = 0
        self._looked_for = 0
        self._excluded = self._cooling() if snapshot.queued else []

    def make(self) -> Plan:
        plan = self._start_overdue() or self._start_in_time() or self._grow()
        return plan if plan is not None else self._empty.made()

    def _start_overdue(self) -> Plan | None:
        """Queued jobs that waited too long come first."""
        snapshot, usual_s = self._snapshot, self._policy.max_wait_s
        if not snapshot.queued:
            return None
        waits = self._forecast.queue_index
        self._empty.wake(waits.next_s(snapshot.now_s, usual_s))
        for newcomer in waits.overdue(snapshot.queued, snapshot.now_s, usual_s):
            if self._all_is_kept():
                break
            if legal_moves.may_start(snapshot, newcomer):
                plan = self._start(newcomer, overdue=True)
                if plan is not None:
                    return plan
                self._hold(newcomer)
        return None

    def _start_in_time(self) -> Plan | None:
        """The others in queue order."""
        seen, usual_s = self._snapshot, self._policy.max_wait_s
        if self._all_is_kept():
            self._empty.looked_up_to(seen.queued[-1], usual_s)
            return None
        for newcomer in seen.queued:
            if is_overdue(newcomer, seen.now_s, usual_s) or not legal_moves.may_start(
                seen, newcomer
            ):
                continue
            if self._can_only_wait(newcomer):
                if self._most_idle == 0:
                    self._empty.looked_up_to(newcomer, usual_s)  # and so can all behind it
                    break
                continue
            plan = self._start(newcomer, overdue=False)
            if plan is not None:
                return plan
        return None

    def _all_is_kept(self) -> bool:
        """Whether nobody else can start, and why was said."""
        return not self._hosts and self._empty.says_why

    def _can_only_wait(self, newcomer: JobView) -> bool:
        """Whether it fits nowhere, nobody gives GPUs or enough jobs were looked at, and why jobs
        wait was said."""
        if newcomer.sizes[0] <= self._most_idle or not self._empty.says_why:
            return False
        enough = self._looked_for >= LOOKED_MAX or self._weighed_for >= NEWCOMERS_MAX
        return enough or (self._most_idle == 0 and self._donors.most == 0)

    def _start(self, newcomer: JobView, *, overdue: bool) -> Plan | None:
        """Weigh every way to start a queued job; None: it waits."""
        fits = newcomer.sizes[0] <= self._most_idle
        reshapes = self._may_reshape(newcomer, always=overdue or fits)
        if not fits and not reshapes:
            self._empty.nothing_fits(newcomer)
            return None
        hosts = self._hosts_for(newcomer)
        beside = self._idle if hosts is self._hosts else [host for host in hosts if host.idle]
        idle = list(candidates.on_idle(self._forecast, newcomer, beside)) if fits else []
        outlook = self._forecast.outlook(newcomer)
        evaluation = Evaluation(outlook, self._policy.least_ms, "wait", idle)
        found = Evaluated()
        if reshapes:
            found = self._reshapes(evaluation, newcomer, hosts, overdue=overdue)
        if not idle and not found.count:
            self._empty.nothing_fits(newcomer)
            return None
        better = [] if found.best is None else [found.best]
        if overdue:
            better += evaluation.quiet
        chosen = min(better, default=evaluation.base)
        count = found.count + max(1, len(idle))
        if isinstance(chosen, Nothing):
            text = f"{newcomer.spec.name} waits for GPUs: no reshape would save enough time"
            self._waits(newcomer, "waits-gain-too-small", text, evaluation, found, count)
            return None
        code = "starts-on-idle"
        if chosen.shrinks:
            code = "shrinks-for-overdue" if overdue else "shrinks-for-newcomer"
        return evaluation.plan(code, newcomer, chosen, found, count)

    def _hosts_for(self, newcomer: JobView) -> list[HostView]:
        """Those on which it may start, of the hosts that are not held for somebody else."""
        own = legal_moves.hosts_for(self._snapshot, newcomer)
        if own is self._snapshot.hosts:
            return self._hosts
        return [host for host in self._hosts if host in own]

    def _may_reshape(self, newcomer: JobView, *, always: bool) -> bool:
        """Whether running jobs are looked at for this newcomer."""
        if self._snapshot.mechanism is Mechanism.NONE or not self._hosts:
            return False
        if always:
            return True
        if newcomer.sizes[0] > self._donors.most or self._looked_for >= LOOKED_MAX:
            return False
        self._looked_for += 1
        return self._weighed_for < NEWCOMERS_MAX

    def _reshapes(
        self, evaluation: Evaluation, newcomer: JobView, hosts: list[HostView], *, overdue: bool
    ) -> Evaluated:
        """Starts that take GPUs from running jobs."""
        base = evaluation.base[:2]
        swept = evaluate_shrinks(
            evaluation.outlook, newcomer, hosts, self._donors, base, gate=not overdue
        )
        if overdue and not swept.count and isinstance(evaluation.base, Nothing):
            several = candidates.from_several(self._forecast, newcomer, hosts, self._donors.by_host)
            return evaluation.best_of_all(list(several), gate=False)
        self._weighed_for += bool(swept.count)
        return evaluation.best_of(swept, gate=not overdue)

    def _grow(self) -> Plan | None:
        """Idle GPUs that nobody in the queue can use go to a running job, if it is worth it."""
        if self._most_idle == 0 or self._nobody_grows():
            return None
        outlook = self._forecast.outlook()
        evaluation = Evaluation(outlook, self._policy.least_ms, "change nothing", quiet=[])
        for job in legal_moves.pinned(self._snapshot):
            plan = self._pinned(evaluation, job)
            if plan is not None:
                return plan
        swept = evaluate_growths(outlook, self._idle, self._growth, evaluation.base[:2])
        found = evaluation.best_of(swept, gate=True)
        if found.best is not None:
            job = self._forecast.running(found.best.job)
            code = "grows" if found.best.host == job.host else "moves"
            return evaluation.plan(code, job, found.best, found, swept.count + 1)
        active = found.kept if evaluation.explained else []
        if active:
            text = "GPUs stay idle: no running job would gain enough from them"
            job = self._forecast.running(min(active).job)
            self._waits(job, "keeps-sizes", text, evaluation, found, swept.count + 1)
        return None

    def _nobody_grows(self) -> bool:
        """Whether that is plain without a forecast, and nobody asks how far off the jobs are."""
        snapshot = self._snapshot
        if snapshot.explained or snapshot.queued:
            return False
        return not (legal_moves.pinned(snapshot) or self._growth.near)

    def _pinned(self, evaluation: Evaluation, job: JobView) -> Plan | None:
        """A pinned job gets its size as soon as it is idle on its host."""
        host = next((host for host in self._idle if host.id == job.host), None)
        size = job.sizes[-1] if job.sizes else 0
        if host is None or not job.size < size <= job.size + host.idle:
            return None
        entry = evaluation.evaluate(candidates.grow(self._forecast, job, size, host))
        return evaluation.plan("grows-to-pin", job, entry, Evaluated(best=entry), 2)

    def _cooling(self) -> list[RunningEntry]:
        """Running jobs that were reshaped a short time ago, or refused to be."""
        reshaped = self._forecast.running_index.reshaped.values()
        return [entry for entry in reshaped if not self._is_cool(entry.job)]

    def _is_cool(self, job: JobView) -> bool:
        """Whether such a job may be shrunk again."""
        at_s = job.no_shrink_before_s
        if at_s <= self._snapshot.now_s and job.reshaped_at_s is not None:
            at_s = self._policy.cool_at_s(self._predictor, job)
        self._empty.wake(at_s)
        return at_s <= self._snapshot.now_s

    @cached_property
    def _forecast(self) -> Forecast:
        """Made when there is something to weigh."""
        return Forecast(self._snapshot, self._predictor)

    @cached_property
    def _growth(self) -> Growth:
        return Growth(self._snapshot, self._predictor, self._policy.least_ms)

    @cached_property
    def _donors(self) -> Donors:
        return Donors(self._forecast, self._excluded, self._policy.least_ms)

    def _hold(self, newcomer: JobView) -> None:
        """Nobody else gets GPUs of a host on which a job could start that waited too long."""
        own, least = legal_moves.hosts_for(self._snapshot, newcomer), newcomer.sizes[0]
        held = {host.id for host in own if host.usable >= least}
        kept = [host for host in self._hosts if host.id not in held]
        if len(kept) < len(self._hosts):
            self._empty.is_kept_for(newcomer)
        self._hosts = kept
        self._idle = [host for host in self._idle if host.id not in held]
        self._most_idle = legal_moves.most_idle(self._idle)

    def _waits(
        self,
        job: JobView,
        code: str,
        text: str,
        evaluation: Evaluation,
        found: Evaluated,
        count: int,
    ) -> None:
        """Remember why the first of those that wait does so."""
        if not self._empty.says_why:
            options = evaluation.waiting(found)
            self._empty.because(Plan((), code, text, job.id, options, weighed=count))
