"""The GPUs of real nodes: a short pod on each node lists them; the runtime shows them to every pod.

Does: start a probe on each node that is new or has restarted, read its termination message, delete
it, and repeat it if GPUs were in use by others. Each call advances the probes once and does not
wait. Never: offer a GPU that is in use or cannot be read. State: the answers of the probes; after a
restart every node is probed again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from reshape_launcher.kubernetes import manifests, naming, pod, sidecar_archive
from reshape_launcher.kubernetes.gpus import NodeGpus
from reshape_launcher.kubernetes.settings import PodSettings
from reshape_launcher.kubernetes.values import ClusterApi, KubernetesError, Manifest, Node, PodInfo
from reshape_launcher.spec import LaunchSpec
from reshape_sidecar import codec
from reshape_sidecar.gpu import Inventory

PROBE_S = 120.0
"""Time limit of a probe. Then: its node has no GPUs until the next probe."""
REPROBE_S = 60.0
"""Time to the next probe of a node that has GPUs which cannot be offered."""
TTL_S = 30
"""Time after which Kubernetes removes a finished probe by itself."""
CPUS, MEMORY = "100m", str(128 << 20)
TERMINATION_LOG = "/dev/termination-log"
"""The pod's status has the text of this file, at most 4096 bytes, so that no log has to be read."""
LIST_GPUS = ("gpus", TERMINATION_LOG)
_Key = tuple[str, str]
"""Name and boot id of a node."""


@dataclass(frozen=True, slots=True)
class _Probe:
    name: str
    start_s: float


@dataclass(frozen=True, slots=True)
class _Answer:
    gpus: NodeGpus
    at_s: float


class ProbedDevices:
    """``PodDevices`` of nodes with GPUs. ``monotonic_s`` is any steady clock."""

    def __init__(
        self, settings: PodSettings, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._monotonic_s = monotonic_s
        self._run = secrets.token_hex(4)
        """Distinguishes the probes of this process from those of an earlier one."""
        self._count = 0
        self._archive: sidecar_archive.Archive | None = None
        self._probes: dict[_Key, _Probe] = {}
        self._answers: dict[_Key, _Answer] = {}

    @property
    def runtime_class(self) -> str | None:
        return self._settings.runtime_class

    @property
    def mode(self) -> str:
        by = "the node's own runtime"
        if self.runtime_class is not None:
            by = f"runtime class {self.runtime_class}"
        return f"every pod sees all GPUs of its node, by {by}; no device plugin"

    def environment(self, spec: LaunchSpec) -> tuple[tuple[str, str], ...]:
        return (
            ("NVIDIA_VISIBLE_DEVICES", "all"),
            ("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"),
        )

    def of(self, cluster: ClusterApi, nodes: tuple[Node, ...]) -> Mapping[str, NodeGpus]:
        now_s = self._monotonic_s()
        by_key = {(node.name, node.boot_id): node for node in nodes}
        for cache in (self._probes, self._answers):
            for key in [key for key in cache if key not in by_key]:
                del cache[key]
        usable = {key for key, node in by_key.items() if node.ready and node.schedulable}
        due = [key for key in by_key if key in usable and self._is_due(key, now_s)]
        pods = cluster.pods(naming.probes(self._settings.controller)) if due else ()
        for key in due:
            self._advance(cluster, key, pods, now_s)
        return {name: answer.gpus for (name, _), answer in self._answers.items()}

    def node_of(self, devices: tuple[str, ...]) -> str | None:
        for (name, _), answer in tuple(self._answers.items()):
            if set(devices) & set(answer.gpus.gpus):
                return name
        return None

    def _is_due(self, key: _Key, now_s: float) -> bool:
        answer = self._answers.get(key)
        return answer is None or bool(answer.gpus.trouble and now_s - answer.at_s >= REPROBE_S)

    def _advance(
        self, cluster: ClusterApi, key: _Key, pods: tuple[PodInfo, ...], now_s: float
    ) -> None:
        """Start a node's probe, or take its answer if it has ended."""
        probe = self._probes.get(key)
        if probe is None:
            try:
                self._start(cluster, key, now_s)
            except KubernetesError as trouble:
                if trouble.away:
                    raise
                # For example a quota: the other nodes can still be probed.
                self._record(key, Inventory((), str(trouble)), now_s)
            return
        seen = next((pod for pod in pods if pod.of == probe.name), None)
        if seen is not None and seen.over:
            found = answer_of(seen)
        elif now_s - probe.start_s >= PROBE_S:
            why = (
                seen.trouble
                if seen is not None
                else "Kubernetes created no pod; see kubectl describe job"
            )
            found = Inventory((), f"{why or 'the probe does not end'} ({probe.name})")
        else:
            return
        cluster.delete_job(probe.name)
        del self._probes[key]
        self._record(key, found, now_s)

    def _record(self, key: _Key, found: Inventory, now_s: float) -> None:
        known = self._answers.get(key)
        offered = offer(found)
        if known is not None:  # GPUs offered before are in the ledger, and our own jobs use them
            gpus = tuple(dict.fromkeys((*known.gpus.gpus, *offered.gpus)))
            offered = replace(offered, gpu_type=offered.gpu_type or known.gpus.gpu_type, gpus=gpus)
        self._answers[key] = _Answer(offered, now_s)

    def _start(self, cluster: ClusterApi, key: _Key, now_s: float) -> None:
        self._count += 1
        name = naming.probe_name(key[0], f"{self._run} {self._count}")
        if self._archive is None:
            self._archive = sidecar_archive.build()
        cluster.create_config_map(manifests.config_map(self._archive, self._settings))
        cluster.create_job(probe_job(name, key[0], self._settings, self._archive))
        self._probes[key] = _Probe(name, now_s)


def answer_of(seen: PodInfo) -> Inventory:
    """Return the inventory in a probe's termination message."""
    try:
        return codec.loads(Inventory, seen.message)
    except codec.CodecError:
        return Inventory((), f"the probe failed: {seen.reason or seen.message or 'no message'}")


def offer(found: Inventory) -> NodeGpus:
    """Return the GPUs that jobs may get: those that are free, of the type of the first GPU."""
    if not found.gpus:
        return NodeGpus("", (), found.trouble)
    kind = found.gpus[0].gpu_type
    left_out = [gpu.busy for gpu in found.gpus if gpu.busy]
    left_out += [
        f"GPU {gpu.uuid} is a {gpu.gpu_type}" for gpu in found.gpus if gpu.gpu_type != kind
    ]
    free = tuple(gpu.uuid for gpu in found.gpus if not gpu.busy and gpu.gpu_type == kind)
    return NodeGpus(kind, free, "; ".join(left_out), tuple(gpu.uuid for gpu in found.gpus))


def probe_job(
    name: str,
    node: str,
    settings: PodSettings,
    built: sidecar_archive.Archive,
    words: tuple[str, ...] = LIST_GPUS,
) -> Manifest:
    """Return the Job that probes a node. ``words``: what its program does."""
    own = dict(settings.labels)
    own.pop(naming.QUEUE, None)  # a probe has no GPU and waits for no quota
    labels = own | naming.probe_labels(settings.controller)
    container: Manifest = {
        "name": pod.CONTAINER,
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "command": [
            *(
                pod.PYTHON,
                "-I",
                "-S",
                f"{pod.ARCHIVE_FOLDER}/{pod.ARCHIVE_KEY}",
                *words,
            )
        ],
        "env": [
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
            {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
        ],
        "resources": {
            "limits": {"cpu": "1", "memory": MEMORY, "ephemeral-storage": MEMORY},
            "requests": {"cpu": CPUS, "memory": MEMORY, "ephemeral-storage": "0"},
        },
        "securityContext": dict(pod.NO_RIGHTS),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "archive", "mountPath": pod.ARCHIVE_FOLDER, "readOnly": True}],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": settings.namespace,
            "labels": labels,
            "annotations": dict(settings.annotations),
        },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": int(PROBE_S),
            "ttlSecondsAfterFinished": TTL_S,
            "template": {
                "metadata": {"labels": labels, "annotations": dict(settings.annotations)},
                "spec": {
                    **pod.access(settings),
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "affinity": pod.only_on(node),
                    "tolerations": pod.tolerations(settings),
                    "securityContext": pod.security(settings),
                    **pod.runtime(settings.runtime_class),
                    "containers": [container],
                    "volumes": [{"name": "archive", "configMap": {"name": built.name}}],
                },
            },
        },
    }
