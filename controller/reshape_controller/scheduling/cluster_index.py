"""What a forecast keeps for the next one: the running jobs and the queue, as they stood.

Does: takes in which views were renewed since, and what was learned; is made from nothing for a
snapshot that is not the next one of the same state. Never: differs from what is made from nothing
(a test compares). State: in ``Snapshot.kept``, which only this module reads.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from reshape_controller.core.host_numbering import HostNumbering
from reshape_controller.core.job_estimate import JobEstimate
from reshape_controller.core.model import HostId, JobId, Mechanism
from reshape_controller.core.plan import IndexCache, JobView, Snapshot
from reshape_controller.core.profile_book import Answers, ProfileBook
from reshape_controller.scheduling.predictor import Predictor
from reshape_controller.scheduling.running_classes import ClassKey, RunningClass, RunningEntry
from reshape_profiles.schema import Overhead


@dataclass(slots=True, eq=False)
class QueueClass:
    """Queued jobs that count the same."""

    job: JobView
    """One of them, or one that was."""
    count: int = 0


class QueueIndex:
    """One per standing."""

    def __init__(self) -> None:
        self.same: dict[tuple[JobEstimate, HostId | None], QueueClass] = {}
        self._jobs: dict[JobId, JobView] = {}
        self._submitted: list[tuple[float, JobId]] = []
        """Of jobs with the usual longest wait..."""
        self._until_s: dict[JobId, float] = {}
        """...and until when those wait that have one of their own."""

    def put(self, predictor: Predictor, job: JobView) -> None:
        """A job is queued, with this view from now on."""
        self.drop(job.id)
        self._jobs[job.id] = job
        key = (predictor.estimate(job), job.only_host)
        same = self.same.get(key)
        if same is None:
            same = self.same[key] = QueueClass(job)
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
        assert job.estimate is not None
        key = (job.estimate, job.only_host)
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


@dataclass(slots=True, eq=False)
class _Type:
    """Running jobs of a type, and what was known of it when their ends were predicted."""

    answers: Answers
    cost: Overhead
    jobs: dict[JobId, RunningEntry] = field(default_factory=dict)


class RunningIndex:
    """One for each list of hosts."""

    def __init__(self, numbering: HostNumbering, mechanism: Mechanism) -> None:
        self._numbering, self._reshapes = numbering, mechanism is not Mechanism.NONE
        self.by_job: dict[JobId, RunningEntry] = {}
        self.on_host: list[dict[JobId, RunningEntry]] = [{} for _ in numbering.type_of]
        self.used = [0] * len(numbering.type_of)
        """GPUs of running jobs, by host."""
        self.ends: list[tuple[int, JobId]] = []
        """Moments at which jobs will have left, in order."""
        self.free: list[list[int]] = [[] for _ in numbering.types]
        """The same for each GPU that has a host, by GPU type."""
        self.from_now: dict[JobId, RunningEntry] = {}
        """Jobs whose ends are no moments."""
        self.sum_ms = self.busy_sum_ms = self.busy = 0
        """Sums of the moments; of those on hosts for each GPU; and how many GPUs that are."""
        self.classes: dict[ClassKey, RunningClass] = {}
        """Jobs that a plan may name."""
        self.reshaped: dict[JobId, RunningEntry] = {}
        """Jobs that could give GPUs, but were reshaped or refused to be."""
        self._types: dict[str | None, _Type] = {}
        self._unnamed: dict[JobId, RunningEntry] = {}
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
        numbering, estimate = self._numbering, predictor.estimate(job)
        end, is_moment = predictor.end_of(job)
        host = numbering.numbers.get(job.host, -1) if job.host is not None else -1
        kind = numbering.type_of[host] if host >= 0 else len(numbering.types)
        leave_s = estimate.in_place_s + estimate.cost.job_stop_s + estimate.cost.job_init_s
        entry = RunningEntry(
            job,
            host,
            kind,
            end,
            is_moment,
            estimate.train_end_s,
            estimate.own_end,
            estimate.in_place_s,
            leave_s,
        )
        self.by_job[job.id] = entry
        self._of_type(job, estimate).jobs[job.id] = entry
        if host >= 0:
            self.on_host[host][job.id] = entry
            self.used[host] += job.size
        if host >= 0 and self._reshapes and not job.frozen:
            self._join(entry, estimate.trains)
        else:
            self._unnamed[job.id] = entry
        if not is_moment:
            self.from_now[job.id] = entry
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
        entry = self.by_job.pop(job_id, None)
        if entry is None:
            return
        job, job_class = entry.job, entry.job_class
        del self._types[job.spec.job_type].jobs[job_id]
        if entry.host >= 0:
            del self.on_host[entry.host][job_id]
            self.used[entry.host] -= job.size
        if job_class is not None:
            job_class.drop(entry)
            if not job_class.row:
                del self.classes[job_class.traits]
            self.reshaped.pop(job_id, None)
        else:
            del self._unnamed[job_id]
        if not entry.is_moment:
            del self.from_now[job_id]
            return
        end = entry.end_ms
        del self.ends[bisect_left(self.ends, (end, job_id))]
        self.sum_ms -= end
        if entry.host >= 0:
            row = self.free[entry.kind]
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
            for entry in list(known.jobs.values()):
                if all_new or not entry.own:
                    self.put(predictor, entry.job)

    def until(self, predictor: Predictor, now_s: float) -> None:
        """Jobs that should have trained by now end so long after whenever it is asked."""
        late = [entry for entry in self._unnamed.values() if entry.until_s <= now_s]
        for job_class in self.classes.values():
            for until_s, _, entry in job_class.row if job_class.trains else ():
                if until_s > now_s:
                    break
                late.append(entry)
        for entry in late:
            if entry.is_moment:
                self.put(predictor, entry.job)

    def _join(self, entry: RunningEntry, trains: bool) -> None:
        job = entry.job
        traits = (
            entry.kind,
            job.spec.job_type,
            job.size,
            job.sizes,
            trains,
            job.growable,
            len(job.measured) > 1,
        )
        job_class = self.classes.get(traits)
        if job_class is None:
            job_class = self.classes[traits] = RunningClass(traits)
        job_class.put(entry)
        entry.job_class = job_class
        if job_class.gifts and (job.reshaped_at_s is not None or job.no_shrink_before_s > 0.0):
            self.reshaped[job.id] = entry

    def _of_type(self, job: JobView, estimate: JobEstimate) -> _Type:
        kind = job.spec.job_type
        known = self._types.get(kind)
        if known is None:
            known = self._types[kind] = _Type(estimate.answers, estimate.cost)
        return known


class ClusterIndex:
    """One per state, or per snapshot that is of none."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._mechanism = snapshot.mechanism
        self.numbering = snapshot.numbering
        self._now_s = -inf
        self._book: ProfileBook | None = None
        self.running_index = RunningIndex(self.numbering, snapshot.mechanism)
        self.queue_index = QueueIndex()

    @staticmethod
    def of(snapshot: Snapshot, predictor: Predictor) -> ClusterIndex:
        """How the jobs of a snapshot stand."""
        kept, known = snapshot.kept, None
        if kept is not None:
            queued, running = kept.shown
            if queued is not snapshot.queued or running is not snapshot.running:
                kept = None
            elif isinstance(kept.index, ClusterIndex) and kept.index._leads_to(snapshot):
                known = kept.index
        if known is None or kept is None:
            known = ClusterIndex(snapshot)
            known._see(predictor, snapshot.running, snapshot.queued)
        else:
            known._renew(predictor, snapshot.profiles, kept)
        if kept is not None:
            kept.index = known
            kept.running.clear()
            kept.queued.clear()
        known._book, known._now_s = snapshot.profiles, snapshot.now_s
        known.running_index.until(predictor, snapshot.now_s)
        return known

    def _leads_to(self, snapshot: Snapshot) -> bool:
        """Whether nothing is other than before but views, what was learned, and the time."""
        return (
            self.numbering is snapshot.kept_numbering
            and self._mechanism is snapshot.mechanism
            and self._now_s <= snapshot.now_s
        )

    def _see(
        self, predictor: Predictor, running: Iterable[JobView], queued: Iterable[JobView]
    ) -> None:
        for job in running:
            self.running_index.put(predictor, job)
        for job in queued:
            self.queue_index.put(predictor, job)

    def _renew(self, predictor: Predictor, book: ProfileBook, kept: IndexCache) -> None:
        for job_id in kept.running:
            self.running_index.drop(job_id)
        for job_id in kept.queued:
            self.queue_index.drop(job_id)
        if book is not self._book:
            self.running_index.learned(predictor, book)
        running = [job for job in kept.running.values() if job is not None]
        queued = [job for job in kept.queued.values() if job is not None]
        self._see(predictor, running, queued)
