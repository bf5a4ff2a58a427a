"""Jobs for which Kubernetes makes no pod: a quota, a limit range or a webhook forbids it.

Does: asks for what the cluster says of each Job that has none. Never: takes that for its end.
State: none.
"""

from __future__ import annotations

from collections.abc import Iterable

from reshape_launcher.kubernetes.cluster import ApiTrouble, Cluster, JobSeen, PodSeen
from reshape_launcher.kubernetes.status import UNMADE


def missing(
    cluster: Cluster, jobs: Iterable[JobSeen], pods: Iterable[PodSeen]
) -> tuple[PodSeen, ...]:
    """A stand-in for the pod of each such Job, of the Job's own name, with what is in its way.

    A Job of which nothing is said has none: its pod comes in a moment.
    """
    there = {pod.of for pod in pods}
    found = []
    for job in jobs:
        if job.suspended or job.reason or job.over is not None or job.name in there:
            continue
        try:
            said = cluster.why_no_pod(job.name)
        except ApiTrouble as trouble:
            said = f"and why cannot be seen ({trouble}); `kubectl describe job {job.name}` says it"
        if said:
            found.append(PodSeen(job.name, job.name, trouble=f"{UNMADE}: {said}"))
    return tuple(found)
