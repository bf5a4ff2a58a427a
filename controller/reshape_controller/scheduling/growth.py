"""What more GPUs could bring to running jobs at best, so that few need a closer look.

Does: for each running job a bound of every size that it could get, in a few operations; who was
ruled out is not asked again while that holds. Never: weighs anything, or is on the wrong side
(tests compare with every option). State: who is open is kept with the jobs that are alike.

A job with ``left`` seconds to train whose steps get shorter by the part ``faster`` ends
``left * faster`` sooner, and its stop and start later. The most favourable of its sizes counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from reshape_controller.core.job_estimate import JobEstimate
from reshape_controller.core.model import Mechanism
from reshape_controller.core.plan import JobView, Snapshot
from reshape_controller.scheduling.cluster_index import ClusterIndex
from reshape_controller.scheduling.predictor import Predictor, to_ms
from reshape_controller.scheduling.running_classes import (
    NO_SIZE_S,
    SLACK_MS,
    RunningClass,
    RunningEntry,
)

Rooms = tuple[tuple[str, int], ...]
"""GPU types, each with the most GPUs that a job could get on one host."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenKey:
    """What it depends on who may be worth growing, but for idle GPUs."""

    least_ms: Callable[[int], int]
    tables: object
    """What is known of their type's speeds."""


class Growth:
    """One per decision: with the GPUs that are idle now."""

    def __init__(
        self, snapshot: Snapshot, predictor: Predictor, least_ms: Callable[[int], int]
    ) -> None:
        """``least_ms`` gives what has to be saved, from what the job has left. It takes no
        forecast: most decisions without a queue end here."""
        self._predictor, self.least_ms = predictor, least_ms
        self._now_s, self._now_ms = snapshot.now_s, to_ms(snapshot.now_s)
        self._known: dict[tuple[RunningClass, int], float] = {}
        self._mechanism = snapshot.mechanism
        index = ClusterIndex.of(snapshot, predictor)
        self._running_index, numbers = index.running_index, index.numbering.numbers
        self._idle = {numbers[host.id]: host.idle for host in snapshot.idle}
        """By the number of the host; those that have some."""
        most = dict.fromkeys(index.numbering.types, 0)
        for host in snapshot.idle:
            if host.idle > most[host.gpu_type]:
                most[host.gpu_type] = host.idle
        self._rooms: Rooms = tuple(most.items())
        self._most = max(most.values(), default=0)

    @property
    def count(self) -> int:
        """Running jobs that may get more GPUs."""
        return sum([len(job_class.row) for job_class in self._growable()])

    @cached_property
    def near(self) -> list[JobView]:
        """Those for which it could be worth it.

        What a job would save and what it had to save both fall in a straight line while it trains,
        and at its end it would save nothing and lose the costs of a reshape: two lines that are
        apart at both ends do not cross. So a job for which it is not worth it now needs no second
        look, until it has another view, other speeds are known, or more GPUs are idle.
        """
        found: list[JobView] = []
        for job_class in self._growable():
            if not job_class.trains:
                found += [one.job for _, _, one in job_class.row if one.host not in self._idle]
            elif job_class.size <= self._most:  # else they can get more on their own host only
                found += [one.job for one in self._open(job_class) if one.host not in self._idle]
        for number in self._idle:
            for entry in self._running_index.on_host[number].values():
                if _may_grow(entry) and self._lacks_ms(entry) <= 0:
                    found.append(entry.job)
        return found

    def _open(self, job_class: RunningClass) -> list[RunningEntry]:
        """Those of jobs that are alike that are not ruled out."""
        tables, known = self._predictor.answers(job_class.row[0][2].job).tables, job_class.asked
        if (
            not isinstance(known, OpenKey)
            or known.tables is not tables
            or known.least_ms != self.least_ms
        ):
            job_class.asked = OpenKey(self.least_ms, tables)
            job_class.open.clear()
        sizes = tuple([_largest(job_class.sizes, most) for _, most in self._rooms])
        jobs = job_class.open.get(sizes)
        if jobs is None:
            jobs = [entry for _, _, entry in job_class.row]
        elif not jobs:
            return jobs
        still: list[RunningEntry] = []
        for entry in jobs:
            if self._running_index.by_job.get(entry.job.id) is entry:
                short = entry.stay_s * 1000.0 <= SLACK_MS  # rounding could decide at its end
                if short or self._lacks_ms(entry) <= 0:
                    still.append(entry)
        job_class.open[sizes] = still
        return still

    def far(self) -> list[tuple[int, JobView]]:
        """The others, with what they lack (ms)."""
        running_index = [entry for job_class in self._growable() for _, _, entry in job_class.row]
        lacks = [(self._lacks_ms(entry), entry.job) for entry in running_index]
        return [entry for entry in lacks if entry[0] > 0]

    def _growable(self) -> list[RunningClass]:
        return [
            job_class for job_class in self._running_index.classes.values() if job_class.growable
        ]

    def _lacks_ms(self, entry: RunningEntry) -> int:
        """What a job lacks at its best size; 0, if nobody knows when it ends."""
        if entry.job_class is None or not entry.job_class.trains:
            return 0
        train_s = entry.until_s - self._now_s
        if train_s < 0.0:
            train_s = 0.0
        gain_s = train_s * self._faster(entry, entry.job_class, 0) - entry.leave_s
        idle = self._idle.get(entry.host, 0)
        if idle:
            stays = self._mechanism is not Mechanism.TERMINATE
            own_s = train_s * self._faster(entry, entry.job_class, idle)
            gain_s = max(gain_s, own_s - (entry.stay_s if stays else entry.leave_s))
        least = self.least_ms(entry.left_ms(self._now_ms))
        return least - int(gain_s * 1000.0) - SLACK_MS

    def _faster(self, entry: RunningEntry, job_class: RunningClass, idle: int) -> float:
        """By what part a step of a job is shorter at most with the GPUs that are idle on its own
        host, or, without any, on another. It is the same for all that are alike."""
        if job_class.mixed:
            return self._faster_of(entry.job, idle)
        key = (job_class, idle)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._faster_of(entry.job, idle)
        return known

    def _faster_of(self, job: JobView, idle: int) -> float:
        estimate = self._predictor.estimate(job)
        rooms = ((job.gpu_type, job.size + idle),) if idle else self._rooms
        return _faster_s(self._predictor, job, estimate, rooms) / estimate.step_s


def _largest(sizes: tuple[int, ...], most: int) -> int:
    """The largest of sizes that are in order for which ``most`` GPUs are enough."""
    largest = 0
    for size in sizes:
        if size <= most:
            largest = size
    return largest


def _may_grow(entry: RunningEntry) -> bool:
    return entry.job_class is not None and entry.job_class.growable


def _faster_s(predictor: Predictor, job: JobView, estimate: JobEstimate, rooms: Rooms) -> float:
    """By how much a step is shorter at most, on GPUs of types of which there are so many."""
    shortest_s, largest = NO_SIZE_S, job.sizes[-1] if job.sizes else 0
    for kind, most in rooms:
        room = (kind, most if most < largest else largest)
        step_s = estimate.min_step_s.get(room)
        if step_s is None:
            speeds_s = predictor.step_times_s(job, kind)
            possible = [speeds_s[size] for size in job.sizes if job.size <= size <= most]
            step_s = estimate.min_step_s[room] = min(possible, default=NO_SIZE_S)
        if step_s < shortest_s:
            shortest_s = step_s
    return estimate.step_s - shortest_s
