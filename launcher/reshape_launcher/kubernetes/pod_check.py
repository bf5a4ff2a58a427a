"""A check of the image and of the controller's address from a pod on a node.

Does: start a short pod of the controller's image, which asks the controller at the address that
SideCars get, and tell what came of it. The pod is removed afterwards. Blocking.
"""

from __future__ import annotations

import secrets
import time

from reshape_launcher.kubernetes import gpu_probe, manifests, naming, pod_status, sidecar_archive
from reshape_launcher.kubernetes.finding import Finding
from reshape_launcher.kubernetes.settings import PodSettings
from reshape_launcher.kubernetes.values import ClusterApi, PodInfo

CHECK_S = 90.0
"""Time limit of the pod, the pull of its image included."""
POLL_S = 0.5
IMAGE, ADDRESS = "image", "address from a pod"


def findings(
    cluster: ClusterApi, settings: PodSettings, node: str, url: str
) -> tuple[Finding, ...]:
    """Return whether a node pulls the image, and whether a pod there reaches ``url``.

    Raises KubernetesError.
    """
    if settings.image is None:
        why = "the cluster file has no `image`: neither it nor the address is tried in a pod"
        return (Finding(IMAGE, True, why),)
    archive = sidecar_archive.build()
    name = naming.check_name(secrets.token_hex(4))
    words = ("reach", f"{url}/healthz", gpu_probe.TERMINATION_LOG)
    cluster.create_config_map(manifests.config_map(archive, settings))
    cluster.create_job(gpu_probe.probe_job(name, node, settings, archive, words))
    try:
        return _result(_ended(cluster, settings, name), settings.image, node, url)
    finally:
        cluster.delete_job(name)


def _ended(cluster: ClusterApi, settings: PodSettings, name: str) -> PodInfo | None:
    """Return the pod once it has ended, cannot be started, or the time is over."""
    until_s, found = time.monotonic() + CHECK_S, None
    while time.monotonic() < until_s:
        pods = cluster.pods(naming.probes(settings.controller))
        found = next((pod for pod in pods if pod.of == name), None)
        is_stuck = found is not None and found.trouble and (found.lasting or _is_old(found))
        if found is not None and (found.over or is_stuck):
            break
        time.sleep(POLL_S)
    return found


def _is_old(pod: PodInfo) -> bool:
    return time.time() - pod.created_at_s > pod_status.PATIENCE_S


def _result(pod: PodInfo | None, image: str, node: str, url: str) -> tuple[Finding, ...]:
    if pod is None or not pod.over:
        why = pod.trouble if pod is not None else "Kubernetes created no pod; see its Job's events"
        remedy = "correct `image` in the cluster file, or the node's access to its registry"
        detail = f"{image} does not run on {node} within {CHECK_S:g} s: {why or 'no reason known'}"
        return (Finding(IMAGE, False, detail, remedy),)
    runs = Finding(IMAGE, True, f"{image} runs on {node}")
    if pod.exit_code == 0:
        return runs, Finding(ADDRESS, True, f"{url} answers a pod on {node}")
    said = pod.message or pod.reason
    remedy = "give an address that pods reach: --sidecar-bind, --sidecar-url; check firewalls"
    return runs, Finding(ADDRESS, False, f"{url} cannot be reached from {node}: {said}", remedy)
