"""Our scheduler: of everything that can be done now, what lets all accepted jobs end earliest.

Does: weighs each option by the makespan over all accepted jobs (core.forecast), doing nothing and
queueing among them; takes an option that reshapes a running job only if it is worth it, and looks
after jobs that wait too long. docs/policies.md has the rules, docs/decisions/0010 the reasons.
Never: counts a cost twice (costs are in the predicted times). State: none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from heapq import nsmallest

from reshape_controller.core import candidates, moves
from reshape_controller.core.candidates import Candidate
from reshape_controller.core.explain import duration, gpus
from reshape_controller.core.forecast import Forecast, Outlook
from reshape_controller.core.model import HostId, Mechanism
from reshape_controller.core.plan import HostView, JobView, Option, Plan, Snapshot
from reshape_controller.core.predictor import Predictor
from reshape_controller.core.sweep import rebuilt, sweep

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

WAITING_KEPT_MAX = 16
"""Options that are kept of a decision to wait; such a decision may be repeated often."""

Weighed = tuple[int, int, Candidate | None]
"""Makespan and sum of completion times (ms); None: wait."""


class Adaptive:
    """Holds its three settings and nothing else."""

    name = "adaptive"

    def __init__(
        self, gain: float = GAIN, cool_down: float = COOL_DOWN, max_wait_s: float = MAX_WAIT_S
    ) -> None:
        if not 0.0 <= gain < 1.0 or cool_down < 0.0 or max_wait_s < 0.0:
            raise ValueError("gain lies between 0 and 1; cool_down and max_wait_s are not negative")
        self._gain_ppm = round(gain * 1e6)
        self._cool_down = cool_down
        self._max_wait_s = max_wait_s

    def decide(self, snapshot: Snapshot) -> Plan:
        """The next single decision."""
        return _Decision(self, snapshot).make()

    def overdue_at_s(self, job: JobView) -> float:
        """When a queued job has waited too long."""
        own = job.spec.max_wait_s
        return job.submitted_at_s + (self._max_wait_s if own is None else own)

    def least_ms(self, left_ms: int) -> int:
        """What a reshape of a job with ``left_ms`` to go has to save."""
        return max(1, -(-self._gain_ppm * left_ms // 1_000_000))

    def worth(self, option: tuple[int, int], base: tuple[int, int], left_ms: int) -> bool:
        """Whether a reshape of a job with ``left_ms`` to go beats ``base``, which reshapes
        nobody, by enough: in the makespan, or in the sum while the makespan does not rise."""
        least = self.least_ms(left_ms)
        shorter, sooner = base[0] - option[0], base[1] - option[1]
        return shorter >= least or (shorter >= 0 and sooner >= least)

    def cool_at_s(self, predictor: Predictor, job: JobView) -> float:
        """Until when the job may not be shrunk again."""
        if job.reshaped_at_s is None:
            return 0.0
        cost_s = job.reshape_cost_s
        if cost_s is None:
            cost_s = predictor.reshape_s(job)
        return job.reshaped_at_s + self._cool_down * cost_s


class _Decision:
    """One call of ``decide``."""

    def __init__(self, policy: Adaptive, snapshot: Snapshot) -> None:
        self.policy = policy
        self.snapshot = snapshot
        self.forecast = Forecast(snapshot, Predictor(snapshot))
        self.hosts = list(snapshot.hosts)
        self.waits = Plan()
        self.wake_at_s = math.inf
        self._weighed_for = 0
        self._looked_for = 0
        self._most_from_one = 0
        self._nothing = "wait"
        self._donors: dict[HostId, list[JobView]] | None = None

    def make(self) -> Plan:
        now_s = self.snapshot.now_s
        overdue: list[JobView] = []
        in_time: list[JobView] = []
        for job in moves.startable(self.snapshot):
            (overdue if self.policy.overdue_at_s(job) <= now_s else in_time).append(job)
        for newcomer in overdue:
            plan = self._start(newcomer, overdue=True)
            if plan is not None:
                return plan
            self._hold(newcomer)
        for newcomer in in_time:
            self._wake(self.policy.overdue_at_s(newcomer))
            plan = self._start(newcomer, overdue=False)
            if plan is not None:
                return plan
        plan = self._grow()
        if plan is not None:
            return plan
        wake_at_s = None if math.isinf(self.wake_at_s) else self.wake_at_s
        return replace(self.waits, wake_at_s=wake_at_s)

    def _start(self, newcomer: JobView, *, overdue: bool) -> Plan | None:
        """Weigh every way to start a queued job; None: it waits."""
        fits = min(newcomer.sizes) <= max((host.idle for host in self.hosts), default=0)
        reshapes = self._may_reshape(newcomer, always=overdue or fits)
        if not fits and not reshapes:
            self._nothing_fits(newcomer)
            return None
        own = {host.id for host in moves.hosts_for(self.snapshot, newcomer)}
        hosts = [host for host in self.hosts if host.id in own]
        idle = list(candidates.on_idle(self.forecast, newcomer, hosts))
        outlook = self.forecast.outlook(newcomer.id)
        quiet = sorted((self._weighed(outlook, option) for option in idle), key=_rank)
        base: Weighed = quiet[0] if quiet else (*outlook.waits(), None)
        active, count = (
            self._reshapes(outlook, newcomer, hosts, base, overdue=overdue) if reshapes else ([], 0)
        )
        if not idle and not active and not count:
            self._nothing_fits(newcomer)
            return None
        better = [entry for entry in active if overdue or self._worth(entry, base)]
        if overdue:
            better += quiet
        ranked = sorted([base, *quiet[1:], *active], key=_rank)
        weighed = len(idle) + count + (not idle)
        chosen = min(better, key=_rank, default=base)
        if chosen[2] is None:
            text = f"{newcomer.spec.name} waits for GPUs: no reshape would save enough"
            self._waits(newcomer, "waits-gain-too-small", text, ranked, base, weighed)
            return None
        code = "starts-on-idle"
        if chosen[2].shrinks:
            code = "shrinks-for-overdue" if overdue else "shrinks-for-newcomer"
        return self._plan(code, chosen, ranked, base, weighed)

    def _may_reshape(self, newcomer: JobView, *, always: bool) -> bool:
        """Whether running jobs are looked at for this newcomer."""
        if self.snapshot.mechanism is Mechanism.NONE or not self.hosts:
            return False
        self._donors_now()
        if always:
            return True
        if min(newcomer.sizes) > self._most_from_one or self._looked_for >= LOOKED_MAX:
            return False
        self._looked_for += 1
        return self._weighed_for < NEWCOMERS_MAX

    def _reshapes(
        self,
        outlook: Outlook,
        newcomer: JobView,
        hosts: list[HostView],
        base: Weighed,
        *,
        overdue: bool,
    ) -> tuple[list[Weighed], int]:
        """Starts that take GPUs from running jobs: the best of them, and how many there are."""
        donors = self._donors_now()
        swept = sweep(outlook, newcomer, hosts, donors, self.policy.least_ms, base[:2])
        if overdue and not swept.count and base[2] is None:
            several = list(candidates.from_several(self.forecast, newcomer, hosts, donors))
            return self._weigh_all(outlook, several, base, gate=False), len(several)
        self._weighed_for += bool(swept.count)
        ranks = [*swept.worth, *swept.others]
        best = min(ranks if overdue else swept.worth, default=None)
        kept = nsmallest(moves.OPTIONS_KEPT_MAX, ranks)
        if best is not None and best not in kept:
            kept.append(best)
        active: list[Weighed] = [
            (rank[0], rank[1], rebuilt(self.forecast, newcomer, rank)) for rank in kept
        ]
        so_far = best[:2] if best is not None else None
        active += self._weigh_all(outlook, swept.costly, base, gate=not overdue, best=so_far)
        return active, swept.count

    def _weigh_all(
        self,
        outlook: Outlook,
        found: list[Candidate],
        base: Weighed,
        *,
        gate: bool,
        best: tuple[int, int] | None = None,
    ) -> list[Weighed]:
        """Weigh what can win against ``best``: first what is cheap to weigh; of the rest, in the
        order of what each could be at best, until none can beat the best so far. With ``gate``,
        only what saves enough can win."""
        done: list[Weighed] = []
        costly: list[tuple[int, int, Candidate]] = []

        def weigh(candidate: Candidate) -> None:
            nonlocal best
            entry = self._weighed(outlook, candidate)
            done.append(entry)
            if (best is None or entry[:2] < best) and (not gate or self._worth(entry, base)):
                best = entry[:2]

        for candidate in found:
            if outlook.known(candidate.changes):
                weigh(candidate)
            else:
                costly.append((*outlook.bound(candidate.ends, candidate.changes), candidate))
        for makespan, total, candidate in sorted(costly, key=_rank):
            if best is not None and (makespan, total) > best:
                break
            if not gate or self._worth((makespan, total, candidate), base):
                weigh(candidate)
        return done

    def _weighed(self, outlook: Outlook, candidate: Candidate) -> Weighed:
        return (*outlook.weigh(candidate.ends, candidate.changes), candidate)

    def _worth(self, entry: Weighed, base: Weighed) -> bool:
        candidate = entry[2]
        assert candidate is not None
        reshaped = [donor.id for donor, _ in candidate.shrinks] or [candidate.job.id]
        left_ms = max(self.forecast.ends_ms[job] for job in reshaped)
        return self.policy.worth(entry[:2], base[:2], left_ms)

    def _donors_now(self) -> dict[HostId, list[JobView]]:
        """Running jobs that may shrink and are not cooling down, by host."""
        if self._donors is None:
            self._donors = {}
            for host, jobs in moves.donors(self.snapshot).items():
                cool = self._donors[host] = []
                for job in jobs:
                    at_s = self.policy.cool_at_s(self.forecast.predictor, job)
                    if at_s <= self.snapshot.now_s:
                        cool.append(job)
                    else:
                        self._wake(at_s)
            for view in self.snapshot.hosts:
                gives = (job.size - min(job.sizes) for job in self._donors[view.id])
                self._most_from_one = max(self._most_from_one, view.idle + max(gives, default=0))
        return self._donors

    def _hold(self, newcomer: JobView) -> None:
        """Nobody else gets GPUs of a host on which a job could start that waited too long."""
        own = {host.id for host in moves.hosts_for(self.snapshot, newcomer)}
        least = min(newcomer.sizes)
        kept = [host for host in self.hosts if host.id not in own or host.usable < least]
        if len(kept) < len(self.hosts):
            text = f"{newcomer.spec.name} waited too long: GPUs that become idle are kept for it"
            if self.waits.reason_code != "holds-for-overdue":
                self.waits = Plan((), "holds-for-overdue", text, newcomer.id)
        self.hosts = kept

    def _grow(self) -> Plan | None:
        """Idle GPUs that nobody in the queue can use go to a running job, if it is worth it."""
        if all(host.idle == 0 for host in self.hosts):
            return None
        found = list(candidates.growths(self.forecast, self.hosts))
        if not found:
            return None
        self._nothing = "change nothing"
        outlook = self.forecast.outlook()
        base: Weighed = (*outlook.waits(), None)
        for candidate in found:
            if candidate.job.pinned and candidate.host == candidate.job.host:
                entry = self._weighed(outlook, candidate)
                return self._plan("grows-to-pin", entry, [entry, base], base, len(found) + 1)
        active = self._weigh_all(outlook, found, base, gate=True)
        better = [entry for entry in active if self._worth(entry, base)]
        ranked = sorted([base, *active], key=_rank)
        if not better:
            text = "GPUs are idle, but no running job would gain enough from them"
            self._waits(found[0].job, "keeps-sizes", text, ranked, base, len(found) + 1)
            return None
        chosen = min(better, key=_rank)
        assert chosen[2] is not None
        code = "grows" if chosen[2].host == chosen[2].job.host else "moves"
        return self._plan(code, chosen, ranked, base, len(found) + 1)

    def _nothing_fits(self, newcomer: JobView) -> None:
        """Nobody can give the newcomer what it needs."""
        needs = gpus(min(newcomer.sizes))
        text = (
            f"{newcomer.spec.name} waits: neither idle GPUs nor one running job can give the "
            f"{needs} of one host that it needs at least"
        )
        self._waits(newcomer, "waits-nothing-fits", text)

    def _waits(
        self,
        newcomer: JobView,
        code: str,
        text: str,
        ranked: Sequence[Weighed] = (),
        base: Weighed = (0, 0, None),
        weighed: int = 0,
    ) -> None:
        """Remember why the first of those that wait does so."""
        if self.waits.about is None:
            kept = tuple(self._option(entry, base) for entry in ranked[:WAITING_KEPT_MAX])
            self.waits = Plan((), code, text, newcomer.id, kept, weighed=weighed)

    def _plan(
        self, code: str, chosen: Weighed, ranked: list[Weighed], base: Weighed, weighed: int
    ) -> Plan:
        candidate = chosen[2]
        assert candidate is not None
        keep = ranked[: moves.OPTIONS_KEPT_MAX]
        for needed in (base, chosen):
            if not any(entry is needed for entry in keep):
                keep = [*keep[: moves.OPTIONS_KEPT_MAX - 2], needed]
        number = next(number for number, entry in enumerate(keep) if entry is chosen)
        return Plan(
            candidate.targets,
            code,
            _text(chosen, base),
            candidate.job.id,
            tuple(self._option(entry, base) for entry in keep),
            number,
            weighed,
        )

    def _option(self, entry: Weighed, base: Weighed) -> Option:
        makespan, total, candidate = entry
        if candidate is None:
            return Option((), makespan / 1000, self._nothing, total / 1000)
        reshapes = bool(candidate.shrinks) or candidate.job.size > 0
        too_little = reshapes and entry[:2] < base[:2] and not self._worth(entry, base)
        refused = "would save too little" if too_little else ""
        return Option(candidate.targets, makespan / 1000, "", total / 1000, refused)

    def _wake(self, at_s: float) -> None:
        if at_s > self.snapshot.now_s:
            self.wake_at_s = min(self.wake_at_s, at_s)


def _rank(entry: Weighed) -> tuple[object, ...]:
    """Makespan, sum of completion times, doing nothing, fewer GPUs moved, ids."""
    makespan, total, candidate = entry
    return (makespan, total, *(() if candidate is None else candidate.order))


def _text(chosen: Weighed, base: Weighed) -> str:
    """The decision in a sentence or two."""
    makespan, total, candidate = chosen
    assert candidate is not None
    job = candidate.job
    if job.size:
        text = f"{job.spec.name} grows from {job.size} to {gpus(candidate.size)}"
        text += "" if candidate.host == job.host else f" and moves to {candidate.host}"
    else:
        text = f"{job.spec.name} starts on {gpus(candidate.size)} of {candidate.host}"
    for donor, keeps in candidate.shrinks:
        text += f"; {donor.spec.name} goes from {donor.size} to {keeps}"
    text += f". All jobs end in {duration(makespan / 1000)}"
    if base is chosen:
        return text + " (predicted)."
    otherwise = "if it waited" if base[2] is None and not job.size else "otherwise"
    if makespan != base[0]:
        return text + f" instead of {duration(base[0] / 1000)} {otherwise} (predicted)."
    sooner = duration((base[1] - total) / 1000)
    return text + f" either way, but {sooner} sooner in sum (predicted)."
