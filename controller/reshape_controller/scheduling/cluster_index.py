"""The index of a cluster's jobs: running jobs by their ends, queued jobs by their work and waits.

``RunningIndex`` is updated in place, view by view. ``ClusterIndex`` holds it, the ``QueueIndex``,
and the jobs' estimates. A planner has one: it follows a state from snapshot to snapshot and takes
in the views that have changed, what the profiles have learned, and the time. For a snapshot without
an index, and for one that does not follow the last one, it is built from nothing. Both ways give
the same index; a test compares them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from reshape_controller.core.job_estimate import Estimates, JobEstimate
from reshape_controller.core.model import HostId, JobId, Mechanism, Spans
from reshape_controller.core.plan import HostView, JobView, Snapshot
from reshape_controller.core.profile_book import Answers, ProfileBook
from reshape_controller.scheduling.predictor import ROUNDING_MS, Predictor
from reshape_controller.scheduling.queue_index import QueueIndex
from reshape_profiles.schema import Overhead
from reshape_sidecar.wire import StartKind

CHANGED_MIN = 1000
"""With more changed views than this, and than twice the jobs, the index is built again."""


ADDED_MIN = 100
"""After more new jobs than this, and than twice its jobs, a class begins its cache again."""


@dataclass(frozen=True, slots=True, eq=False)
class HostNumbering:
    """The usable hosts by number, in their order. Loops over all hosts index lists by number
    instead of looking each host up by its id."""

    numbers: dict[HostId, int]
    types: tuple[str, ...]
    """GPU types, in alphabetical order."""
    type_of: tuple[int, ...]
    """For each host the number of its GPU type."""

    @staticmethod
    def of(hosts: Iterable[HostView]) -> HostNumbering:
        """Number these hosts."""
        types_of_hosts = {host.id: host.gpu_type for host in hosts}
        types = tuple(sorted(set(types_of_hosts.values())))
        numbers = {host: number for number, host in enumerate(types_of_hosts)}
        return HostNumbering(numbers, types, tuple(map(types.index, types_of_hosts.values())))


class ClassKey(NamedTuple):
    """The values in which all jobs of a class agree."""

    type_number: int
    """The GPU type, by number."""
    job_type: str | None
    size: int
    sizes: tuple[int, ...]
    trains: bool
    """Whether the jobs train and their remaining steps are known."""
    growable: bool
    """Whether their lengths are known."""
    own_speeds: bool
    """Whether each job was measured at several sizes, so that its slowdown is its own."""
    start: StartKind
    pinned: bool
    """Whether a user has pinned the jobs to a size."""


@dataclass(slots=True, eq=False)
class RunningEntry:
    """A running job in the index: the GPUs that it has, and its predicted times."""

    job: JobView
    host_number: int
    """The number of its host; -1 if the host cannot be used."""
    type_number: int
    """The number of its GPU type; without a usable host, the number after the last type."""
    gpus: int
    """Its GPUs on usable hosts."""
    end_ms: int
    """When it will have left: Unix milliseconds if ``is_absolute``, else milliseconds from now."""
    is_absolute: bool
    train_end_s: float
    """Predicted end of training (Unix seconds)."""
    own_end: bool
    """True if ``train_end_s`` follows from the job's own measurements only."""
    in_place_s: float
    """Seconds without training in a reshape whose container stays."""
    restart_s: float
    """Seconds without training in a reshape whose container ends."""
    min_slowdown: float = -1.0
    """By what part an iteration gets longer at the job's best smaller size; negative: unknown."""
    job_class: RunningClass | None = None
    """The class of the job; None if no plan may name it, and of a gang."""
    parts: dict[int, int] | None = None
    """Of a gang, its GPUs by the number of each usable host; None: all are on its host."""

    @property
    def is_cheap(self) -> bool:
        """Whether a reshape costs so little that rounding could decide at the end of training."""
        return self.in_place_s * 1000.0 <= ROUNDING_MS

    def gpus_on(self, host: int) -> int:
        """Return how many GPUs the job has on one of its hosts."""
        return self.job.size if self.parts is None else self.parts[host]

    def end_from_now_ms(self, now_ms: int) -> int:
        """Return when the job will have left, in milliseconds from now."""
        return self.end_ms - now_ms if self.is_absolute else self.end_ms


@dataclass(slots=True, eq=False)
class BoundCache:
    """What the bounds know of a class of jobs. Only ``bounds`` fills and reads it."""

    min_saving_ms: object
    """The policy's function for which it holds."""
    slowdown: float
    """By what part an iteration gets longer for each of the jobs, at least."""
    pending: list[RunningEntry]
    """Jobs whose own slowdown is not computed yet."""
    growth: dict[tuple[tuple[str, int], ...], list[RunningEntry]] = field(default_factory=dict)
    """Jobs that growth may be worth it for, by the largest size that is idle on each GPU type."""
    added: int = 0
    """How many jobs the class got since."""


@dataclass(slots=True, eq=False)
class SettledGrowth:
    """Idle GPUs with which growth is worth it for none of the running jobs. Only ``bounds`` makes
    it, and looks at the jobs that were put into the index since."""

    min_saving_ms: object
    """The policy's function for which it holds."""
    idle: dict[int, int]
    """Idle GPUs by the number of the host."""
    most: dict[str, int]
    """The most idle GPUs of a host, by GPU type."""
    added: list[RunningEntry] = field(default_factory=list)
    """Jobs that the index got since."""


class RunningClass:
    """The running jobs with one key, sorted by the predicted end of their training. They differ in
    their times only."""

    def __init__(self, key: ClassKey) -> None:
        self.key = key
        self.type_number, self.size, self.sizes = key.type_number, key.size, key.sizes
        self.trains, self.growable, self.own_speeds = key.trains, key.growable, key.own_speeds
        self.releases = tuple([self.size - keeps for keeps in self.sizes if keeps < self.size])
        """How many GPUs each of the jobs can release, the most first."""
        self.release_key = (self.type_number, self.releases)
        """What the gain of a donor depends on."""
        self.entries: list[tuple[float, JobId, RunningEntry]] = []
        """End of training, id and entry of each job, ascending."""
        self.bound_cache: BoundCache | None = None

    def add(self, entry: RunningEntry) -> None:
        """Add a job."""
        insort(self.entries, (entry.train_end_s, entry.job.id, entry))
        cache = self.bound_cache
        if cache is not None:
            cache.pending.append(entry)
            for jobs in cache.growth.values():
                jobs.append(entry)
            cache.added += 1
            if cache.added > 2 * len(self.entries) + ADDED_MIN:
                self.bound_cache = None  # it holds too many jobs that have left

    def remove(self, entry: RunningEntry) -> None:
        """Remove a job."""
        del self.entries[bisect_left(self.entries, (entry.train_end_s, entry.job.id, entry))]


@dataclass(slots=True, eq=False)
class _TypeEntry:
    """The running jobs of a job type, and the profile with which their ends were predicted."""

    answers: Answers
    costs: dict[StartKind, Overhead]
    jobs: dict[JobId, RunningEntry] = field(default_factory=dict)


class RunningIndex:
    """The running jobs on one list of hosts. Ends that are absolute are kept in order."""

    def __init__(self, numbering: HostNumbering, mechanism: Mechanism) -> None:
        self._numbering, self._can_reshape = numbering, mechanism is not Mechanism.NONE
        self.by_job: dict[JobId, RunningEntry] = {}
        self.on_host: list[dict[JobId, RunningEntry]] = [{} for _ in numbering.type_of]
        """The jobs on each host."""
        self.gpus_on_host = [0] * len(numbering.type_of)
        """GPUs of running jobs, by host."""
        self.ends: list[tuple[int, JobId]] = []
        """Absolute ends (Unix milliseconds) with the job, ascending."""
        self.gpu_ends: list[list[int]] = [[] for _ in numbering.types]
        """For each GPU type, the absolute end of its job for each GPU on a usable host,
        ascending."""
        self.relative: dict[JobId, RunningEntry] = {}
        """Jobs whose ends are relative to now."""
        self.ends_sum_ms = 0
        """The sum of ``ends``."""
        self.gpu_ends_sum_ms = 0
        """The sum of ``gpu_ends`` over all types."""
        self.gpu_count = 0
        """The number of GPUs in ``gpu_ends``."""
        self.settled_growth: SettledGrowth | None = None
        """None if growth may be worth it for any job."""
        self.classes: dict[ClassKey, RunningClass] = {}
        """The jobs that a plan may name, by class."""
        self.maybe_cooling: dict[JobId, RunningEntry] = {}
        """Jobs that could release GPUs, but were reshaped before or refused to be."""
        self._types: dict[str | None, _TypeEntry] = {}
        self._fixed: dict[JobId, RunningEntry] = {}
        """Jobs that are in no class: no plan may name them, or they are gangs."""
        self.gangs: dict[JobId, RunningEntry] = {}
        """The jobs on several hosts."""
        self.may_span: dict[JobId, RunningEntry] = {}
        """The jobs that may be on several hosts, whether they are or not."""

    @property
    def absolute_count(self) -> int:
        """The number of jobs whose ends are absolute."""
        return len(self.by_job) - len(self.relative)

    @property
    def costs(self) -> list[Overhead]:
        """The costs of all job types of which a job runs."""
        return [entry.costs[StartKind.COLD] for entry in self._types.values() if entry.jobs]

    def put(self, predictor: Predictor, job: JobView) -> None:
        """Add a job, or replace its view."""
        self.drop(job.id)
        numbering, estimate = self._numbering, predictor.estimate(job)
        end, is_absolute = predictor.end_of(job)
        host = numbering.numbers.get(job.host, -1) if job.host is not None else -1
        parts = self._parts(job) if job.shares else None
        on_usable = next(iter(parts), -1) if parts is not None else host
        type_number = numbering.type_of[on_usable] if on_usable >= 0 else len(numbering.types)
        gpus = sum(parts.values()) if parts is not None else job.size if host >= 0 else 0
        entry = RunningEntry(
            job,
            host,
            type_number,
            gpus,
            end,
            is_absolute,
            estimate.train_end_s,
            estimate.own_end,
            estimate.in_place_s,
            estimate.restart_s,
        )
        self.by_job[job.id] = entry
        if self.settled_growth is not None:
            self.settled_growth.added.append(entry)
        self._type_entry(job, estimate).jobs[job.id] = entry
        if parts is not None:
            entry.parts = parts
            self.gangs[job.id] = entry
            for part, count in parts.items():
                self.on_host[part][job.id] = entry
                self.gpus_on_host[part] += count
        elif host >= 0:
            self.on_host[host][job.id] = entry
            self.gpus_on_host[host] += job.size
        if job.spec.span is not Spans.NEVER:
            self.may_span[job.id] = entry
        if host >= 0 and self._can_reshape and not job.frozen and not job.shares:
            self._add_to_class(entry, estimate.trains)
        else:
            self._fixed[job.id] = entry
        if not is_absolute:
            self.relative[job.id] = entry
            return
        insort(self.ends, (end, job.id))
        self.ends_sum_ms += end
        if gpus:
            gpu_ends = self.gpu_ends[type_number]
            at = bisect_left(gpu_ends, end)
            gpu_ends[at:at] = [end] * gpus
            self.gpu_count += gpus
            self.gpu_ends_sum_ms += gpus * end

    def drop(self, job_id: JobId) -> None:
        """Remove a job, if it is there."""
        entry = self.by_job.pop(job_id, None)
        if entry is None:
            return
        job, job_class = entry.job, entry.job_class
        del self._types[job.spec.job_type].jobs[job_id]
        self.may_span.pop(job_id, None)
        if entry.parts is not None:
            del self.gangs[job_id]
            for part, count in entry.parts.items():
                del self.on_host[part][job_id]
                self.gpus_on_host[part] -= count
        elif entry.host_number >= 0:
            del self.on_host[entry.host_number][job_id]
            self.gpus_on_host[entry.host_number] -= job.size
        if job_class is not None:
            job_class.remove(entry)
            if not job_class.entries:
                del self.classes[job_class.key]
            self.maybe_cooling.pop(job_id, None)
        else:
            del self._fixed[job_id]
        if not entry.is_absolute:
            del self.relative[job_id]
            return
        end, gpus = entry.end_ms, entry.gpus
        del self.ends[bisect_left(self.ends, (end, job_id))]
        self.ends_sum_ms -= end
        if gpus:
            gpu_ends = self.gpu_ends[entry.type_number]
            at = bisect_left(gpu_ends, end)
            del gpu_ends[at : at + gpus]
            self.gpu_count -= gpus
            self.gpu_ends_sum_ms -= gpus * end

    def _parts(self, job: JobView) -> dict[int, int]:
        """Return the GPUs of a gang on each of its usable hosts, by the host's number."""
        each, numbers = job.size // job.spec.workers, self._numbering.numbers
        usable = [share for share in job.shares if share.host in numbers]
        return {numbers[share.host]: share.workers * each for share in usable}

    def update_types(self, predictor: Predictor, book: ProfileBook) -> None:
        """Predict again the jobs whose ends depend on what a new profile book says of their
        type."""
        for job_type, type_entry in self._types.items():
            answers, before = book.answers(job_type), type_entry.answers
            if answers is before:
                continue
            costs = book.overheads(job_type)
            costs_changed, type_entry.answers = costs != type_entry.costs, answers
            type_entry.costs = costs
            if not costs_changed and answers.tables is before.tables:
                continue
            if answers.tables is not before.tables:
                self.settled_growth = None
                for job_class in self.classes.values():
                    if job_class.key.job_type == job_type:
                        job_class.bound_cache = None
            for entry in list(type_entry.jobs.values()):
                if costs_changed or not entry.own_end:
                    self.put(predictor, entry.job)

    def advance(self, predictor: Predictor, now_s: float) -> None:
        """Make the ends of the jobs relative that should have trained by ``now_s``."""
        late = [entry for entry in self._fixed.values() if entry.train_end_s <= now_s]
        for job_class in self.classes.values():
            if job_class.trains and job_class.entries[0][0] <= now_s:
                late += [entry for end_s, _, entry in job_class.entries if end_s <= now_s]
        for entry in late:
            if entry.is_absolute:
                self.put(predictor, entry.job)

    def _add_to_class(self, entry: RunningEntry, trains: bool) -> None:
        job = entry.job
        key = ClassKey(
            entry.type_number,
            job.spec.job_type,
            job.size,
            job.sizes,
            trains,
            job.growable,
            len(job.measured) > 1,
            job.start,
            job.pinned,
        )
        job_class = self.classes.get(key)
        if job_class is None:
            job_class = self.classes[key] = RunningClass(key)
        job_class.add(entry)
        entry.job_class = job_class
        if job_class.releases and (job.reshaped_at_s is not None or job.no_shrink_before_s > 0.0):
            self.maybe_cooling[job.id] = entry

    def _type_entry(self, job: JobView, estimate: JobEstimate) -> _TypeEntry:
        job_type = job.spec.job_type
        entry = self._types.get(job_type)
        if entry is None:
            costs = estimate.book.overheads(job_type)
            entry = self._types[job_type] = _TypeEntry(estimate.answers, costs)
        return entry


class ClusterIndex:
    """The running and the queued jobs of a state, or of a snapshot that belongs to none."""

    def __init__(self) -> None:
        self._estimates = Estimates()
        self.numbering = HostNumbering.of(())
        self.running_index = RunningIndex(self.numbering, Mechanism.NONE)
        self.queue_index = QueueIndex()
        self._jobs: tuple[tuple[JobView, ...], tuple[JobView, ...]] = ((), ())
        """Queued and running jobs of the newest snapshot, for which alone the index holds."""
        self._taken: Snapshot | None = None
        """The last snapshot that ``of`` brought the index up to; None: it holds no jobs yet."""
        self.changed: dict[JobId, JobView | None] = {}
        """Views that have changed since ``_taken``; None: the job is neither queued nor running."""

    def follow(self, snapshot: Snapshot, changed: dict[JobId, JobView | None]) -> Snapshot:
        """Return a state's next snapshot with this index. ``changed``: the views that have changed
        since the last call; None: the job is neither queued nor running."""
        self._jobs = snapshot.queued, snapshot.running
        for job_id in changed:
            self._estimates.by_job.pop(job_id, None)
        if self._taken is not None:
            self.changed |= changed
            count = len(self.changed)
            if count > CHANGED_MIN and count > 2 * sum(map(len, self._jobs)) + CHANGED_MIN:
                self._taken, self.changed = None, {}
        return snapshot if snapshot.index is self else replace(snapshot, index=self)

    def estimates(self, snapshot: Snapshot) -> Estimates:
        """Return the estimates of the snapshot's jobs: the index's own, unless it is for a newer
        snapshot."""
        return self._estimates if self._is_for(snapshot) else Estimates()

    @staticmethod
    def of(snapshot: Snapshot, predictor: Predictor) -> ClusterIndex:
        """Return the index of a snapshot: the planner's, brought up to date, or else a new one."""
        index = snapshot.index
        if not isinstance(index, ClusterIndex) or not index._is_for(snapshot):
            index = ClusterIndex()
        index._take(snapshot, predictor)
        return index

    def _take(self, snapshot: Snapshot, predictor: Predictor) -> None:
        """Bring the index up to ``snapshot``."""
        taken = self._taken
        if taken is None or not self._can_follow(taken, snapshot):
            self.numbering = HostNumbering.of(snapshot.hosts)
            self.running_index = RunningIndex(self.numbering, snapshot.mechanism)
            self.queue_index = QueueIndex()
            running: Iterable[JobView] = snapshot.running
            queued: Iterable[JobView] = snapshot.queued
        else:
            for job_id in self.changed:
                self.running_index.drop(job_id)
                self.queue_index.drop(job_id)
            if taken.profiles is not snapshot.profiles:
                self.running_index.update_types(predictor, snapshot.profiles)
            views = [view for view in self.changed.values() if view is not None]
            running = [view for view in views if view.size]
            queued = [view for view in views if not view.size]
        for job in running:
            self.running_index.put(predictor, job)
        for job in queued:
            self.queue_index.put(predictor, job)
        self._taken, self.changed = snapshot, {}
        self.running_index.advance(predictor, snapshot.now_s)

    def _is_for(self, snapshot: Snapshot) -> bool:
        """Whether the jobs of the snapshot are those of the newest one."""
        return self._jobs[0] is snapshot.queued and self._jobs[1] is snapshot.running

    def _can_follow(self, before: Snapshot, snapshot: Snapshot) -> bool:
        """Whether only views, profiles and the time differ from those of ``before``."""
        return (
            before.mechanism is snapshot.mechanism
            and before.now_s <= snapshot.now_s
            and _have_same_numbers(before.hosts, snapshot.hosts)
        )


def _have_same_numbers(before: tuple[HostView, ...], hosts: tuple[HostView, ...]) -> bool:
    """Whether a numbering of the hosts as they were before holds for ``hosts``."""
    if before is hosts:
        return True
    changed = [(old, new) for old, new in zip(before, hosts, strict=False) if old is not new]
    return len(before) == len(hosts) and all(
        old.id == new.id and old.gpu_type == new.gpu_type for old, new in changed
    )
