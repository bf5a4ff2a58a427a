"""The index of the queued jobs: which are of a class, and which have waited too long.

It is updated in place, view by view; ``cluster_index`` says when.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from reshape_controller.core.job_estimate import JobEstimate
from reshape_controller.core.model import HostId, JobId
from reshape_controller.core.plan import JobView
from reshape_controller.scheduling.predictor import Predictor


@dataclass(slots=True, eq=False)
class QueueClass:
    """Queued jobs that share an estimate and may start on the same hosts."""

    jobs: dict[JobId, JobView]

    @property
    def job(self) -> JobView:
        """Any job of the class."""
        return next(iter(self.jobs.values()))


_ClassKey = tuple[JobEstimate, HostId | None, tuple[HostId, ...]]
"""The estimate of a class, the only host on which its jobs may start, and those that they avoid."""


class QueueIndex:
    """The queued jobs: which are of a class, and which have waited too long."""

    def __init__(self) -> None:
        self.classes: dict[_ClassKey, QueueClass] = {}
        self._jobs: dict[JobId, tuple[JobView, JobEstimate]] = {}
        self._submitted: list[tuple[float, JobId]] = []
        """Times of submission, ascending, of the jobs without a longest wait of their own."""
        self._deadlines_s: dict[JobId, float] = {}
        """When the jobs with a longest wait of their own will have waited for so long."""

    def put(self, predictor: Predictor, job: JobView) -> None:
        """Add a job, or replace its view."""
        self.drop(job.id)
        estimate = predictor.estimate(job)
        self._jobs[job.id] = job, estimate
        key = (estimate, job.only_host, job.unfit_on)
        queue_class = self.classes.get(key)
        if queue_class is None:
            queue_class = self.classes[key] = QueueClass({})
        queue_class.jobs[job.id] = job
        max_wait_s = job.spec.max_wait_s
        if max_wait_s is None:
            insort(self._submitted, (job.waits_since_s, job.id))
        else:
            self._deadlines_s[job.id] = job.waits_since_s + max_wait_s

    def drop(self, job_id: JobId) -> None:
        """Remove a job, if it is there."""
        known = self._jobs.pop(job_id, None)
        if known is None:
            return
        job, estimate = known
        key = (estimate, job.only_host, job.unfit_on)
        del self.classes[key].jobs[job_id]
        if not self.classes[key].jobs:
            del self.classes[key]
        if self._deadlines_s.pop(job_id, None) is None:
            submitted = self._submitted
            del submitted[bisect_left(submitted, (job.waits_since_s, job_id))]

    def overdue(
        self, queued: Iterable[JobView], now_s: float, default_wait_s: float
    ) -> list[JobView]:
        """Return the jobs of ``queued`` that are overdue (see ``is_overdue``), in its order."""
        count = len([at_s for at_s in self._deadlines_s.values() if at_s <= now_s])
        count += self._first_in_time(now_s, default_wait_s)
        overdue: list[JobView] = []
        for job in queued if count else ():
            if is_overdue(job, now_s, default_wait_s):
                overdue.append(job)
                if len(overdue) == count:
                    break
        return overdue

    def next_overdue_s(self, now_s: float, default_wait_s: float) -> float:
        """Return when the next job becomes overdue (Unix seconds); infinite: none will."""
        at_s = min([at_s for at_s in self._deadlines_s.values() if at_s > now_s], default=inf)
        first = self._first_in_time(now_s, default_wait_s)
        if first < len(self._submitted):
            at_s = min(at_s, self._submitted[first][0] + default_wait_s)
        return at_s

    def _first_in_time(self, now_s: float, default_wait_s: float) -> int:
        """The position in ``_submitted`` of the first job that is not overdue. The sum is that of
        ``is_overdue``: another order of operations may round to another result."""
        return bisect_right(self._submitted, now_s, key=lambda entry: entry[0] + default_wait_s)


def is_overdue(job: JobView, now_s: float, default_wait_s: float) -> bool:
    """Whether a queued job has waited for its longest wait, or else for ``default_wait_s``."""
    max_wait_s = job.spec.max_wait_s
    return job.waits_since_s + (default_wait_s if max_wait_s is None else max_wait_s) <= now_s
