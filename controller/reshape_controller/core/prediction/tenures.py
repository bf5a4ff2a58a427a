"""The running jobs as a forecast sees them: who has which GPUs until when, kept in order.

Does: renews what is other than before and nothing else: jobs with another view, those whose type
has learned something on which their end depends, and those that should have trained by now. Never:
predicts an end, or differs from what the same views give at once (a test compares). State: kept
from one forecast to the next. Moments are whole milliseconds.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from reshape_controller.core.model import JobId, Mechanism
from reshape_controller.core.places import Places
from reshape_controller.core.plan import JobView
from reshape_controller.core.prediction.alike import Alike, Tenure, Traits
from reshape_controller.core.prediction.pace import Pace
from reshape_controller.core.prediction.predictor import Predictor
from reshape_controller.core.prediction.profiles import Answers, ProfileBook
from reshape_profiles.schema import Overhead


@dataclass(slots=True, eq=False)
class _Type:
    """Running jobs of a type, and what was known of it when their ends were predicted."""

    answers: Answers
    cost: Overhead
    jobs: dict[JobId, Tenure] = field(default_factory=dict)


class Tenures:
    """One for each list of hosts."""

    def __init__(self, places: Places, mechanism: Mechanism) -> None:
        self._places, self._reshapes = places, mechanism is not Mechanism.NONE
        self.by_job: dict[JobId, Tenure] = {}
        self.on_host: list[dict[JobId, Tenure]] = [{} for _ in places.type_of]
        self.used = [0] * len(places.type_of)
        """GPUs of running jobs, by host."""
        self.ends: list[tuple[int, JobId]] = []
        """Moments at which jobs will have left, in order."""
        self.free: list[list[int]] = [[] for _ in places.types]
        """The same for each GPU that has a host, by GPU type."""
        self.from_now: dict[JobId, Tenure] = {}
        """Jobs whose ends are no moments."""
        self.sum_ms = self.busy_sum_ms = self.busy = 0
        """Sums of the moments; of those on hosts for each GPU; and how many GPUs that are."""
        self.alike: dict[Traits, Alike] = {}
        """Jobs that a plan may name."""
        self.reshaped: dict[JobId, Tenure] = {}
        """Jobs that could give GPUs, but were reshaped or refused to be."""
        self._types: dict[str | None, _Type] = {}
        self._unnamed: dict[JobId, Tenure] = {}
        """Jobs that no plan may name."""

    @property
    def count(self) -> int:
        """How many ends are moments."""
        return len(self.by_job) - len(self.from_now)

    @property
    def costs(self) -> list[Overhead]:
        """What is known of the types of the jobs."""
        return [known.cost for known in self._types.values() if known.jobs]

    def put(self, predictor: Predictor, job: JobView) -> None:
        """A job runs, with this view from now on."""
        self.drop(job.id)
        places, pace = self._places, predictor.pace(job)
        end, is_moment = predictor.ending(job)
        host = places.numbers.get(job.host, -1) if job.host is not None else -1
        kind = places.type_of[host] if host >= 0 else len(places.types)
        leave_s = pace.stay_s + pace.cost.job_stop_s + pace.cost.job_init_s
        tenure = Tenure(
            job, host, kind, end, is_moment, pace.until_s, pace.own, pace.stay_s, leave_s
        )
        self.by_job[job.id] = tenure
        self._of_type(job, pace).jobs[job.id] = tenure
        if host >= 0:
            self.on_host[host][job.id] = tenure
            self.used[host] += job.size
        if host >= 0 and self._reshapes and not job.frozen:
            self._join(tenure, pace.trains)
        else:
            self._unnamed[job.id] = tenure
        if not is_moment:
            self.from_now[job.id] = tenure
            return
        insort(self.ends, (end, job.id))
        self.sum_ms += end
        if host >= 0:
            row = self.free[kind]
            at = bisect_left(row, end)
            for _ in range(job.size):
                row.insert(at, end)
            self.busy += job.size
            self.busy_sum_ms += job.size * end

    def drop(self, job_id: JobId) -> None:
        """A job runs no more, or with another view."""
        tenure = self.by_job.pop(job_id, None)
        if tenure is None:
            return
        job, alike = tenure.job, tenure.alike
        del self._types[job.spec.job_type].jobs[job_id]
        if tenure.host >= 0:
            del self.on_host[tenure.host][job_id]
            self.used[tenure.host] -= job.size
        if alike is not None:
            alike.drop(tenure)
            if not alike.row:
                del self.alike[alike.traits]
            self.reshaped.pop(job_id, None)
        else:
            del self._unnamed[job_id]
        if not tenure.is_moment:
            del self.from_now[job_id]
            return
        end = tenure.end_ms
        del self.ends[bisect_left(self.ends, (end, job_id))]
        self.sum_ms -= end
        if tenure.host >= 0:
            row = self.free[tenure.kind]
            at = bisect_left(row, end)
            for _ in range(job.size):
                row.pop(at)
            self.busy -= job.size
            self.busy_sum_ms -= job.size * end

    def learned(self, predictor: Predictor, book: ProfileBook) -> None:
        """Something else is known of a type, maybe of several."""
        for kind, known in self._types.items():
            answers, before = book.answers(kind), known.answers
            if answers is before:
                continue
            cost = book.overhead(kind)
            all_new, known.answers = cost != known.cost, answers
            known.cost = cost
            if not all_new and answers.tables is before.tables:
                continue
            for tenure in list(known.jobs.values()):
                if all_new or not tenure.own:
                    self.put(predictor, tenure.job)

    def until(self, predictor: Predictor, now_s: float) -> None:
        """Jobs that should have trained by now end so long after whenever it is asked."""
        late = [tenure for tenure in self._unnamed.values() if tenure.until_s <= now_s]
        for alike in self.alike.values():
            for until_s, _, tenure in alike.row if alike.trains else ():
                if until_s > now_s:
                    break
                late.append(tenure)
        for tenure in late:
            if tenure.is_moment:
                self.put(predictor, tenure.job)

    def _join(self, tenure: Tenure, trains: bool) -> None:
        job = tenure.job
        traits = (
            tenure.kind,
            job.spec.job_type,
            job.size,
            job.sizes,
            trains,
            job.growable,
            len(job.measured) > 1,
        )
        alike = self.alike.get(traits)
        if alike is None:
            alike = self.alike[traits] = Alike(traits)
        alike.put(tenure)
        tenure.alike = alike
        if alike.gifts and (job.reshaped_at_s is not None or job.no_shrink_before_s > 0.0):
            self.reshaped[job.id] = tenure

    def _of_type(self, job: JobView, pace: Pace) -> _Type:
        kind = job.spec.job_type
        known = self._types.get(kind)
        if known is None:
            known = self._types[kind] = _Type(pace.answers, pace.cost)
        return known
