"""The snapshot that a policy sees: a view of each job and host, built again only after a change.

Does: caches the views of the newest snapshot in their order, and the ids of the jobs and hosts that
the state replaced since. So the time for a snapshot grows with the changes, not with the cluster.
Never: differs from the snapshot of a newly loaded state (a test compares them).
"""

from __future__ import annotations

from bisect import bisect_left

from reshape_controller.core import gang
from reshape_controller.core.model import (
    DeadlineKind,
    Gpu,
    GpuId,
    GpuState,
    Host,
    HostId,
    Job,
    JobId,
    JobState,
    Mechanism,
    Stage,
)
from reshape_controller.core.plan import HostView, Index, JobView, Snapshot
from reshape_controller.core.profile_book import ProfileBook
from reshape_controller.core.starts import promised

_Order = tuple[int, int, str]
_UNUSABLE = (GpuState.QUARANTINED, GpuState.LOST)
_QUEUED_STATES = (JobState.SUBMITTED, JobState.INITIALIZED)
_QUEUED_STAGES = (Stage.NONE, Stage.READY)
_READY, _TRAINING = Stage.READY, Stage.TRAINING
"""For each view: Python 3.11 takes long to find a member of an enum."""


def is_queued(job: Job) -> bool:
    """Whether a plan may start the job."""
    return (
        job.state in _QUEUED_STATES
        and job.stage in _QUEUED_STAGES
        and job.hand_over is None
        and job.reachable
    )


def waits_until(job: Job) -> float:
    """Return when a job that failed may start again; 0 if it need not wait."""
    deadline = job.deadline
    if deadline is not None and deadline.kind is DeadlineKind.RETRY and job.stage is Stage.NONE:
        return deadline.at_s
    return 0.0


class OrderedJobs:
    """Views of jobs in queue order: by priority, then by place."""

    def __init__(self) -> None:
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
        self._tuple = None

    def remove(self, order: _Order) -> None:
        at = bisect_left(self._orders, order)
        del self._orders[at], self._views[at]
        self._tuple = None

    def all(self) -> tuple[JobView, ...]:
        if self._tuple is None:
            self._tuple = tuple(self._views)
        return self._tuple


class SnapshotBuilder:
    """Builds the snapshots of one state. It reads the state's own dictionaries, in place."""

    def __init__(
        self,
        jobs: dict[JobId, Job],
        gpus: dict[GpuId, Gpu],
        hosts: dict[HostId, Host],
        idle_gpus: dict[GpuId, None],
    ) -> None:
        """Read from these; ``idle_gpus`` holds the GPUs that a plan may give to a job."""
        self._jobs, self._gpus, self._hosts, self._idle_gpus = jobs, gpus, hosts, idle_gpus
        self._changed_jobs: dict[JobId, None] = {}
        self._changed_hosts: dict[HostId, None] = {}
        self._queued, self._running = OrderedJobs(), OrderedJobs()
        self._changed_views: dict[JobId, JobView | None] = {}
        self._rows: dict[JobId, tuple[OrderedJobs, _Order]] = {}
        self._host_views: dict[HostId, HostView] = {}
        self._views_of_hosts: tuple[HostView, ...] = ()
        """The values of ``_host_views``, as snapshots have them."""

    def __len__(self) -> int:
        """Return the number of cached views of jobs."""
        return len(self._rows)

    def job_changed(self, job: JobId) -> None:
        """Build the view of this job again: the state replaced or dropped the job."""
        self._changed_jobs[job] = None

    def host_changed(self, host: HostId) -> None:
        """Build the view of this host again: the state replaced the host or a GPU of it."""
        self._changed_hosts[host] = None

    def drain_changed_views(self) -> dict[JobId, JobView | None]:
        """Return the views that snapshots since the last call have changed, by job; None: the job
        is neither queued nor running."""
        changed, self._changed_views = self._changed_views, {}
        return changed

    def snapshot(
        self,
        now_s: float,
        mechanism: Mechanism,
        profiles: ProfileBook,
        seed: int,
        *,
        explain: bool = True,
        index: Index | None = None,
    ) -> Snapshot:
        """Return what a policy may base its decision on; ``explain``, ``index`` as in
        ``Snapshot``."""
        for job in self._changed_jobs:
            self._renew_job(job)
        if self._changed_hosts:
            self._renew_hosts()
        self._changed_jobs.clear()
        self._changed_hosts.clear()
        return Snapshot(
            now_s=now_s,
            mechanism=mechanism,
            queued=self._queued.all(),
            running=self._running.all(),
            hosts=self._views_of_hosts,
            profiles=profiles,
            seed=seed,
            explain=explain,
            index=index,
        )

    def _renew_job(self, job_id: JobId) -> None:
        job, known = self._jobs.get(job_id), self._rows.get(job_id)
        size = _later_size(job) if job is not None else 0
        row = self._running if size > 0 else None
        if job is not None and is_queued(job):
            row = self._queued
        if known is not None and known[0] is not row:
            known[0].remove(known[1])
            del self._rows[job_id]
            self._changed_views[job_id] = None
        if job is None or row is None:
            return
        order = (-job.spec.priority, job.place, job.id)
        view = self._changed_views[job_id] = self._job_view(job, size)
        row.put(order, view)
        self._rows[job_id] = (row, order)

    def _renew_hosts(self) -> None:
        new = not self._changed_hosts.keys() <= self._host_views.keys()
        for host in self._changed_hosts:
            self._renew_host(host)
        if new:
            self._host_views = dict(sorted(self._host_views.items()))
        self._views_of_hosts = tuple(self._host_views.values())

    def _renew_host(self, host_id: HostId) -> None:
        host = self._hosts.get(host_id)
        if host is None or host.no_option:
            self._host_views.pop(host_id, None)
        else:
            self._host_views[host_id] = self._host_view(host)

    def _host_view(self, host: Host) -> HostView:
        idle = usable = 0
        for gpu_id in host.gpus:
            idle += gpu_id in self._idle_gpus
            usable += self._gpus[gpu_id].state not in _UNUSABLE
        return HostView(host.id, host.gpu_type, idle, len(host.gpus), usable)

    def _later_hosts(self, job: Job) -> tuple[HostId | None, tuple[HostId, ...]]:
        """Return the host of a job after the change that is under way, and those of its workers if
        they are on several."""
        if job.hand_over is None:
            return job.host, job.hosts
        return gang.place(self._gpus, job.hand_over.gpus, job.spec.workers)

    def _job_view(self, job: Job, size: int) -> JobView:
        host, hosts = self._later_hosts(job)
        fixed = job.fixed_because if size else ""
        trains = job.stage is _TRAINING
        progress, at_s, measured = job.progress, job.progress_at_s, job.measured
        if trains and job.trend is not None:
            progress, at_s, measured = job.trend.progress, job.trend.at_s, job.trend.measured
        return JobView(
            id=job.id,
            spec=job.spec,
            state=job.state,
            place=job.place,
            sizes=(size,) if fixed else job.sizes,
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
            growable=not fixed
            and (job.spec.length is not None or job.progress.total_steps is not None),
            gpu_type=self._hosts[host].gpu_type if host is not None else "",
            only_host=host if fixed else job.only_host,
            unfit_on=job.unfit_on,
            fixed_because=fixed,
            loses=job.program.loses,
            pinned=job.pinned is not None and not fixed,
            uses=0 if fixed or job.pinned is not None else job.uses,
            trains=trains,
            progress_at_s=at_s if trains else None,
            measured=measured,
            reshape_cost_s=job.reshape_cost_s,
            curve=job.curve,
            start=promised(job),
            runs_since_s=job.runs_since_s,
            preempted_at_s=job.preempted_at_s,
            served=job.served,
            serves_since_s=job.serves_since_s,
            evaluations=job.evaluations,
            notes=job.notes,
            shares=gang.shares_of(hosts) if hosts else (),
        )


def _later_size(job: Job) -> int:
    """Return the size of a job after the change that is under way (R1)."""
    if job.hand_over is not None:
        return len(job.hand_over.gpus)
    if job.donation is not None:
        return len(job.donation.keeps)
    if job.change is not None:
        return len(job.devices)
    if job.hosts and job.stage is Stage.ENDING:
        return 0  # of a gang that has lost a host, only a part of its GPUs is left
    return 0 if job.state.terminal else len(job.gpus)
