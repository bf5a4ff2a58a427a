"""What keeps a pod from coming up and stands in no pod's status: the cluster's events say it.

Does: asks for the events of a Job that lacks a pod (a quota, a limit range or a webhook forbids
it), and of a pod that its node does not start (a volume, the network). Never: takes an obstacle
for the end of an attempt. State: none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from reshape_launcher.kubernetes.cluster import ApiTrouble, Cluster, JobSeen, PodSeen
from reshape_launcher.kubernetes.status import UNMADE, UNSTARTED


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
        return f"and why cannot be seen ({trouble}); `kubectl describe job {name}` says it"
