"""Checks of a cluster before the first launch: access, rights, nodes, GPUs, claims, admission.

Does: yield a finding per question, each failure with its remedy; a failure does not end the checks.
Only the probes of GPUs create objects; the Job is a dry run. Blocking.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from reshape_launcher.kubernetes import (
    manifests,
    pod,
    pod_check,
    server_version,
    sidecar_archive,
    volume_affinity,
)
from reshape_launcher.kubernetes.finding import Finding
from reshape_launcher.kubernetes.gpus import PodDevices
from reshape_launcher.kubernetes.node_watch import Expired
from reshape_launcher.kubernetes.pod_mounts import CHECKPOINTS, Mounts
from reshape_launcher.kubernetes.rights import RIGHTS
from reshape_launcher.kubernetes.settings import PodSettings
from reshape_launcher.kubernetes.values import NOT_FOUND, KubernetesError
from reshape_launcher.spec import DeviceMode, LaunchSpec

if TYPE_CHECKING:
    from reshape_launcher.kubernetes.api import ClusterClient

PROBES_S = 60.0
PROBES_POLL_S = 0.5
"""Time limit of all probes together; a finding names each node without an answer."""
WATCH_TRY_S = 2
"""How long a watch is tried."""
OLDEST_TEXT = ".".join(map(str, server_version.OLDEST))
SAMPLE_IMAGE = "sample.invalid/image:1"


def findings(
    cluster: ClusterClient, settings: PodSettings, devices: PodDevices, url: str = ""
) -> Iterator[Finding]:
    """Yield the findings of all checks; only one finding if the cluster is not reached.

    ``url``: the controller's address for pods, where it listens now; empty: no pod asks there.
    """
    try:
        version = cluster.version()
    except KubernetesError as trouble:
        yield Finding("API server", False, _told(trouble), _remedy(trouble))
        return
    old = server_version.problem(version)
    upgrade = f"upgrade the cluster to Kubernetes {OLDEST_TEXT} or newer" if old else ""
    detail = f"{cluster.server} ({version})"
    yield Finding("API server", not old, f"{detail}: {old}" if old else detail, upgrade)
    yield from _or_failure("rights", lambda: _rights(cluster, settings))
    yield from _or_failure("nodes", lambda: _nodes(cluster, settings))
    yield from _or_failure("watch", lambda: _watch(cluster, settings))
    yield from _or_failure("GPUs", lambda: _gpus(cluster, settings, devices))
    yield from _or_failure("node leases", lambda: _holders(cluster, settings))
    yield from _or_failure("claims", lambda: _claims(cluster, settings))
    yield from _or_failure("manifest", lambda: _manifest(cluster, settings, devices))
    if url:
        yield from _or_failure("pod", lambda: _pod(cluster, settings, url))


def _or_failure(check: str, question: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Yield the findings of a check, or that it failed."""
    try:
        yield from list(question())
    except KubernetesError as trouble:
        yield Finding(check, False, _told(trouble), _remedy(trouble))


def _told(trouble: KubernetesError) -> str:
    return f"{trouble} (HTTP {trouble.status})" if trouble.status else str(trouble)


def _remedy(trouble: KubernetesError) -> str:
    """Return what to do about a call that failed."""
    if trouble.status == 429:
        account = "kubectl get flowschema, prioritylevelconfiguration"
        return f"the API server turns calls away: raise the limits of this account ({account})"
    if trouble.status == 0 or trouble.status == 401:
        return "check the address and the credentials with: kubectl version"
    if trouble.status >= 500:
        return "the API server fails: look at its log, at etcd, and at webhooks; then try again"
    return "see the API server's own message"


def _rights(cluster: ClusterClient, settings: PodSettings) -> Iterator[Finding]:
    for right in RIGHTS:
        where = "the cluster" if right.of_cluster else f"namespace {settings.namespace}"
        if right.of_node_leases:
            where = f"namespace {settings.node_lease_namespace}"
        ok = cluster.may(right)
        remedy = "" if ok else "apply deploy/kubernetes.yaml with your namespace in it"
        of_nodes = " of nodes" if right.of_node_leases else ""
        yield Finding(f"may {right.text}{of_nodes}", ok, f"in {where}: {right.why}", remedy)


def _nodes(cluster: ClusterClient, settings: PodSettings) -> Iterator[Finding]:
    wanted = settings.node_selector
    nodes = cluster.nodes(wanted)
    ready = [node for node in nodes if node.ready and node.schedulable]
    detail = f"{len(ready)} of {len(nodes)} ready" + (f", of those with {wanted}" if wanted else "")
    look = "see: kubectl get nodes" + (f" -l {wanted}" if wanted else "")
    yield Finding("nodes", bool(ready), detail, "" if ready else look)


def _watch(cluster: ClusterClient, settings: PodSettings) -> Iterator[Finding]:
    """Yield whether a watch of nodes stays open; a proxy on the way may end it at once."""
    _, version = cluster.list_nodes(settings.node_selector)
    begin_s = time.monotonic()
    try:
        for _ in cluster.node_changes(settings.node_selector, version, WATCH_TRY_S):
            pass
        error = ""
    except (KubernetesError, Expired) as failed:
        error = str(failed) or "the API server forgets versions at once"
    lasted_s = time.monotonic() - begin_s
    if not error and lasted_s < WATCH_TRY_S / 2:
        error = f"a watch of nodes ended after {lasted_s:.1f} s instead of {WATCH_TRY_S} s"
    remedy = "" if not error else "let proxies before the API server keep connections for 70 s"
    yield Finding(
        "watch", not error, error or f"a watch of nodes stays open ({WATCH_TRY_S} s)", remedy
    )


def _gpus(cluster: ClusterClient, settings: PodSettings, devices: PodDevices) -> Iterator[Finding]:
    """Yield how GPUs reach pods and which GPUs each node has; real nodes are probed now."""
    yield Finding("GPU mode", True, devices.mode)
    name = devices.runtime_class
    if name is not None:
        there = cluster.has_runtime_class(name)
        remedy = "" if there else "install the GPUs' container runtime, or correct `runtime_class`"
        detail = f"{name} {'exists' if there else 'does not exist'}"
        yield Finding("runtime class", there, detail, remedy)
    nodes = tuple(n for n in cluster.nodes(settings.node_selector) if n.ready and n.schedulable)
    until_s = time.monotonic() + PROBES_S
    while len(known := devices.of(cluster, nodes)) < len(nodes) and time.monotonic() < until_s:
        time.sleep(PROBES_POLL_S)
    for node in nodes:
        has = known.get(node.name)
        if has is None:
            detail, why = "its probe has not ended yet", "see its pods"
        else:
            listed = ", ".join(has.gpus)
            detail, why = f"{len(has.gpus)} {has.gpu_type} GPUs: {listed}", has.trouble
            detail = detail if has.gpus else "none"
        good = has is not None and bool(has.gpus)
        detail += f"; not used: {why}" if good and why else ""
        remedy = "" if good else f"check the node's driver and container runtime: {why}"
        yield Finding(f"GPUs of {node.name}", good, detail, remedy)


def _holders(cluster: ClusterClient, settings: PodSettings) -> Iterator[Finding]:
    """Yield which controller has each node."""
    leases = {lease.node: lease for lease in cluster.node_leases()}
    for node in cluster.nodes(settings.node_selector):
        lease = leases.get(node.name)
        text = f"{lease.who} (store {lease.holder})" if lease and lease.holder else "no controller"
        yield Finding(f"holder of {node.name}", True, text)


def _pod(cluster: ClusterClient, settings: PodSettings, url: str) -> Iterator[Finding]:
    """Yield whether a pod on a node that takes new ones runs, and reaches the controller."""
    for node in cluster.nodes(settings.node_selector):
        if node.ready and node.schedulable and pod.refusing_taint(node, settings) is None:
            yield from pod_check.findings(cluster, settings, node.name, url)
            return


def _claims(cluster: ClusterClient, settings: PodSettings) -> Iterator[Finding]:
    if settings.storage_claim is None:
        detail = "no claim for checkpoints: every job record must name its own"
        yield Finding("claim", True, detail)
    wanted = {mount.claim: not mount.read_only for mount in settings.mounts}
    if settings.storage_claim is not None:
        wanted[settings.storage_claim] = True
    for name, written in sorted(wanted.items()):
        claim = cluster.claim(name)
        modes = ", ".join(claim.modes) if claim is not None else ""
        if claim is None:
            yield Finding(f"claim {name}", False, "does not exist", f"create the claim {name}")
        elif not volume_affinity.is_shared(claim, written=written):
            detail = f"{modes}: a job stays on the node of its first start"
            remedy = f"use a claim with {volume_affinity.MANY_WRITERS}, or a single node"
            yield Finding(f"claim {name}", False, detail, remedy)
        else:
            yield Finding(f"claim {name}", True, modes)


def _manifest(
    cluster: ClusterClient, settings: PodSettings, devices: PodDevices
) -> Iterator[Finding]:
    """Yield the result of a launch as a dry run; it also shows whether the namespace exists."""
    nodes = cluster.nodes(settings.node_selector)
    spec = LaunchSpec(
        job="doctor",
        attempt=1,
        name="doctor",
        command=("python3", "train.py"),
        code=str(PurePosixPath(CHECKPOINTS).parent / "code"),
        checkpoints=CHECKPOINTS,
        coordinator_url="http://192.0.2.1",
        epoch=0,
        device_mode=DeviceMode.SIMULATED,
        host=nodes[0].name if nodes else "none",
        image=settings.image or SAMPLE_IMAGE,
    )
    mounts = Mounts(spec.code, spec.checkpoints, None, ())
    environment = devices.environment(spec)
    attempt = pod.Attempt(
        spec, settings, mounts, sidecar_archive.Archive(b""), environment, devices.runtime_class
    )
    name = settings.namespace
    try:
        warnings = cluster.dry_run_job(manifests.job(attempt))
    except KubernetesError as trouble:
        if trouble.status != NOT_FOUND:
            raise
        make = f"kubectl create namespace {name}, or correct `namespace` in the cluster file"
        yield Finding(f"namespace {name}", False, str(trouble), make)
        return
    yield Finding(f"namespace {name}", True, "exists")
    remedy = "" if not warnings else "change the cluster's admission rules, which would reject pods"
    detail = "; ".join(warnings) or "a Job is accepted without a warning (dry run)"
    yield Finding("manifest", not warnings, detail, remedy)
