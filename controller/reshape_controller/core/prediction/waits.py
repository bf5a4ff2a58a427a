"""The queue as a forecast sees it: how much work waits, and who has waited since when.

Does: counts queued jobs that are predicted alike, and keeps when they were submitted in order.
Never: predicts how long one takes, or orders the queue. State: kept from one forecast to the next.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from reshape_controller.core.model import HostId, JobId
from reshape_controller.core.plan import JobView
from reshape_controller.core.prediction.pace import Pace
from reshape_controller.core.prediction.predictor import Predictor


@dataclass(slots=True, eq=False)
class Same:
    """Queued jobs that count the same."""

    job: JobView
    """One of them, or one that was."""
    count: int = 0


class Waits:
    """One per standing."""

    def __init__(self) -> None:
        self.same: dict[tuple[Pace, HostId | None], Same] = {}
        self._jobs: dict[JobId, JobView] = {}
        self._submitted: list[tuple[float, JobId]] = []
        """Of jobs with the usual longest wait..."""
        self._until_s: dict[JobId, float] = {}
        """...and until when those wait that have one of their own."""

    def put(self, predictor: Predictor, job: JobView) -> None:
        """A job is queued, with this view from now on."""
        self.drop(job.id)
        self._jobs[job.id] = job
        key = (predictor.pace(job), job.only_host)
        same = self.same.get(key)
        if same is None:
            same = self.same[key] = Same(job)
        same.count += 1
        own_s = job.spec.max_wait_s
        if own_s is None:
            insort(self._submitted, (job.submitted_at_s, job.id))
        else:
            self._until_s[job.id] = job.submitted_at_s + own_s

    def drop(self, job_id: JobId) -> None:
        """A job is not queued any more, or with another view."""
        job = self._jobs.pop(job_id, None)
        if job is None:
            return
        assert job.pace is not None
        key = (job.pace, job.only_host)
        same = self.same[key]
        same.count -= 1
        if not same.count:
            del self.same[key]
        if self._until_s.pop(job_id, None) is None:
            row = self._submitted
            del row[bisect_left(row, (job.submitted_at_s, job_id))]

    def overdue(self, queued: Iterable[JobView], now_s: float, usual_s: float) -> list[JobView]:
        """Those of the queue that have waited too long (see ``is_overdue``)."""
        left = len([at_s for at_s in self._until_s.values() if at_s <= now_s])
        left += self._first_in_time(now_s, usual_s)
        found: list[JobView] = []
        for job in queued if left else ():
            if is_overdue(job, now_s, usual_s):
                found.append(job)
                if len(found) == left:
                    break
        return found

    def next_s(self, now_s: float, usual_s: float) -> float:
        """When the next one will have waited too long; infinite: nobody waits in time."""
        at_s = min([at_s for at_s in self._until_s.values() if at_s > now_s], default=inf)
        first = self._first_in_time(now_s, usual_s)
        if first < len(self._submitted):
            at_s = min(at_s, self._submitted[first][0] + usual_s)
        return at_s

    def _first_in_time(self, now_s: float, usual_s: float) -> int:
        """Where the first of those stands that have not waited too long; by bisection of the very
        sum that is compared, for two ways to add up may differ."""
        row, low, high = self._submitted, 0, len(self._submitted)
        while low < high:
            middle = (low + high) // 2
            if row[middle][0] + usual_s <= now_s:
                low = middle + 1
            else:
                high = middle
        return low


def is_overdue(job: JobView, now_s: float, usual_s: float) -> bool:
    """Whether a queued job has waited too long; ``usual_s``: longer than jobs usually should."""
    own_s = job.spec.max_wait_s
    return job.submitted_at_s + (usual_s if own_s is None else own_s) <= now_s
