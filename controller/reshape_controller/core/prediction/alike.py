"""Running jobs that differ in their times only, by how long they train.

Does: says from which of them taking GPUs could be worth it, at best. Who trains longer loses more,
so a look at the first tells of all. Never: weighs an option, or is on the wrong side (tests compare
with every option). State: kept with the tenures of the jobs.

A job with ``left`` seconds to train whose steps take ``slower`` times longer ends ``left * slower``
and its stop and start later. The most favourable of its smaller sizes gives the bound.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reshape_controller.core.model import JobId
from reshape_controller.core.plan import JobView
from reshape_controller.core.prediction.predictor import Predictor

SLACK_MS = 6
"""For what is rounded."""
NO_SIZE_S = 1e9
"""Seconds by which a step is longer at a size that there is not."""
UNKNOWN_MS = -(10**15)
"""What a job loses of which that is not known, or that may even end sooner."""

Likeness = tuple[int, str | None, int, tuple[int, ...], bool, bool, bool]
"""GPU type by number, job type, size and sizes; whether the job trains, its length is known,
and whether its speed was measured at several sizes: how much slower it would be is its own then."""


@dataclass(slots=True, eq=False)
class Tenure:
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
    alike: Alike | None = None
    """Jobs like it, if a plan may name it."""

    def left_ms(self, now_ms: int) -> int:
        """When it will have left, from now."""
        return self.end_ms - now_ms if self.is_moment else self.end_ms


class Apart:
    """Jobs that are not asked for GPUs now."""

    def __init__(self, tenures: Sequence[Tenure]) -> None:
        self.tenures = tenures
        self.names: dict[JobId, None] = {}
        self.counts: dict[Alike, int] = {}
        """How many there are of those that are alike."""
        for tenure in tenures:
            alike = tenure.alike
            if alike is not None and tenure.job.id not in self.names:
                self.names[tenure.job.id] = None
                self.counts[alike] = self.counts.get(alike, 0) + 1


@dataclass(frozen=True, slots=True, eq=False)
class Bar:
    """What a job has to bring to be worth a closer look, as far as that is the same for all."""

    now_s: float
    now_ms: int
    shorter_ms: int
    """By so much all would end sooner at best."""
    least_ms: Callable[[int], int]
    """What has to be saved, from what a job has left."""
    apart: Apart


class Alike:
    """Running jobs of a likeness, those first that train least."""

    def __init__(self, likeness: Likeness) -> None:
        self.likeness = likeness
        self.kind, self.job_type, self.size, self.sizes, self.trains, self.growable, self.mixed = (
            likeness
        )
        size, sizes = self.size, self.sizes
        self.gifts = tuple([size - keeps for keeps in sizes if keeps < size])
        """How many GPUs each can give, the most first."""
        self.gift = (self.kind, self.gifts)
        self.row: list[tuple[float, JobId, Tenure]] = []
        self._slower = -1.0
        """By what part a step is longer at least, for each of them."""
        self._new: list[Tenure] = []
        """Of which that was not asked yet."""
        self._tables: object = None
        """With which answers about the type it holds."""
        self.open: dict[tuple[int, ...], list[Tenure]] = {}
        """Whom it may be worth growing, by the sizes for which GPUs are idle (see ``growth``)..."""
        self.asked: object = None
        """...and what else that depends on."""

    def put(self, tenure: Tenure) -> None:
        insort(self.row, (tenure.until_s, tenure.job.id, tenure))
        for sizes, jobs in list(self.open.items()):
            if len(jobs) > len(self.row):
                del self.open[sizes]  # nobody has asked for long
            else:
                jobs.append(tenure)
        if self.mixed:
            self._new.append(tenure)
            if len(self._new) > 2 * len(self.row):
                self._tables, self._new = None, []

    def drop(self, tenure: Tenure) -> None:
        del self.row[bisect_left(self.row, (tenure.until_s, tenure.job.id, tenure))]

    def renew(self, predictor: Predictor) -> None:
        """Look up how much slower they would be, if their type has learned something, and of those
        that are new if each is so in its own way."""
        if not self.trains or not self.gifts:
            return
        tables = predictor.answers(self.row[0][2].job).tables
        if self._tables is not tables:
            self._tables = tables
            if self.mixed:
                self._slower, self._new = NO_SIZE_S, [tenure for _, _, tenure in self.row]
            else:
                self._slower = _slower(predictor, self.row[0][2].job)
        if self._new:
            for tenure in self._new:
                tenure.slower = _slower(predictor, tenure.job)
                self._slower = min(self._slower, tenure.slower)
            self._new = []

    def all(self, apart: Apart) -> list[JobView]:
        """All but those that are not asked."""
        return [tenure.job for _, name, tenure in self.row if name not in apart.names]

    def count(self, apart: Apart) -> int:
        """How many that are."""
        return len(self.row) - apart.counts.get(self, 0)

    def first(self, now_s: float, now_ms: int, least_ms: Callable[[int], int]) -> First:
        """What the first of them needs."""
        tenure = self.row[0][2]
        end = tenure.left_ms(now_ms)
        least = least_ms(end)
        return First(self, end, least, needs_ms(tenure, self._slower, now_s, least))

    def near(self, bar: Bar, saves: int, late: int) -> list[JobView]:
        """Those of which GPUs can be worth taking (``is_near``)."""
        found: list[JobView] = []
        for _, name, tenure in self.row:
            if not is_near(tenure, self._slower, bar, saves, late):
                break
            if self.mixed and not is_near(tenure, tenure.slower, bar, saves, late):
                continue
            if name not in bar.apart.names:
                found.append(tenure.job)
        return found

    def far(self, bar: Bar, saves: int, late: int) -> list[tuple[int, JobView]]:
        """The others, with what a newcomer has to save for each at least."""
        found: list[tuple[int, JobView]] = []
        for _, name, tenure in self.row:
            slower = tenure.slower if self.mixed else self._slower
            if name not in bar.apart.names and not is_near(tenure, slower, bar, saves, late):
                least = bar.least_ms(tenure.left_ms(bar.now_ms))
                found.append((needs_ms(tenure, slower, bar.now_s, least), tenure.job))
        return found


@dataclass(frozen=True, slots=True, eq=False)
class First:
    """The first of jobs that are alike, which needs least, in milliseconds from now."""

    alike: Alike
    end_ms: int
    least_ms: int
    needs_ms: int

    def is_near(self, saves: int, late: int, shorter: int) -> bool:
        """See the function of that name."""
        return self.needs_ms <= saves or self.end_ms <= late or self.least_ms <= shorter


def is_near(tenure: Tenure, slower: float, bar: Bar, saves: int, late: int) -> bool:
    """Whether so much is saved in sum that it could be worth it to make a job ``slower``, or the
    job frees GPUs until it is ``late`` for somebody in the queue, or its end brings that of all as
    much forward as it has to. If this does not hold, it does for none that trains longer."""
    end = tenure.left_ms(bar.now_ms)
    if end <= late:
        return True
    least = bar.least_ms(end)
    return least <= bar.shorter_ms or needs_ms(tenure, slower, bar.now_s, least) <= saves


def needs_ms(tenure: Tenure, slower: float, now_s: float, least_ms: int) -> int:
    """What a newcomer has to save for a job at least."""
    if slower < 0.0:
        return UNKNOWN_MS
    loss_s = (tenure.until_s - now_s) * slower if tenure.until_s > now_s else 0.0
    return int((loss_s + tenure.stay_s) * 1000.0) - SLACK_MS + least_ms


def _slower(predictor: Predictor, job: JobView) -> float:
    step_s = predictor.pace(job).step_s
    speeds_s = predictor.speeds_s(job, job.gpu_type)
    return (min([speeds_s[size] for size in job.sizes if size < job.size]) - step_s) / step_s
