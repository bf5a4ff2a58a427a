"""Bringing an attempt's objects into the cluster, in the one order that leaves nothing half done.

Does: the SideCar's archive, then the Job (suspended), then its Secret (owned by the Job; of several
workers a Service as well), then the word go; each may be there already. Never: waits for a pod.
State: none.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_launcher.kubernetes import manifests
from reshape_launcher.kubernetes.cluster import Cluster, Manifest


@dataclass(frozen=True, slots=True)
class Objects:
    """Everything of an attempt. The Secret's owner is known when the Job is there."""

    config_map: Manifest
    job: Manifest
    secret: Manifest
    service: Manifest | None = None
    """Of several workers."""


def apply(cluster: Cluster, objects: Objects) -> None:
    """Make what is not there yet. Raises ApiTrouble; doing it again goes on where it broke off."""
    cluster.create_config_map(objects.config_map)
    uid = cluster.create_job(objects.job)
    cluster.create_secret(manifests.owned(objects.secret, objects.job, uid))
    if objects.service is not None:
        cluster.create_service(manifests.owned(objects.service, objects.job, uid))
    cluster.patch_job(objects.job["metadata"]["name"], manifests.go())
