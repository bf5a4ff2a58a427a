"""What a policy sees: a view of each job and host, made anew only where something changed.

Does: keeps the views of the newest snapshot in its order, and remembers which jobs and hosts were
replaced since; so a snapshot costs what changed, not what is there. Never: differs from what a
fresh state gives (a test compares), or decides. State: a cache; only ``State`` tells it of changes.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from reshape_controller.core.host_numbering import HostNumbering
from reshape_controller.core.model import (
    DeadlineKind,
    GpuState,
    Host,
    HostId,
    Job,
    JobId,
    JobState,
    Stage,
)
from reshape_controller.core.plan import HostView, IndexCache, JobView, Likeness, Renewed, Snapshot

if TYPE_CHECKING:
    from reshape_controller.core.job_estimate import JobEstimate
    from reshape_controller.core.state import State

_Order = tuple[int, int, str]
_UNUSABLE = (GpuState.QUARANTINED, GpuState.LOST)
# An enum finds its members slowly, so what is asked of every job and GPU has a name here.
_READY, _TRAINING = Stage.READY, Stage.TRAINING
_QUEUED_STATES = (JobState.SUBMITTED, JobState.INITIALIZED)
_QUEUED_STAGES = (Stage.NONE, Stage.READY)


def is_queued(job: Job) -> bool:
    """Whether a plan may start the job."""
    return (
        job.state in _QUEUED_STATES
        and job.stage in _QUEUED_STAGES
        and job.hand_over is None
        and job.reachable
    )


def waits_until(job: Job) -> float:
    """When a job that failed may start again."""
    deadline = job.deadline
    if deadline is not None and deadline.kind is DeadlineKind.RETRY and job.stage is Stage.NONE:
        return deadline.at_s
    return 0.0


class _OrderedJobs:
    """Views of jobs, by priority and place."""

    def __init__(self, renewed: Renewed) -> None:
        self._renewed = renewed
        self._orders: list[_Order] = []
        self._views: list[JobView] = []
        self._tuple: tuple[JobView, ...] | None = ()

    def put(self, order: _Order, view: JobView) -> None:
        at = bisect_left(self._orders, order)
        if at < len(self._orders) and self._orders[at] == order:
            self._views[at] = view
        else:
            self._orders.insert(at, order)
            self._views.insert(at, view)
        self._renewed[view.id] = view
        self._tuple = None

    def remove(self, order: _Order) -> None:
        at = bisect_left(self._orders, order)
        self._renewed[self._views[at].id] = None
        del self._orders[at], self._views[at]
        self._tuple = None

    def all(self) -> tuple[JobView, ...]:
        if self._tuple is None:
            self._tuple = tuple(self._views)
        return self._tuple


class SnapshotBuilder:
    """One per state."""

    def __init__(self) -> None:
        self._jobs: dict[JobId, None] = {}
        self._hosts: dict[HostId, None] = {}
        self._kept = IndexCache()
        self._queued, self._running = (
            _OrderedJobs(self._kept.queued),
            _OrderedJobs(self._kept.running),
        )
        self._rows: dict[JobId, tuple[_OrderedJobs, _Order]] = {}
        self._host_views: dict[HostId, HostView] = {}
        self._idle: dict[HostId, HostView] = {}
        self._shown: tuple[tuple[HostView, ...], tuple[HostView, ...]] = ((), ())
        """Both, as snapshots have them."""
        self._numbering: HostNumbering | None = None
        self._estimates: dict[Likeness, JobEstimate] = {}

    def __len__(self) -> int:
        """Views of jobs that are kept."""
        return len(self._rows)

    def job_changed(self, job: JobId) -> None:
        """A job was put or dropped."""
        self._jobs[job] = None

    def host_changed(self, host: HostId) -> None:
        """A host, or a GPU of it, was put."""
        self._hosts[host] = None

    def snapshot(self, state: State, *, explained: bool = True) -> Snapshot:
        """What a policy may base its decision on."""
        for job in self._jobs:
            self._renew_job(state, job)
        fresh = not self._hosts.keys() <= self._host_views.keys()
        for host in self._hosts:
            self._renew_host(state, host)
        if fresh:
            self._host_views = dict(sorted(self._host_views.items()))
        if self._hosts:
            self._idle = dict(sorted(self._idle.items()))
            self._shown = tuple(self._host_views.values()), tuple(self._idle.values())
        self._jobs.clear()
        self._hosts.clear()
        if self._numbering is None:
            views = self._host_views.values()
            self._numbering = HostNumbering.of((view.id, view.gpu_type) for view in views)
        queued, running = self._queued.all(), self._running.all()
        self._kept.show(queued, running)
        return Snapshot(
            now_s=state.now_s,
            mechanism=state.mechanism,
            queued=queued,
            running=running,
            hosts=self._shown[0],
            profiles=state.profiles,
            seed=state.seed,
            explained=explained,
            estimates=self._estimates,
            kept_numbering=self._numbering,
            kept_idle=self._shown[1],
            kept=self._kept,
        )

    def _renew_job(self, state: State, job_id: JobId) -> None:
        job, known = state.jobs.get(job_id), self._rows.get(job_id)
        size = _later_size(job) if job is not None else 0
        row = self._running if size > 0 else None
        if job is not None and is_queued(job):
            row = self._queued
        if known is not None and known[0] is not row:
            known[0].remove(known[1])
            del self._rows[job_id]
        if job is None or row is None:
            return
        order = (-job.spec.priority, job.place, job.id)
        row.put(order, _view(state, job, size))
        self._rows[job_id] = (row, order)

    def _renew_host(self, state: State, host_id: HostId) -> None:
        host, before = state.hosts.get(host_id), self._host_views.get(host_id)
        self._idle.pop(host_id, None)
        if host is None or not host.present or host.drained:
            if before is not None:
                del self._host_views[host_id]
                self._numbering = None
            return
        if before is None or before.gpu_type != host.gpu_type:
            self._numbering = None
        view = self._host_views[host_id] = _host_view(state, host)
        if view.idle:
            self._idle[host_id] = view


def _host_view(state: State, host: Host) -> HostView:
    usable = 0
    for gpu_id in host.gpus:
        usable += state.gpus[gpu_id].state not in _UNUSABLE
    idle = len(state.idle_gpus(host.id))
    return HostView(host.id, host.gpu_type, idle, len(host.gpus), usable)


def _later_size(job: Job) -> int:
    """The size after what is under way (R1)."""
    if job.hand_over is not None:
        return len(job.hand_over.gpus)
    if job.donation is not None:
        return len(job.donation.keeps)
    if job.change is not None:
        return len(job.devices)
    return 0 if job.state.terminal else len(job.gpus)


def _later_host(state: State, job: Job) -> HostId | None:
    """The host after what is under way."""
    return state.gpus[job.hand_over.gpus[0]].host if job.hand_over is not None else job.host


def _view(state: State, job: Job, size: int) -> JobView:
    host = _later_host(state, job)
    trains = job.stage is _TRAINING
    progress, at_s, measured = job.progress, job.progress_at_s, job.measured
    if trains and job.trend is not None:
        progress, at_s, measured = job.trend.progress, job.trend.at_s, job.trend.measured
    return JobView(
        id=job.id,
        spec=job.spec,
        state=job.state,
        place=job.place,
        sizes=job.sizes,
        size=size,
        host=host,
        frozen=job.frozen or not job.reachable,
        initialized=job.stage is _READY,
        submitted_at_s=job.submitted_at_s,
        started_at_s=job.started_at_s,
        not_before_s=waits_until(job),
        no_shrink_before_s=job.refused_until_s,
        reshaped_at_s=job.reshaped_at_s,
        progress=progress,
        growable=job.spec.length is not None or job.progress.total_steps is not None,
        gpu_type=state.hosts[host].gpu_type if host is not None else "",
        only_host=job.only_host,
        unfit_on=job.unfit_on,
        pinned=job.pinned is not None,
        trains=trains,
        progress_at_s=at_s if trains else None,
        measured=measured,
        reshape_cost_s=job.reshape_cost_s,
        curve=job.curve,
    )
