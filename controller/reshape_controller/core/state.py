"""The engine's state: jobs, GPUs and hosts by id, the profile book, limits, and deadlines.

Does: replaces values, which are frozen; records the changes for projections and snapshots; finds
the earliest deadline; dumps and loads itself.
"""

from __future__ import annotations

import copy
import heapq
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf

from reshape_controller.core.changes import ChangeSet
from reshape_controller.core.knowledge import Learned, Voice
from reshape_controller.core.limits import Limits
from reshape_controller.core.model import (
    Gpu,
    GpuId,
    GpuState,
    Host,
    HostId,
    Job,
    JobId,
    Mechanism,
)
from reshape_controller.core.plan import Index, Snapshot
from reshape_controller.core.profile_book import ProfileBook
from reshape_controller.core.record import HistoryEntry
from reshape_controller.core.snapshot_builder import SnapshotBuilder, is_queued
from reshape_profiles.schema import Profile
from reshape_sidecar import codec

_PART_ROWS = 1000
_PART_CHARS = 256 * 1024
"""Characters of a part of a dump: at most 1 MiB of UTF-8, a quarter of what a store takes."""
RECENT_MAX = 10
"""Most history entries of each job that are remembered for the text of a defect."""
DUE_MAX = 4
"""Most heap entries for each job and GPU; with more, the entries of void deadlines are dropped."""


@dataclass(frozen=True, slots=True)
class _Head:
    epoch: int
    now_s: float
    policy: str
    mechanism: Mechanism
    limits: Limits
    next_place: int
    plan_wanted: bool
    seed: int = 0
    wake_at_s: float | None = None
    looked_up_to: JobId | None = None


class State:
    """Live jobs, GPUs and hosts. Jobs that have ended are dropped; the projections have them."""

    def __init__(self) -> None:
        self.epoch = 0
        self.now_s = 0.0
        self.policy = ""
        self.mechanism = Mechanism.SIDECAR
        self.limits = Limits()
        self.next_place = 1
        self.plan_wanted = False
        self.seed = 0
        self.wake_at_s: float | None = None
        """Time of the next plan, even if nothing happens until then."""
        self.looked_up_to: JobId | None = None
        """The last queued job that the newest plan looked at (``Plan.looked_up_to``)."""
        self._profiles = ProfileBook()
        self.jobs: dict[JobId, Job] = {}
        self.gpus: dict[GpuId, Gpu] = {}
        self.hosts: dict[HostId, Host] = {}
        self.ended: dict[JobId, Job] = {}
        """Dropped jobs that still need their last projection, which the loop then takes out."""
        self.pending_shrinks: dict[JobId, None] = {}
        """Jobs with a hand-over from donors that have not been asked to shrink yet."""
        self._priorities: dict[int, int] = {}
        """Number of live jobs of each priority."""
        self._unanswered: dict[JobId, None] = {}
        self._queued: dict[JobId, None] = {}
        self._settled: dict[JobId, None] = {}
        self._idle: dict[GpuId, None] = {}
        self.snapshot_builder = SnapshotBuilder(self.jobs, self.gpus, self.hosts, self._idle)
        self._changes = ChangeSet()
        self._due: list[tuple[float, str]] = []
        self._recent: dict[JobId, deque[HistoryEntry]] = {}
        """Last history entries of each job, since this state was made or loaded."""

    @property
    def profiles(self) -> ProfileBook:
        """The profile book; setting another records the job types that it changes."""
        return self._profiles

    @profiles.setter
    def profiles(self, book: ProfileBook) -> None:
        before, self._profiles = self._profiles, book
        if book.profiles is not before.profiles:
            self._changes.add_types(before.profiles, book.profiles)
        self._changes.add_types(before.learned, book.learned)

    @property
    def observing(self) -> bool:
        """Whether an attempt has not answered since the controller started (R6)."""
        return bool(self._unanswered)

    @property
    def unanswered(self) -> tuple[JobId, ...]:
        """Jobs whose attempt has not answered since the controller started (R6)."""
        return tuple(self._unanswered)

    @property
    def any_idle(self) -> bool:
        """Whether a GPU has no owner and is promised to no job."""
        return bool(self._idle)

    @property
    def any_queued(self) -> bool:
        """Whether a plan may start a job."""
        return bool(self._queued)

    @property
    def any_size_settled(self) -> bool:
        """Whether a job has a size whatever the policy: a person has pinned it, or its program uses
        fewer GPUs than it had."""
        return bool(self._settled)

    def has_queued_above(self, priority: int) -> bool:
        """Whether a job of a higher priority is queued, so that it may preempt one of this."""
        if max(self._priorities, default=priority) <= priority:
            return False
        return any(self.jobs[job].spec.priority > priority for job in self._queued)

    def snapshot(self, *, explain: bool = True, index: Index | None = None) -> Snapshot:
        """Return what a policy may base its decision on; ``explain``, ``index`` as in
        ``Snapshot``."""
        return self.snapshot_builder.snapshot(
            self.now_s, self.mechanism, self._profiles, self.seed, explain=explain, index=index
        )

    def gpus_of_host(self, host: HostId) -> Iterator[Gpu]:
        """Yield the GPUs of a host, by index."""
        for gpu in self.hosts[host].gpus:
            yield self.gpus[gpu]

    def idle_gpus(self, host: HostId) -> tuple[GpuId, ...]:
        """Return the GPUs of a host without an owner or a promise, by index."""
        return tuple([gpu for gpu in self.hosts[host].gpus if gpu in self._idle])

    def put_job(self, job: Job, *, changes_view: bool = True) -> None:
        """Replace a job. ``changes_view``: false if the view that policies see stays the same."""
        job_id, hand_over, deadline = job.id, job.hand_over, job.deadline
        before = self.jobs.get(job_id)
        if before is None:
            priority = job.spec.priority
            self._priorities[priority] = self._priorities.get(priority, 0) + 1
        if not job.answered:
            self._unanswered[job_id] = None
        elif self._unanswered:
            self._unanswered.pop(job_id, None)
        if hand_over is not None and hand_over.donors and not hand_over.shrink_asked:
            self.pending_shrinks[job_id] = None
        elif self.pending_shrinks:
            self.pending_shrinks.pop(job_id, None)
        self._changes.jobs[job_id] = None
        if job.spec.workers > 1 and (before is None or job.gpus is not before.gpus):
            self._changes.regrouped[job_id] = None
        self.jobs[job_id] = job
        if changes_view:
            self.snapshot_builder.job_changed(job_id)
            if is_queued(job):
                self._queued[job_id] = None
            else:
                self._queued.pop(job_id, None)
            if job.pinned is not None or job.uses:
                self._settled[job_id] = None
            elif self._settled:
                self._settled.pop(job_id, None)
        if deadline is not None and (before is None or before.deadline is not deadline):
            self._await(deadline.at_s, job_id)
        look_at_s = job.look_at_s
        if look_at_s is not None and (before is None or before.look_at_s != look_at_s):
            self._await(look_at_s, job_id)

    def drop_job(self, job: Job) -> None:
        """Drop a job that has ended and has no container."""
        self._changes.jobs[job.id] = None
        self.ended[job.id] = job
        del self.jobs[job.id]
        self._priorities[job.spec.priority] -= 1
        if not self._priorities[job.spec.priority]:
            del self._priorities[job.spec.priority]
        self.pending_shrinks.pop(job.id, None)
        self._unanswered.pop(job.id, None)
        self._queued.pop(job.id, None)
        self._settled.pop(job.id, None)
        self._recent.pop(job.id, None)
        self.snapshot_builder.job_changed(job.id)

    def remember(self, entry: HistoryEntry) -> None:
        """Keep an entry among the last of its job. It decides nothing and is not dumped."""
        if entry.job is None or entry.job not in self.jobs:
            return
        recent = self._recent.get(entry.job)
        if recent is None:
            recent = self._recent[entry.job] = deque(maxlen=RECENT_MAX)
        recent.append(entry)

    def recent_history(self, job: JobId) -> tuple[HistoryEntry, ...]:
        """Return the last history entries of a live job, oldest first."""
        return tuple(self._recent.get(job, ()))

    def put_gpu(self, gpu: Gpu) -> None:
        self._changes.gpus[gpu.id] = None
        self.gpus[gpu.id] = gpu
        if gpu.state is GpuState.IDLE and gpu.promised_to is None:
            self._idle[gpu.id] = None
        else:
            self._idle.pop(gpu.id, None)
        self.snapshot_builder.host_changed(gpu.host)
        if gpu.verify_by_s is not None:
            self._await(gpu.verify_by_s, gpu.id)

    def put_host(self, host: Host) -> None:
        self._changes.hosts[host.id] = None
        self.hosts[host.id] = host
        self.snapshot_builder.host_changed(host.id)

    def next_deadline_s(self, until_s: float = inf) -> float | None:
        """Return when the earliest deadline is due; None if there is none up to ``until_s``."""
        due, wake_s = self._due, self.wake_at_s
        while due and due[0][0] <= until_s:
            at_s, key = due[0]
            if self._is_due(at_s, key):
                return at_s if wake_s is None else min(at_s, wake_s)
            heapq.heappop(due)
        return wake_s if wake_s is not None and wake_s <= until_s else None

    def pop_due(self, now_s: float) -> tuple[str, ...]:
        """Remove the deadlines that have passed. Returns the ids of their jobs and GPUs, earliest
        first, each once."""
        due: dict[str, None] = {}
        while self._due and self._due[0][0] <= now_s:
            at_s, key = heapq.heappop(self._due)
            if self._is_due(at_s, key):
                due[key] = None
        return tuple(due)

    def drain_changes(self) -> ChangeSet:
        """Return the changes since the last call, and begin a new set."""
        changes, self._changes = self._changes, ChangeSet()
        return changes

    def dump(self, *, with_env: bool = True) -> tuple[str, ...]:
        """Return the state as JSON texts; ``load`` of them returns an equal state.

        ``with_env``: false leaves out the environments of the job records, which may hold secrets.
        """
        head = _Head(
            self.epoch,
            self.now_s,
            self.policy,
            self.mechanism,
            self.limits,
            self.next_place,
            self.plan_wanted,
            self.seed,
            self.wake_at_s,
            self.looked_up_to,
        )
        rows = [codec.dumps(v) for v in (*self.hosts.values(), *self.gpus.values())]
        rows += [codec.dumps(row) for row in self.profiles.rows()]
        rows += [codec.dumps(job if with_env else _bare(job)) for job in self.jobs.values()]
        return (codec.dumps(head), *_parts(rows))

    def still(self) -> State:
        """Return a copy to dump elsewhere: its rows are those of now, whatever happens to this."""
        found = copy.copy(self)
        found.jobs, found.gpus, found.hosts = dict(self.jobs), dict(self.gpus), dict(self.hosts)
        return found

    @staticmethod
    def load(parts: tuple[str, ...]) -> State:
        """Return the state of these dumped texts. Raises CodecError."""
        head = codec.loads(_Head, parts[0])
        state = State()
        state.epoch, state.now_s, state.policy = head.epoch, head.now_s, head.policy
        state.mechanism, state.limits = head.mechanism, head.limits
        state.next_place, state.plan_wanted = head.next_place, head.plan_wanted
        state.seed, state.wake_at_s = head.seed, head.wake_at_s
        state.looked_up_to = head.looked_up_to
        known: list[Profile | Learned | Voice] = []
        for part in parts[1:]:
            for line in part.split("\n"):
                match row_of(line):
                    case Host() as host:
                        state.put_host(host)
                    case Gpu() as gpu:
                        state.put_gpu(gpu)
                    case Job() as job:
                        state.put_job(job)
                    case Profile() | Learned() | Voice() as row:
                        known.append(row)
        state.profiles = ProfileBook.from_rows(known)
        state.drain_changes()
        return state

    def _await(self, at_s: float, key: str) -> None:
        heapq.heappush(self._due, (at_s, key))
        if len(self._due) > DUE_MAX * (len(self.jobs) + len(self.gpus)):
            self._due = sorted({entry for entry in self._due if self._is_due(*entry)})

    def _is_due(self, at_s: float, key: str) -> bool:
        job = self.jobs.get(JobId(key))
        if job is not None and job.deadline is not None and job.deadline.at_s == at_s:
            return True
        if job is not None and job.look_at_s == at_s:
            return True
        gpu = self.gpus.get(GpuId(key))
        return gpu is not None and gpu.verify_by_s == at_s


def row_of(line: str) -> Host | Gpu | Job | Profile | Learned | Voice:
    """Return the value of one line of a dump. Raises CodecError."""
    row: Host | Gpu | Job | Profile | Learned | Voice = codec.from_value(_Row, json.loads(line))
    return row


def _parts(rows: list[str]) -> Iterator[str]:
    """Yield the rows joined into parts, each within its bounds unless a single row is longer."""
    begin, size = 0, 0
    for at, row in enumerate(rows):
        size += len(row) + 1
        if at > begin and (size > _PART_CHARS or at - begin == _PART_ROWS):
            yield "\n".join(rows[begin:at])
            begin, size = at, len(row) + 1
    if rows:
        yield "\n".join(rows[begin:])


def _bare(job: Job) -> Job:
    return replace(job, spec=replace(job.spec, env=()))


_Row = Host | Gpu | Job | Profile | Learned | Voice
