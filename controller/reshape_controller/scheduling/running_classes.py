"""Running jobs that differ in their times only, by how long they train.

Does: says from which of them taking GPUs could be worth it, at best. Who trains longer loses more,
so a look at the first tells of all. Never: weighs an option, or is on the wrong side (tests compare
with every option). State: kept with the tenures of the jobs.

A job with ``left`` seconds to train whose steps take ``slower`` times longer ends ``left * slower``
and its stop and start later. The most favourable of its smaller sizes gives the bound.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass

from reshape_controller.core.model import JobId
from reshape_controller.core.plan import JobView
from reshape_controller.scheduling.predictor import Predictor

SLACK_MS = 6
"""For what is rounded."""
NO_SIZE_S = 1e9
"""Seconds by which a step is longer at a size that there is not."""
UNKNOWN_MS = -(10**15)
"""What a job loses of which that is not known, or that may even end sooner."""

ClassKey = tuple[int, str | None, int, tuple[int, ...], bool, bool, bool]
"""GPU type by number, job type, size and sizes; whether the job trains, its length is known,
and whether its speed was measured at several sizes: how much slower it would be is its own then."""


@dataclass(slots=True, eq=False)
class RunningEntry:
    """A running job: which GPUs it has, and until when."""

    job: JobView
    host: int
    """Number of its host; -1: none that can be used."""
    kind: int
    """Number of its GPU type; one more than the last without a host."""
    end_ms: int
    """When it will have left: ``is_moment``, or else from whenever it is asked."""
    is_moment: bool
    until_s: float
    """When it will have trained..."""
    own: bool
    """...which does not depend on the speeds that its type learns."""
    stay_s: float
    """Without training, in a reshape whose container stays..."""
    leave_s: float
    """...and in one whose container ends."""
    slower: float = -1.0
    """By what part a step would be longer at least, if that is its own; negative: nobody knows."""
    job_class: RunningClass | None = None
    """Jobs like it, if a plan may name it."""

    def left_ms(self, now_ms: int) -> int:
        """When it will have left, from now."""
        return self.end_ms - now_ms if self.is_moment else self.end_ms


class Exclusions:
    """Jobs that are not asked for GPUs now."""

    def __init__(self, running_index: list[RunningEntry]) -> None:
        self.running_index = running_index
        self.names: dict[JobId, None] = {}
        self.counts: dict[RunningClass, int] = {}
        """How many there are of those that are alike."""
        for entry in running_index:
            job_class = entry.job_class
            if job_class is not None and entry.job.id not in self.names:
                self.names[entry.job.id] = None
                self.counts[job_class] = self.counts.get(job_class, 0) + 1


@dataclass(frozen=True, slots=True, eq=False)
class BoundRules:
    """What it depends on what a job needs, but for the job."""

    now_s: float
    now_ms: int
    least_ms: Callable[[int], int]
    """What has to be saved, from what a job has left."""


@dataclass(frozen=True, slots=True, eq=False)
class Gain:
    """What GPUs of a running job bring at best, in milliseconds."""

    saves_ms: int
    """So much in sum, less what the job loses."""
    late_ms: int
    """Until then somebody else in the queue has use for GPUs."""
    shorter_ms: int
    """By so much all end sooner."""


@dataclass(frozen=True, slots=True, eq=False)
class Needs:
    """What a job needs to be worth a closer look."""

    end_ms: int
    """When it will have left, from now."""
    least_ms: int
    """What its reshape has to save."""
    saved_ms: int
    """What a newcomer has to save for it at least."""

    def are_met(self, gain: Gain) -> bool:
        """Whether enough is saved in sum, or the job frees GPUs that somebody in the queue could
        use, or its end brings that of all as much forward as it has to."""
        return (
            self.saved_ms <= gain.saves_ms
            or self.end_ms <= gain.late_ms
            or self.least_ms <= gain.shorter_ms
        )


class RunningClass:
    """Running jobs of the same traits, those first that train least."""

    def __init__(self, traits: ClassKey) -> None:
        self.traits = traits
        self.kind, _, self.size, self.sizes, self.trains, self.growable, self.mixed = traits
        self.gifts = tuple([self.size - keeps for keeps in self.sizes if keeps < self.size])
        """How many GPUs each can give, the most first."""
        self.gift = (self.kind, self.gifts)
        self.row: list[tuple[float, JobId, RunningEntry]] = []
        self._slower = -1.0
        """By what part a step is longer at least, for each of them."""
        self._new: list[RunningEntry] = []
        """Of which that was not asked yet."""
        self._tables: object = None
        """With which answers about the type it holds."""
        self.open: dict[tuple[int, ...], list[RunningEntry]] = {}
        """Whom it may be worth growing, by the sizes for which GPUs are idle (see ``growth``)..."""
        self.asked: object = None
        """...and what else that depends on."""

    def put(self, entry: RunningEntry) -> None:
        insort(self.row, (entry.until_s, entry.job.id, entry))
        for sizes, jobs in list(self.open.items()):
            if len(jobs) > len(self.row):
                del self.open[sizes]  # nobody has asked for long
            else:
                jobs.append(entry)
        if self.mixed:
            self._new.append(entry)
            if len(self._new) > 2 * len(self.row):
                self._tables, self._new = None, []

    def drop(self, entry: RunningEntry) -> None:
        del self.row[bisect_left(self.row, (entry.until_s, entry.job.id, entry))]

    def renew(self, predictor: Predictor) -> None:
        """Look up how much slower they would be, if their type has learned something, and of those
        that are new if each is so in its own way."""
        if not self.trains or not self.gifts:
            return
        tables = predictor.answers(self.row[0][2].job).tables
        if self._tables is not tables:
            self._tables = tables
            if self.mixed:
                self._slower, self._new = NO_SIZE_S, [entry for _, _, entry in self.row]
            else:
                self._slower = _slower(predictor, self.row[0][2].job)
        if self._new:
            for entry in self._new:
                entry.slower = _slower(predictor, entry.job)
                self._slower = min(self._slower, entry.slower)
            self._new = []

    def all(self, excluded: Exclusions) -> list[JobView]:
        """All but those that are not asked."""
        return [entry.job for _, name, entry in self.row if name not in excluded.names]

    def count(self, excluded: Exclusions) -> int:
        """How many that are."""
        return len(self.row) - excluded.counts.get(self, 0)

    def first(self, rules: BoundRules) -> Needs:
        """What the first of them needs: no more than any other."""
        return needs(self.row[0][2], self._slower, rules)

    def near(self, gain: Gain, rules: BoundRules, excluded: Exclusions) -> list[JobView]:
        """Those of which GPUs can be worth taking. Who trains longer loses more, ends later and
        has more to save."""
        found: list[JobView] = []
        for _, name, entry in self.row:
            if not needs(entry, self._slower, rules).are_met(gain):
                break
            if self.mixed and not needs(entry, entry.slower, rules).are_met(gain):
                continue
            if name not in excluded.names:
                found.append(entry.job)
        return found

    def far(self, gain: Gain, rules: BoundRules, excluded: Exclusions) -> list[tuple[int, JobView]]:
        """The others, with what a newcomer has to save for each at least."""
        found: list[tuple[int, JobView]] = []
        for _, name, entry in self.row:
            own = needs(entry, entry.slower if self.mixed else self._slower, rules)
            if name not in excluded.names and not own.are_met(gain):
                found.append((own.saved_ms, entry.job))
        return found


def needs(entry: RunningEntry, slower: float, rules: BoundRules) -> Needs:
    """What a job needs whose steps get longer by the part ``slower``."""
    end = entry.left_ms(rules.now_ms)
    least = rules.least_ms(end)
    if slower < 0.0:
        return Needs(end, least, UNKNOWN_MS)
    train_s = entry.until_s - rules.now_s
    loss_s = train_s * slower if train_s > 0.0 else 0.0
    return Needs(end, least, int((loss_s + entry.stay_s) * 1000.0) - SLACK_MS + least)


def _slower(predictor: Predictor, job: JobView) -> float:
    step_s = predictor.estimate(job).step_s
    speeds_s = predictor.step_times_s(job, job.gpu_type)
    return (min([speeds_s[size] for size in job.sizes if size < job.size]) - step_s) / step_s
