"""The state of an attempt as its Job and its pods show it.

Does: find why a pod does not come up and for how long, which Jobs are stuck, which pods lost a
worker beside them, and the one status of each Job. Never: call an attempt over while a pod of it
may run, or take the absence of a pod for the end of a Job.

A pass over the cluster reads from top to bottom: ``of_this_run``, ``with_troubles``,
``TroubleTimer.with_times``, ``stuck_jobs``, ``orphaned_pods``, ``statuses``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from reshape_launcher.kubernetes.values import ClusterApi, JobInfo, KubernetesError, PodInfo
from reshape_launcher.spec import ContainerStatus

UNSCHEDULED = "it cannot be scheduled"
PART_SUSPENDED = "its Job was suspended by another controller, and no part of a gang waits alone"
UNMADE = "Kubernetes creates no pod for it"
NO_QUOTA = "exceeded quota"
"""In the warning of a Job for which a quota of the namespace has no room."""
UNSTARTED = "its node does not start it"
UNFIT_CONTAINER = "CreateContainerConfigError"
PATIENCE_S = 20.0
"""An image that cannot be pulled for this long makes the Job stuck; the job's retries bridge a
longer outage of the registry. An image that the registry does not have makes it stuck at once, and
the job is not tried again."""
NODE_PATIENCE_S = 120.0
"""The limit for ``UNFIT_CONTAINER``: the node tries again by itself, for example where two pods
make the same folder of a volume at once."""
SCHEDULING_PATIENCE_S = 300.0
"""The limit for a pod without a node, for a Job without a pod, and for ``UNSTARTED``."""
ORPHAN_GRACE_S = 10
"""Time to end for the other workers once a worker's pod is gone; they cannot go on without it."""


def of_this_run(jobs: Iterable[JobInfo], pods: Iterable[PodInfo]) -> tuple[PodInfo, ...]:
    """Return the pods without those that ended before their Job was suspended and resumed."""
    resumed_at_s = {job.name: job.started_at_s for job in jobs if job.over is None}
    return tuple(
        pod
        for pod in pods
        if not pod.over or pod.created_at_s >= resumed_at_s.get(pod.of, pod.created_at_s)
    )


def with_troubles(
    cluster: ClusterApi, jobs: Iterable[JobInfo], pods: Iterable[PodInfo]
) -> tuple[PodInfo, ...]:
    """Return all pods with their troubles, and a stand-in for each Job that lacks pods.

    The stand-in has the Job's name. Without a warning event there is no trouble: the pod comes up
    in a moment.
    """
    pods = tuple(pods)
    found = [_with_trouble(cluster, pod) for pod in pods]
    counts = Counter(pod.of for pod in pods)
    for job in jobs:
        if job.suspended or job.reason or job.over is not None or job.has_ended_pod:
            continue
        count = counts[job.name]
        warning = _newest_warning(cluster, "Job", job.name) if count < job.pods else ""
        if warning:
            beside = f" beside {count} of {job.pods}" if count else ""
            found.append(PodInfo(job.name, job.name, trouble=f"{UNMADE}{beside}: {warning}"))
    return tuple(found)


def steady(jobs: Iterable[JobInfo], pods: Iterable[PodInfo]) -> bool:
    """True if each pod runs or has ended, and no Job that is not over lacks one or is suspended.

    Then no pod appears but by a launch, and nothing here depends on the time.
    """
    pods = tuple(pods)
    living = Counter(pod.of for pod in pods if not pod.over)
    return all(pod.over or _runs_on(pod) for pod in pods) and all(
        job.over is not None
        or (not job.suspended and not job.reason and living[job.name] >= job.pods)
        for job in jobs
    )


def _runs_on(pod: PodInfo) -> bool:
    ends = pod.deletion_grace_s is not None or pod.trouble
    return pod.started and pod.phase == "Running" and not ends


def _with_trouble(cluster: ClusterApi, pod: PodInfo) -> PodInfo:
    comes_up = pod.node and not pod.started and not pod.over and pod.deletion_grace_s is None
    if not comes_up or pod.trouble:
        return pod
    warning = _newest_warning(cluster, "Pod", pod.name)
    return replace(pod, trouble=f"{UNSTARTED}: {warning}") if warning else pod


def _newest_warning(cluster: ClusterApi, kind: str, name: str) -> str:
    try:
        return cluster.newest_warning(kind, name)
    except KubernetesError as trouble:
        if kind == "Pod":  # most pods start in a moment, so no trouble is assumed
            return ""
        return f"reason unknown ({trouble}); see `kubectl describe job {name}`"


class TroubleTimer:
    """Measures how long each pod has had its trouble. ``monotonic_s`` is any steady clock."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._since_s: dict[tuple[str, float], float] = {}
        """Start of each trouble, by pod and the patience with the trouble."""

    def with_times(self, pods: tuple[PodInfo, ...]) -> tuple[PodInfo, ...]:
        """Return all pods of one listing with ``trouble_s`` filled in."""
        now_s, before = self._monotonic_s(), self._since_s
        keys = {pod.name: (pod.name, patience_s(pod)) for pod in pods if pod.trouble}
        since_s = self._since_s = {key: before.get(key, now_s) for key in keys.values()}
        return tuple(
            replace(pod, trouble_s=now_s - since_s[keys[pod.name]]) if pod.trouble else pod
            for pod in pods
        )


def patience_s(pod: PodInfo) -> float:
    """Return how long a trouble like the pod's may last before its Job is stuck."""
    if pod.trouble.startswith((UNSCHEDULED, UNMADE, UNSTARTED)):
        return SCHEDULING_PATIENCE_S
    return NODE_PATIENCE_S if pod.trouble.startswith(UNFIT_CONTAINER) else PATIENCE_S


def stuck_jobs(
    jobs: Iterable[JobInfo], pods: Iterable[PodInfo]
) -> tuple[tuple[JobInfo, PodInfo], ...]:
    """Return the Jobs that waiting does not start, each with the pod whose trouble says why."""
    by_job = _by_job(pods)
    found = []
    for job in jobs:
        if job.over is not None or job.reason:
            continue
        for pod in by_job.get(job.name, []):
            if pod.deletion_grace_s is None and not pod.started and _is_stuck(pod):
                found.append((job, pod))
                break
    return tuple(found)


def _is_stuck(pod: PodInfo) -> bool:
    return bool(pod.trouble) and (pod.lasting or pod.trouble_s > patience_s(pod))


def orphaned_pods(jobs: Iterable[JobInfo], pods: Iterable[PodInfo]) -> tuple[PodInfo, ...]:
    """Return the pods that still run although another worker's pod of their Job has ended.

    The Job remembers a deleted pod, which may be gone between two listings.
    """
    incomplete = {job.name for job in jobs if job.has_ended_pod}
    found = []
    for name, group in _by_job(pods).items():
        if name in incomplete or any(pod.over for pod in group):
            found += [pod for pod in group if not pod.over and not _ends_soon(pod)]
    return tuple(found)


def _ends_soon(pod: PodInfo) -> bool:
    return pod.deletion_grace_s is not None and pod.deletion_grace_s <= ORPHAN_GRACE_S


def statuses(jobs: Iterable[JobInfo], pods: Iterable[PodInfo]) -> tuple[ContainerStatus, ...]:
    """Return one status per Job, sorted by job and attempt."""
    by_job = _by_job(pods)
    found = [_part_status(job, by_job.get(job.name, [])) for job in jobs]
    return tuple(sorted(found, key=lambda status: (status.job, status.attempt)))


def _part_status(job: JobInfo, pods: list[PodInfo]) -> ContainerStatus:
    """Return the status of a Job; for a part of a gang it always has the host.

    A part that another controller suspends has ended once its pods are gone.
    """
    status = _status(job, pods)
    if not job.host:
        return status
    if status.suspended and all(pod.over for pod in pods):
        status = ContainerStatus(job.job, job.attempt, False, reason=PART_SUSPENDED)
    return replace(status, host=job.host, suspended="")


def _status(job: JobInfo, pods: list[PodInfo]) -> ContainerStatus:
    alive = [pod for pod in pods if not pod.over]
    if job.over is None and not any(pod.started for pod in alive):
        suspended = _why_suspended(job, alive)
        if suspended:
            return ContainerStatus(
                job.job, job.attempt, True, reason=suspended, suspended=suspended
            )
    if alive:
        reason = next((pod.trouble for pod in alive if pod.trouble), job.reason)
        host = next((pod.node for pod in alive if pod.node), None)
        return ContainerStatus(job.job, job.attempt, True, reason=reason, host=host)
    if job.over is None and not pods:
        reason = "its Job is not released yet" if job.suspended else "its pod does not exist yet"
        return ContainerStatus(job.job, job.attempt, True, reason=reason)
    failed = [pod for pod in pods if pod.exit_code]
    last = (failed or pods)[-1] if pods else None
    reason = job.reason or (last.reason if last else f"its pod is gone ({job.over})")
    code = last.exit_code if last is not None else 0 if job.in_order else None
    host = last.node or None if last is not None else None
    ended = ContainerStatus(job.job, job.attempt, False, code, reason, host, job.lasting)
    return replace(ended, unscheduled=_lacked_room(job.reason))


def _lacked_room(reason: str) -> bool:
    """Whether a Job was given up because the cluster had no room for its pod."""
    return reason.startswith(UNSCHEDULED) or (reason.startswith(UNMADE) and NO_QUOTA in reason)


def _why_suspended(job: JobInfo, alive: list[PodInfo]) -> str:
    """Return why a Job without a started pod gets none, if another controller suspends it."""
    if any(pod.gated for pod in alive):
        return "its pod waits for admission: another controller keeps it from the scheduler"
    if alive or not job.suspended or not job.released:
        return ""
    if job.queue:
        return f"waits for admission by its queue {job.queue}: its Job is suspended"
    return f"its Job is suspended by another controller; it goes on once {job.name} is resumed"


def _by_job(pods: Iterable[PodInfo]) -> dict[str, list[PodInfo]]:
    found: dict[str, list[PodInfo]] = {}
    for pod in pods:
        found.setdefault(pod.of, []).append(pod)
    return found
