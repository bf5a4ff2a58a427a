"""How GPUs reach a pod, which GPUs a node has, and whether they are free again.

Does: define the protocol of a kind of GPU, implement it for simulated GPUs (``gpu_probe``
implements it for real ones), and read the memory of GPUs through a pod that runs on their node.
Never: request a device from Kubernetes, for the controller's ledger assigns GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from reshape_launcher.kubernetes import naming, pod
from reshape_launcher.kubernetes.settings import PodSettings
from reshape_launcher.kubernetes.values import ClusterApi, KubernetesError, Node, NotRunning
from reshape_launcher.spec import SIMULATED_PREFIX, SIMULATED_TYPE, LaunchSpec
from reshape_sidecar import codec
from reshape_sidecar.gpu import Inventory


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """The GPUs of a node that jobs may use."""

    gpu_type: str
    """Their type as profiles call it."""
    gpus: tuple[str, ...]
    """Their ids in a fixed order, unique in the cluster."""
    trouble: str = ""
    """Why some or all GPUs are missing."""
    shown: tuple[str, ...] | None = None
    """All GPUs of the node, also those in use by others; None: not known."""


class PodDevices(Protocol):
    """One kind of GPU, on every node of a cluster."""

    @property
    def mode(self) -> str:
        """Describe in a few words how GPUs reach a pod."""

    @property
    def runtime_class(self) -> str | None:
        """Return the runtime class of every pod; None: the node's own runtime."""

    def of(self, cluster: ClusterApi, nodes: tuple[Node, ...]) -> Mapping[str, NodeGpus]:
        """Return the GPUs by node, without unprobed nodes. Raises KubernetesError."""

    def environment(self, spec: LaunchSpec) -> tuple[tuple[str, str], ...]:
        """Return variables for the container's runtime; the training process gets its own later."""

    def node_of(self, devices: tuple[str, ...]) -> str | None:
        """Return the node of these GPUs; None if their memory cannot be read there."""


@dataclass(frozen=True, slots=True)
class SimulatedDevices:
    """``count`` simulated GPUs on each node: TensorFlow logical CPU devices."""

    count: int
    gpu_type: str = SIMULATED_TYPE
    runtime_class: str | None = None

    @property
    def mode(self) -> str:
        return f"{self.count} simulated GPUs on each node"

    def of(self, cluster: ClusterApi, nodes: tuple[Node, ...]) -> Mapping[str, NodeGpus]:
        ids = {node.name: self._ids(node) for node in nodes}
        return {name: NodeGpus(self.gpu_type, gpus, shown=gpus) for name, gpus in ids.items()}

    def environment(self, spec: LaunchSpec) -> tuple[tuple[str, str], ...]:
        """Return variables that hide the GPUs of the node, if it has any."""
        return (("NVIDIA_VISIBLE_DEVICES", "void"),)

    def node_of(self, devices: tuple[str, ...]) -> str | None:
        return None

    def _ids(self, node: Node) -> tuple[str, ...]:
        return tuple(f"{SIMULATED_PREFIX}{node.name}-{number}" for number in range(self.count))


def busy_reason(
    cluster: ClusterApi, settings: PodSettings, node: str, devices: tuple[str, ...]
) -> str:
    """Return why one of ``devices`` is not free; empty if all are free.

    Also empty if no pod of this controller runs on the node: then only the end of the container
    that had the GPUs is known. Raises KubernetesError.
    """
    for seen in cluster.pods(naming.selector(settings.controller)):
        if seen.node != node or seen.over or not seen.started:
            continue
        try:
            inventory = codec.loads(Inventory, cluster.run_in(seen.name, pod.gpu_command()))
        except NotRunning:
            continue
        except codec.CodecError as error:
            raise KubernetesError(f"pod {seen.name}", 0, f"its probe: {error}") from error
        by_uuid = {gpu.uuid: gpu for gpu in inventory.gpus}
        for uuid in devices:
            why = by_uuid[uuid].busy if uuid in by_uuid else f"GPU {uuid} is not visible on {node}"
            if why:
                return why
        return ""
    return ""
