"""The GPUs of real nodes: seen by a short pod on each, made visible in every pod by the runtime.

Does: starts a probe on each node that is new or was started again, takes its last word, and takes
it away; probes again where GPUs were in use by others. Never: waits (each call looks once), offers
a GPU that is in use or cannot be read, or asks a device plugin. State: what each node's probe said;
forgotten at a restart, when every node is probed again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from reshape_launcher.kubernetes import manifests, naming, pod, sidecar_archive
from reshape_launcher.kubernetes.gpus import NodeGpus
from reshape_launcher.kubernetes.settings import PodSettings
from reshape_launcher.kubernetes.values import ApiTrouble, Cluster, Manifest, Node, PodSeen
from reshape_launcher.spec import LaunchSpec
from reshape_sidecar import codec
from reshape_sidecar.gpu import Inventory

PROBE_S = 120.0
"""A probe takes no longer. Then: its node has no GPUs until it is probed again."""
AGAIN_S = 60.0
"""A node is probed again after so long while it has GPUs that cannot be offered."""
TTL_S = 30
"""A finished probe that nobody took away is kept so long."""
CPUS, MEMORY = "100m", str(128 << 20)
TOLD = "/dev/termination-log"
"""What is written there, at most 4096 bytes, is in the pod's status: nobody needs to read a log."""
_Key = tuple[str, str]
"""A node and its boot."""


@dataclass(frozen=True, slots=True)
class _Probe:
    name: str
    begun_s: float


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
        """Tells the probes of this controller's run from those of an earlier one."""
        self._begun = 0
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

    def of(self, cluster: Cluster, nodes: tuple[Node, ...]) -> Mapping[str, NodeGpus]:
        now_s = self._monotonic_s()
        there = {(node.name, node.boot_id): node for node in nodes}
        for kept in (self._probes, self._answers):
            for key in [key for key in kept if key not in there]:
                del kept[key]
        takes = {key for key, node in there.items() if node.ready and node.schedulable}
        due = [key for key in there if key in takes and self._is_due(key, now_s)]
        pods = cluster.pods(naming.probes(self._settings.controller)) if due else ()
        for key in due:
            self._advance(cluster, key, pods, now_s)
        return {name: answer.gpus for (name, _), answer in self._answers.items()}

    def looked_at(self, devices: tuple[str, ...]) -> str | None:
        for (name, _), answer in tuple(self._answers.items()):
            if set(devices) & set(answer.gpus.gpus):
                return name
        return None

    def _is_due(self, key: _Key, now_s: float) -> bool:
        answer = self._answers.get(key)
        return answer is None or bool(answer.gpus.trouble and now_s - answer.at_s >= AGAIN_S)

    def _advance(
        self, cluster: Cluster, key: _Key, pods: tuple[PodSeen, ...], now_s: float
    ) -> None:
        """Begin a node's probe, or see how far it is."""
        probe = self._probes.get(key)
        if probe is None:
            try:
                self._begin(cluster, key, now_s)
            except ApiTrouble as trouble:
                if trouble.away:
                    raise
                # For example a quota: of the other nodes there is something to say nevertheless.
                self._take(key, Inventory((), str(trouble)), now_s)
            return
        seen = next((pod for pod in pods if pod.of == probe.name), None)
        if seen is not None and seen.over:
            found = told(seen)
        elif now_s - probe.begun_s >= PROBE_S:
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
        self._take(key, found, now_s)

    def _take(self, key: _Key, found: Inventory, now_s: float) -> None:
        known = self._answers.get(key)
        offered = offer(found)
        if known is not None:  # what was offered once is in the ledger: it is in use by our own
            gpus = tuple(dict.fromkeys((*known.gpus.gpus, *offered.gpus)))
            offered = replace(offered, gpu_type=offered.gpu_type or known.gpus.gpu_type, gpus=gpus)
        self._answers[key] = _Answer(offered, now_s)

    def _begin(self, cluster: Cluster, key: _Key, now_s: float) -> None:
        self._begun += 1
        name = naming.probe_name(key[0], f"{self._run} {self._begun}")
        if self._archive is None:
            self._archive = sidecar_archive.build()
        cluster.create_config_map(manifests.config_map(self._archive, self._settings))
        cluster.create_job(job(name, key[0], self._settings, self._archive))
        self._probes[key] = _Probe(name, now_s)


def told(seen: PodSeen) -> Inventory:
    """The last word of a probe."""
    try:
        return codec.loads(Inventory, seen.message)
    except codec.CodecError:
        return Inventory((), f"the probe failed: {seen.reason or seen.message or 'no message'}")


def offer(found: Inventory) -> NodeGpus:
    """The GPUs that may be given to jobs: those that are empty, of the first one's type."""
    if not found.gpus:
        return NodeGpus("", (), found.trouble)
    kind = found.gpus[0].gpu_type
    left_out = [gpu.busy for gpu in found.gpus if gpu.busy]
    left_out += [
        f"GPU {gpu.uuid} is a {gpu.gpu_type}" for gpu in found.gpus if gpu.gpu_type != kind
    ]
    free = tuple(gpu.uuid for gpu in found.gpus if not gpu.busy and gpu.gpu_type == kind)
    return NodeGpus(kind, free, "; ".join(left_out), tuple(gpu.uuid for gpu in found.gpus))


def job(name: str, node: str, settings: PodSettings, built: sidecar_archive.Archive) -> Manifest:
    """The probe of one node. Raises LaunchError where the operator names no image."""
    labels = naming.probe_labels(settings.controller)
    container: Manifest = {
        "name": pod.CONTAINER,
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "command": [
            *(pod.PYTHON, "-I", "-S", f"{pod.ARCHIVE_FOLDER}/{pod.ARCHIVE_KEY}", "gpus", TOLD)
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
        "metadata": {"name": name, "namespace": settings.namespace, "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": int(PROBE_S),
            "ttlSecondsAfterFinished": TTL_S,
            "template": {
                "metadata": {"labels": labels},
                "spec": {
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
