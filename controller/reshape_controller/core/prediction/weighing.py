"""Options against each other: what each brings, what is worth it, and the plan that tells of it.

Does: weighs candidates with an outlook, keeps what can win, ranks, and turns the choice into a plan
with its options and a sentence for people. Never: sets the rules: what a reshape has to save is
given. State: the base of one comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import nsmallest

from reshape_controller.core.explain import duration, gpus
from reshape_controller.core.plan import Option, Plan
from reshape_controller.core.prediction import moves
from reshape_controller.core.prediction.candidates import Candidate
from reshape_controller.core.prediction.forecast import Outlook
from reshape_controller.core.prediction.sweep import Rank, Swept

Weighed = tuple[int, int, Candidate | None]
"""Makespan and sum of completion times (ms); without a candidate: nothing is done."""


def rank(entry: Weighed) -> tuple[object, ...]:
    """Makespan, sum of completion times, doing nothing, fewer GPUs moved, ids."""
    makespan, total, candidate = entry
    return (makespan, total, *(() if candidate is None else candidate.order))


class Weighing:
    """One comparison: every option against ``base``, the best that reshapes nobody."""

    def __init__(
        self, outlook: Outlook, least_ms: Callable[[int], int], nothing: str, quiet: list[Candidate]
    ) -> None:
        """``quiet``: options that reshape nobody; without any, doing ``nothing`` is the base."""
        self.outlook = outlook
        self._least_ms = least_ms
        self._nothing = nothing
        self.quiet = sorted((self.weigh(candidate) for candidate in quiet), key=rank)
        self.base: Weighed = self.quiet[0] if self.quiet else (*outlook.waits(), None)

    def weigh(self, candidate: Candidate) -> Weighed:
        """What a candidate brings."""
        return (*self.outlook.weigh(candidate.ends, candidate.changes), candidate)

    def worth(self, entry: Weighed) -> bool:
        """Whether a reshape saves enough: in the makespan, or in the sum of completion times
        while the makespan does not rise."""
        candidate = entry[2]
        assert candidate is not None
        reshaped = [donor.id for donor, _ in candidate.shrinks] or [candidate.job.id]
        ends_ms = self.outlook.forecast.ends_ms
        least = self._least_ms(max(ends_ms[job] for job in reshaped))
        shorter, sooner = self.base[0] - entry[0], self.base[1] - entry[1]
        return shorter >= least or (shorter >= 0 and sooner >= least)

    def best_of(
        self, swept: Swept, rebuild: Callable[[Rank], Candidate], *, gate: bool
    ) -> list[Weighed]:
        """The best of what was swept, and what is costly to weigh as far as it can win. With
        ``gate``, only what saves enough can win."""
        ranks = [*swept.worth, *swept.others]
        best = min(swept.worth if gate else ranks, default=None)
        kept = nsmallest(moves.OPTIONS_KEPT_MAX, ranks)
        if best is not None and best not in kept:
            kept.append(best)
        found: list[Weighed] = [(entry[0], entry[1], rebuild(entry)) for entry in kept]
        so_far = best[:2] if best is not None else None
        return found + self.weigh_all(swept.costly, gate=gate, best=so_far)

    def weigh_all(
        self, found: Sequence[Candidate], *, gate: bool, best: tuple[int, int] | None = None
    ) -> list[Weighed]:
        """Weigh what can win against ``best``: first what is cheap to weigh; of the rest, in the
        order of what each could be at best, until none can beat the best so far."""
        done: list[Weighed] = []
        costly: list[tuple[int, int, Candidate]] = []

        def take(candidate: Candidate) -> None:
            nonlocal best
            entry = self.weigh(candidate)
            done.append(entry)
            if (best is None or entry[:2] < best) and (not gate or self.worth(entry)):
                best = entry[:2]

        for candidate in found:
            if self.outlook.known(candidate.changes):
                take(candidate)
            else:
                bound = self.outlook.bound(candidate.ends, candidate.changes)
                costly.append((*bound, candidate))
        for makespan, total, candidate in sorted(costly, key=rank):
            if best is not None and (makespan, total) > best:
                break
            if not gate or self.worth((makespan, total, candidate)):
                take(candidate)
        return done

    def option(self, entry: Weighed) -> Option:
        """An option as it is kept."""
        makespan, total, candidate = entry
        if candidate is None:
            return Option((), makespan / 1000, self._nothing, total / 1000)
        reshapes = bool(candidate.shrinks) or candidate.job.size > 0
        too_little = reshapes and entry[:2] < self.base[:2] and not self.worth(entry)
        refused = "would save too little" if too_little else ""
        return Option(candidate.targets, makespan / 1000, "", total / 1000, refused)

    def plan(self, code: str, chosen: Weighed, active: list[Weighed], weighed: int) -> Plan:
        """The plan that takes ``chosen``; ``active``: options beside the quiet ones."""
        candidate = chosen[2]
        assert candidate is not None
        ranked = sorted([self.base, *self.quiet[1:], *active], key=rank)
        keep = ranked[: moves.OPTIONS_KEPT_MAX]
        needed = [
            entry
            for number, entry in enumerate((self.base, chosen))
            if not any(entry is other for other in keep) and (number == 0 or entry is not self.base)
        ]
        keep = keep[: moves.OPTIONS_KEPT_MAX - len(needed)] + needed
        number = next(number for number, entry in enumerate(keep) if entry is chosen)
        options = tuple(self.option(entry) for entry in keep)
        text = self._text(chosen)
        return Plan(candidate.targets, code, text, candidate.job.id, options, number, weighed)

    def _text(self, chosen: Weighed) -> str:
        """The decision in a sentence or two."""
        makespan, total, candidate = chosen
        assert candidate is not None
        text = f"{_what(candidate)}. All jobs end in {duration(makespan / 1000)}"
        if makespan != self.base[0]:
            waits = self.base[2] is None and not candidate.job.size
            otherwise = "if it waited" if waits else "otherwise"
            text += f" instead of {duration(self.base[0] / 1000)} {otherwise}"
        elif total < self.base[1]:
            text += f" either way, but {duration((self.base[1] - total) / 1000)} sooner in sum"
        return text + " (predicted)."


def _what(candidate: Candidate) -> str:
    job, size = candidate.job, candidate.size
    if not job.size:
        text = f"{job.spec.name} starts on {gpus(size)} of {candidate.host}"
    elif candidate.host == job.host:
        text = f"{job.spec.name} grows from {job.size} to {gpus(size)}"
    else:
        text = f"{job.spec.name} moves from {gpus(job.size)} of {job.host} to {size}"
        text += f" of {candidate.host}"
    for donor, keeps in candidate.shrinks:
        text += f"; {donor.spec.name} goes from {donor.size} to {keeps}"
    return text
