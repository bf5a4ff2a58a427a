"""Accounting of a replay: GPU seconds by use, ended jobs, and the pause of each reshape.

Does: after each round, book every GPU that changed to its use until now, and record the pauses of
reshapes and (on request) the course of the queue. It only reads the engine's state. State: sums,
and the current use of each GPU and job with its start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from reshape_controller.core.changes import ChangeSet
from reshape_controller.core.fast_replace import fast_init
from reshape_controller.core.model import (
    Change,
    ChangeKind,
    GpuId,
    GpuState,
    HandOver,
    Job,
    JobId,
    JobState,
    Stage,
)
from reshape_controller.core.snapshot_builder import is_queued
from reshape_controller.core.state import State


class Use(IntEnum):
    """The use of a GPU. Only ``TRAINING`` has a training process that makes steps."""

    UNALLOCATED = 0
    RESERVED = 1
    STARTING = 2
    STOPPING = 3
    TRAINING = 4


_IN_USE, _UNALLOCATED = GpuState.IN_USE, Use.UNALLOCATED
"""For each GPU that changed: Python 3.11 takes long to find a member of an enum."""
_STAGES = {Stage.STARTING: Use.STARTING, Stage.TRAINING: Use.TRAINING}
_STATES = {GpuState.RESERVED: Use.RESERVED, GpuState.RELEASING: Use.STOPPING}
_RESHAPES = (ChangeKind.SHRINK, ChangeKind.GROW, ChangeKind.RELAUNCH)
_Booked = tuple[JobState, Stage, bool, tuple[GpuId, ...], HandOver | None, Change | None]
"""The fields of a job that the account uses, except its id and times."""


@dataclass(frozen=True, slots=True)
class Reshape:
    """A change of a running job's GPUs, from the request until training continues.

    It is an adding event, a removing event, or a move at the same size.
    """

    job: JobId
    asked_at_s: float
    seconds: float
    size_before: int
    size_after: int

    @property
    def up(self) -> bool:
        """True for an adding event."""
        return self.size_after > self.size_before

    @property
    def down(self) -> bool:
        """True for a removing event."""
        return self.size_after < self.size_before


@dataclass(frozen=True, slots=True)
class Moment:
    """The cluster from a time until the next moment."""

    at_s: float
    pending: int
    """Accepted jobs that neither hold GPUs nor are promised any."""
    running: int
    """Jobs that hold GPUs or are promised some."""
    allocated: int
    """GPUs that are not idle."""


@fast_init
@dataclass(frozen=True, slots=True)
class EndedJob:
    """The part of an ended job that the metrics need; it is smaller than the job."""

    id: JobId
    place: int
    job_type: str
    state: str
    submitted_s: float
    started_s: float | None
    finished_s: float
    steps: int
    steps_lost: int
    process_restarts: int
    container_restarts: int

    @staticmethod
    def of(job: Job) -> EndedJob:
        """Return the value of a job that has ended."""
        assert job.finished_at_s is not None
        return EndedJob(
            job.id,
            job.place,
            job.spec.job_type or "",
            job.state.value,
            job.submitted_at_s,
            job.started_at_s,
            job.finished_at_s,
            job.progress.step,
            job.steps_lost,
            job.process_restarts,
            job.container_restarts,
        )


@dataclass(slots=True)
class Account:
    """The account of a replay. ``keeps_course``: also record the moments, for figures."""

    jobs: int
    """Number of jobs in the workload; the account closes with the end of the last job."""
    keeps_course: bool = False
    seconds: list[float] = field(default_factory=lambda: [0.0] * len(Use))
    """GPU seconds by ``Use``, up to each GPU's last change."""
    reshapes: list[Reshape] = field(default_factory=list)
    course: list[Moment] = field(default_factory=list)
    ended: list[EndedJob] = field(default_factory=list)
    launched_s: dict[JobId, float] = field(default_factory=dict)
    """Launch time of each job's first container."""
    first_step_s: dict[JobId, float] = field(default_factory=dict)
    pending: int = 0
    done: int = 0
    since_s: float = 0.0
    """Time of the first submission, from which GPU seconds count."""
    _uses: dict[GpuId, tuple[Use, float]] = field(default_factory=dict)
    _closed: bool = False
    _booked: dict[JobId, _Booked] = field(default_factory=dict)
    """Last booked fields of each job; most reports do not change them."""
    _finished: set[JobId] = field(default_factory=set)
    _allocated: int = 0
    _running: int = 0
    _status: dict[JobId, tuple[bool, bool]] = field(default_factory=dict)
    _open_reshapes: dict[JobId, tuple[float, int, int]] = field(default_factory=dict)

    def book(self, state: State, touched: ChangeSet, now_s: float) -> None:
        """Book the changes of a round."""
        uses: dict[GpuId, Use] = {}
        for job_id in touched.jobs:
            job = state.jobs.get(job_id)
            if job is None:
                job = state.ended.pop(job_id, None)
                if job is None:
                    continue
                self.ended.append(EndedJob.of(job))
                self._booked.pop(job_id, None)
            else:
                now = (job.state, job.stage, job.reachable, job.gpus, job.hand_over, job.change)
                if self._booked.get(job_id) == now:
                    continue
                self._booked[job_id] = now
            self._job(job, now_s)
            if job.gpus:
                uses |= dict.fromkeys(job.gpus, _STAGES.get(job.stage, Use.STOPPING))
        for gpu_id in touched.gpus:
            gpu = state.gpus[gpu_id]
            if gpu.state is not _IN_USE:  # a GPU in use is booked with its job
                uses[gpu_id] = _STATES.get(gpu.state, _UNALLOCATED)
        if self.done >= self.jobs and self._closed:
            return
        for gpu_id, use in uses.items():
            self._gpu(gpu_id, use, now_s)
        if self.done >= self.jobs:
            self._close(now_s)
        if self.keeps_course:
            moment = Moment(now_s, self.pending, self._running, self._allocated)
            if self.course and self.course[-1].at_s == now_s:
                self.course[-1] = moment
            else:
                self.course.append(moment)

    def _close(self, now_s: float) -> None:
        """Book every GPU up to now, at the end of the last job."""
        self._closed = True
        for gpu, (use, since_s) in self._uses.items():
            self.seconds[use] += now_s - max(since_s, self.since_s)
            self._uses[gpu] = (use, now_s)

    def _gpu(self, gpu: GpuId, use: Use, now_s: float) -> None:
        booked = self._uses.get(gpu)
        if booked is None:
            booked = self._uses[gpu] = (_UNALLOCATED, now_s)
        before, since_s = booked
        if use is not before:
            self.seconds[before] += now_s - max(since_s, self.since_s)
            self._allocated += (use is not _UNALLOCATED) - (before is not _UNALLOCATED)
            self._uses[gpu] = (use, now_s)

    def _job(self, job: Job, now_s: float) -> None:
        if job.finished_at_s is not None and job.id not in self._finished:
            self._finished.add(job.id)
            self.done += 1
        over = job.state.terminal
        waits = not over and is_queued(job)
        holds = not over and not waits
        waited, held = self._status.get(job.id, (False, False))
        if (waits, holds) != (waited, held):
            self.pending += waits - waited
            self._running += holds - held
            self._status[job.id] = (waits, holds)
        if over:
            self._status.pop(job.id, None)
        if job.stage is Stage.LAUNCHING:
            self.launched_s.setdefault(job.id, now_s)
        elif job.progress.step:
            self.first_step_s.setdefault(job.id, now_s)
        self._reshape(job, now_s)

    def _reshape(self, job: Job, now_s: float) -> None:
        """Book a reshape that is over.

        A job may get its next request in the round of its first step; then no round shows it in
        training.
        """
        change, open_reshape, now = job.change, self._open_reshapes.get(job.id), None
        if change is not None and change.kind in _RESHAPES:
            now = (change.asked_at_s, change.size_before, len(change.gpus_after))
        trains = job.stage is Stage.TRAINING and change is None
        if open_reshape is not None and open_reshape != now and (trains or change is not None):
            asked_s, before, after = open_reshape
            size = len(job.gpus) if change is None else change.size_before
            if size == after:
                self.reshapes.append(Reshape(job.id, asked_s, now_s - asked_s, before, after))
            del self._open_reshapes[job.id]
        if now is not None:
            self._open_reshapes[job.id] = now
        elif job.state.terminal:
            self._open_reshapes.pop(job.id, None)
