"""Options against each other: what each brings, what is worth it, and the plan that tells of it.

Does: weighs candidates with an outlook, keeps what can win, ranks, and turns the choice into a plan
with its options and a sentence for people. Never: sets the rules: what a reshape has to save is
given. State: the base of one comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from heapq import nsmallest
from typing import NamedTuple

from reshape_controller.core.explain import duration, gpus
from reshape_controller.core.plan import JobView, Option, Plan
from reshape_controller.core.prediction import moves
from reshape_controller.core.prediction.candidates import Candidate, Rank
from reshape_controller.core.prediction.forecast import Outlook
from reshape_controller.core.prediction.sweep import Far, Swept

WAITING_KEPT_MAX = 16
"""Options that are kept of a decision to wait; such a decision may be repeated often."""


class Nothing(NamedTuple):
    """What comes of doing nothing; sorts before every option that is as good."""

    makespan_ms: int
    total_ms: int


@dataclass(frozen=True)
class Found:
    """Options beside those that reshape nobody."""

    best: Rank | None = None
    """The best that is worth it."""
    quick: list[Rank] = field(default_factory=list)
    """All that were cheap to weigh."""
    costly: list[Rank] = field(default_factory=list)
    """Of the others those that could have won."""
    count: int = 0
    far: Far | None = None
    """Jobs that were ruled out without weighing their options."""

    @cached_property
    def kept(self) -> list[Rank]:
        """What a plan may show of them."""
        ruled_out = self.far.nearest() if self.far is not None else []
        kept = nsmallest(moves.OPTIONS_KEPT_MAX, self.quick + ruled_out)
        if self.best is not None and self.best not in kept and self.best not in self.costly:
            kept.append(self.best)
        return kept + self.costly


class Weighing:
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
        self.quiet = sorted([self.weigh(candidate) for candidate in quiet])
        self.base: Rank | Nothing = self.quiet[0] if self.quiet else Nothing(*outlook.waits())

    def weigh(self, candidate: Candidate) -> Rank:
        """What a candidate brings."""
        return candidate.ranked(*self.outlook.weigh(candidate.ends, candidate.changes))

    def worth(self, option: Rank, reshaped: list[JobView]) -> bool:
        """Whether a reshape saves enough: in the makespan, or in the sum of completion times
        while the makespan does not rise."""
        end_ms = self.outlook.forecast.end_ms
        least = self._least_ms(max([end_ms(job) for job in reshaped]))
        shorter = self.base.makespan_ms - option.makespan_ms
        sooner = self.base.total_ms - option.total_ms
        return shorter >= least or (shorter >= 0 and sooner >= least)

    def best_of(self, swept: Swept, *, gate: bool) -> Found:
        """The best of what was swept, and what is costly to weigh as far as it can win. With
        ``gate``, only what saves enough can win."""
        quick = swept.worth + swept.others
        best = min(swept.worth if gate else quick, default=None)
        best, costly = self._weigh_all(swept.costly, gate=gate, best=best)
        return Found(best, quick, costly, swept.count, swept.far)

    def best_of_all(self, found: list[Candidate], *, gate: bool) -> Found:
        """The best of candidates, weighed as far as they can win."""
        best, weighed = self._weigh_all(found, gate=gate, best=None)
        return Found(best, [], weighed, len(weighed))

    def _weigh_all(
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
        option = self.weigh(candidate)
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
        if not reshaped and entry.job in forecast.tenures.by_job:
            reshaped = [forecast.running(entry.job)]
        better = bool(reshaped) and entry[:2] < self.base[:2]
        too_little = better and not self.worth(entry, reshaped)
        refused = "would save too little" if too_little else ""
        return Option(entry.targets, makespan_s, "", total_s, refused)

    def plan(self, code: str, job: JobView, chosen: Rank, found: Found, weighed: int) -> Plan:
        """The plan that takes ``chosen``, an option of ``job``; ``found``: what there was beside
        the quiet ones."""
        options, number = self._beside(chosen, found) if self.explained else ((), None)
        text = self._text(job, chosen) if self.explained else ""
        return Plan(chosen.targets, code, text, job.id, options, number, weighed)

    def _beside(self, chosen: Rank, found: Found) -> tuple[tuple[Option, ...], int]:
        """What a plan shows beside what it takes, and where that stands."""
        keep: list[Rank | Nothing] = sorted([self.base, *self.quiet[1:], *found.kept])
        needed = []
        for entry in (self.base, chosen) if chosen != self.base else (chosen,):
            if entry not in keep[: moves.OPTIONS_KEPT_MAX]:
                needed.append(entry)
        keep = keep[: moves.OPTIONS_KEPT_MAX - len(needed)] + needed
        return tuple(self.option(entry) for entry in keep), keep.index(chosen)

    def waiting(self, found: Found) -> tuple[Option, ...]:
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
            text += f" either way, but {duration(sooner / 1000)} sooner in sum"
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
            giver = self.outlook.forecast.running(donor)
            text += f"; {giver.spec.name} goes from {giver.size} to {keeps}"
        return text
