"""What a Job and its pods say of an attempt. Pure.

Does: one status per Job, and which attempts will never come up. Never: calls an attempt over while
a pod of it may run, or takes the absence of a pod for the end of a Job. State: none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from reshape_launcher.kubernetes.values import ApiTrouble, Cluster, JobSeen, PodSeen
from reshape_launcher.spec import ContainerStatus


def shown(
    cluster: Cluster, jobs: Iterable[JobSeen], pods: Iterable[PodSeen]
) -> tuple[PodSeen, ...]:
    """All pods, with what is in their way; for what a Job lacks, a stand-in of its name.

    Where nothing is said there is no trouble: it comes up in a moment.
    """
    pods = tuple(pods)
    found = [_with_obstacle(cluster, pod) for pod in pods]
    there = Counter(pod.of for pod in pods)
    for job in jobs:
        if job.suspended or job.reason or job.over is not None or job.bereft:
            continue
        made = there[job.name]
        said = _said(cluster, "Job", job.name) if made < job.pods else ""
        if said:
            beside = f" beside {made} of {job.pods}" if made else ""
            found.append(PodSeen(job.name, job.name, trouble=f"{UNMADE}{beside}: {said}"))
    return tuple(found)


def _with_obstacle(cluster: Cluster, pod: PodSeen) -> PodSeen:
    comes_up = pod.node and not pod.started and not pod.over and pod.ends_within_s is None
    if not comes_up or pod.trouble:
        return pod
    said = _said(cluster, "Pod", pod.name)
    return replace(pod, trouble=f"{UNSTARTED}: {said}") if said else pod


def _said(cluster: Cluster, kind: str, name: str) -> str:
    try:
        return cluster.newest_warning(kind, name)
    except ApiTrouble as trouble:
        if kind == "Pod":  # most take a moment: no trouble of theirs is known
            return ""
        return f"reason unknown ({trouble}); see `kubectl describe job {name}`"


class Troubles:
    """One per launcher. ``monotonic_s`` is any steady clock."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._since_s: dict[tuple[str, float], float] = {}
        """By pod and the patience with its trouble."""

    def timed(self, pods: tuple[PodSeen, ...]) -> tuple[PodSeen, ...]:
        """All pods of one look, with how long each has had its trouble."""
        now_s, before = self._monotonic_s(), self._since_s
        keys = {pod.name: (pod.name, patience_s(pod)) for pod in pods if pod.trouble}
        since_s = self._since_s = {key: before.get(key, now_s) for key in keys.values()}
        return tuple(
            replace(pod, waits_s=now_s - since_s[keys[pod.name]]) if pod.trouble else pod
            for pod in pods
        )


PATIENCE_S = 20.0
"""An image that cannot be pulled for so long is given up; the job's retries bridge a longer hiccup
of the registry. One that the registry does not have is given up at once, and not tried again."""
UNFIT_CONTAINER = "CreateContainerConfigError"
NODE_PATIENCE_S = 120.0
"""The node tries again, for example where two pods made the same folder of a volume at once."""
SCHEDULING_PATIENCE_S = 300.0
"""No node with room, no pod at all, or one that its node does not start, for so long: given up,
with the cluster's words."""
BEREFT_GRACE_S = 10
"""A worker's pod is gone: the others have so long, for they cannot go on without it."""
UNSCHEDULED = "it cannot be scheduled"
UNMADE = "Kubernetes creates no pod for it"
UNSTARTED = "its node does not start it"


def statuses(jobs: Iterable[JobSeen], pods: Iterable[PodSeen]) -> tuple[ContainerStatus, ...]:
    """One status per Job, by job and attempt."""
    by_job = _by_job(pods)
    found = [_status(job, by_job.get(job.name, [])) for job in jobs]
    return tuple(sorted(found, key=lambda status: (status.job, status.attempt)))


def hopeless(
    jobs: Iterable[JobSeen], pods: Iterable[PodSeen]
) -> tuple[tuple[JobSeen, PodSeen], ...]:
    """Jobs that will not come up by waiting, each with the pod whose trouble says why."""
    by_job = _by_job(pods)
    found = []
    for job in jobs:
        if job.over is not None or job.reason:
            continue
        for pod in by_job.get(job.name, []):
            if pod.ends_within_s is None and not pod.started and _given_up(pod):
                found.append((job, pod))
                break
    return tuple(found)


def bereft(jobs: Iterable[JobSeen], pods: Iterable[PodSeen]) -> tuple[PodSeen, ...]:
    """Pods of several workers that run on although another's has ended, and are to end soon.

    The Job remembers a pod that was deleted; the pod itself may be gone between two looks.
    """
    known = {job.name for job in jobs if job.bereft}
    found = []
    for name, of_one in _by_job(pods).items():
        if name in known or any(pod.over for pod in of_one):
            found += [pod for pod in of_one if not pod.over and not _ends_soon(pod)]
    return tuple(found)


def _ends_soon(pod: PodSeen) -> bool:
    return pod.ends_within_s is not None and pod.ends_within_s <= BEREFT_GRACE_S


def patience_s(pod: PodSeen) -> float:
    """How long a trouble like the pod's is waited for."""
    if pod.trouble.startswith((UNSCHEDULED, UNMADE, UNSTARTED)):
        return SCHEDULING_PATIENCE_S
    return NODE_PATIENCE_S if pod.trouble.startswith(UNFIT_CONTAINER) else PATIENCE_S


def _given_up(pod: PodSeen) -> bool:
    return bool(pod.trouble) and (pod.lasting or pod.waits_s > patience_s(pod))


def _status(job: JobSeen, pods: list[PodSeen]) -> ContainerStatus:
    alive = [pod for pod in pods if not pod.over]
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
    return ContainerStatus(job.job, job.attempt, False, code, reason, host, job.lasting)


def _by_job(pods: Iterable[PodSeen]) -> dict[str, list[PodSeen]]:
    found: dict[str, list[PodSeen]] = {}
    for pod in pods:
        found.setdefault(pod.of, []).append(pod)
    return found
