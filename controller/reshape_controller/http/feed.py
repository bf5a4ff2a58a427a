"""The newest records of the log in short, for readers that follow it; and the series of jobs.

Does: remembers for each record what it changed, and of each job how its training went. Both are
bounded. State: the newest records, and at most ``POINTS_MAX`` points of each of the newest jobs.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass
from math import isfinite, nan

from reshape_controller.core import events as ev
from reshape_controller.core.model import Job, JobId
from reshape_controller.core.record import HistoryEntry, LogRecord
from reshape_controller.core.state import State
from reshape_gpu.values import SeriesPoint
from reshape_sidecar.wire import Progress

RECORDS_MAX = 10_000
"""Records of which a reader that was away gets each; one that was away longer starts again."""
ENTRIES_MAX = 100_000
"""Lines of the history and jobs in all of these records; a single record may have hundreds."""
POINTS_MAX = 240
"""Points of one job's series; with more, every second of them is dropped."""
SERIES_MAX = 2_000
"""Jobs that have a series; with more, the job that reported longest ago has none any more."""


@dataclass(frozen=True, slots=True)
class ChangedJob:
    """A job as it is after a record that changed it."""

    id: str
    name: str
    user: str
    state: str
    size: int

    @classmethod
    def of(cls, job: Job) -> ChangedJob:
        """Return the values of a job."""
        return cls(job.id, job.spec.name, job.spec.user, job.state.value, len(job.gpus))


@dataclass(frozen=True, slots=True)
class Change:
    """What one record of the log changed."""

    seq: int
    at_s: float
    history: tuple[HistoryEntry, ...]
    jobs: tuple[ChangedJob, ...]

    @property
    def entries(self) -> int:
        """Number of its lines and jobs."""
        return len(self.history) + len(self.jobs)


class Feed:
    """The newest changes, in order."""

    def __init__(self) -> None:
        self._changes: deque[Change] = deque()
        self._entries = 0
        self._begin_seq = 0
        """Newest record that is not in ``_changes`` any more."""

    def begin(self, seq: int) -> None:
        """Begin after a record."""
        self._begin_seq = seq

    def add(self, change: Change) -> None:
        """Add the next change."""
        self._changes.append(change)
        self._entries += change.entries
        while len(self._changes) > RECORDS_MAX or self._entries > ENTRIES_MAX:
            oldest = self._changes.popleft()
            self._entries -= oldest.entries
            self._begin_seq = oldest.seq

    def after(self, seq: int, up_to_seq: int) -> tuple[Change, ...] | None:
        """Return the changes after ``seq``, up to another; None if some of them are gone."""
        if seq < self._begin_seq:
            return None
        found: list[Change] = []
        for change in reversed(self._changes):
            if change.seq <= seq:
                break
            if change.seq <= up_to_seq:
                found.append(change)
        return tuple(reversed(found))


class _Series:
    """The points of one job, with a least distance that grows with their number."""

    __slots__ = ("_gap_s", "_values")
    _WIDTH = 6

    def __init__(self) -> None:
        self._gap_s = 0.0
        self._values = array("d")

    def add(self, at_s: float, size: int, progress: Progress) -> None:
        values, width = self._values, self._WIDTH
        numbers = (progress.seconds_per_step, progress.loss, progress.accuracy)
        point = (at_s, progress.step, size, *(nan if each is None else each for each in numbers))
        count = len(values) // width
        if count > 1 and values[-4] == size and at_s - values[-2 * width] < self._gap_s:
            del values[-width:]  # it is too close to the one before it: only the newest stays
        values.extend(point)
        if len(values) // width > POINTS_MAX:
            self._thin()

    def _thin(self) -> None:
        width = self._WIDTH
        count = len(self._values) // width
        spared = [number for number in range(count) if number % 2 == 0 or number == count - 1]
        self._values = array(
            "d", [each for n in spared for each in self._values[n * width : (n + 1) * width]]
        )
        self._gap_s = (self._values[-width] - self._values[0]) / (POINTS_MAX / 2)

    def points(self) -> tuple[SeriesPoint, ...]:
        width = self._WIDTH
        rows = (self._values[n : n + width] for n in range(0, len(self._values), width))
        return tuple(
            SeriesPoint(at_s, int(step), int(size), *(x if isfinite(x) else None for x in rest))
            for at_s, step, size, *rest in rows
        )


class SeriesBook:
    """The series of the jobs that reported last."""

    def __init__(self) -> None:
        self._series: dict[JobId, _Series] = {}
        """The job that reported longest ago comes first."""

    def take(self, state: State, record: LogRecord) -> None:
        """Take in the reports of one record. ``state``: after it."""
        for event in record.events:
            if not isinstance(event, ev.SideCarReported):
                continue
            key = JobId(event.observed.job)
            job = state.jobs.get(key)
            if job is None or not job.gpus or not event.observed.progress.step:
                continue
            series = self._series.pop(key, None) or _Series()
            self._series[key] = series
            series.add(record.at_s, len(job.gpus), event.observed.progress)
            if len(self._series) > SERIES_MAX:
                del self._series[next(iter(self._series))]

    def points(self, job: JobId) -> tuple[SeriesPoint, ...]:
        """Return a job's points, oldest first; none if it is not among the newest jobs."""
        series = self._series.get(job)
        return series.points() if series is not None else ()
