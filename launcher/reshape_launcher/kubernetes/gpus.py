"""How GPUs reach a pod, and which a node has: the part of a launch that differs by kind of GPU.

Does: names the protocol, and the kind for nodes without GPUs (``probing`` has the other). Never:
gives a pod the right to ask Kubernetes for a device (that is the controller's ledger), or invents
a GPU that nobody asked for. State: none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from reshape_launcher.kubernetes import naming, pod
from reshape_launcher.kubernetes.settings import PodSettings
from reshape_launcher.kubernetes.values import ApiTrouble, Cluster, Node, NotRunning
from reshape_launcher.spec import SIMULATED_PREFIX, SIMULATED_TYPE, LaunchSpec
from reshape_sidecar import codec
from reshape_sidecar.gpu import Inventory


def held(cluster: Cluster, settings: PodSettings, node: str, devices: tuple[str, ...]) -> str:
    """Why one of ``devices`` cannot be called empty; nothing if all are, or if no pod of ours runs
    on the node: then the end of the container that had them is all that is known.

    Raises ApiTrouble.
    """
    for seen in cluster.pods(naming.selector(settings.controller)):
        if seen.node != node or seen.over or not seen.started:
            continue
        try:
            found = codec.loads(Inventory, cluster.run_in(seen.name, pod.gpus()))
        except NotRunning:
            continue
        except codec.CodecError as error:
            raise ApiTrouble(f"pod {seen.name}", 0, f"its probe: {error}") from error
        shown = {gpu.uuid: gpu for gpu in found.gpus}
        for uuid in devices:
            why = shown[uuid].busy if uuid in shown else f"GPU {uuid} is not visible on {node}"
            if why:
                return why
        return ""
    return ""


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """The ids of a node's GPUs, in a fixed order, unique in the cluster, and what profiles call
    their type. ``trouble``: why some or all are missing. ``shown``: every GPU that the node shows,
    whoever uses it; None: nobody could look."""

    gpu_type: str
    gpus: tuple[str, ...]
    trouble: str = ""
    shown: tuple[str, ...] | None = None


class PodDevices(Protocol):
    """One kind of GPU, on every node of a cluster."""

    @property
    def mode(self) -> str:
        """How GPUs reach a pod, in a few words."""

    @property
    def runtime_class(self) -> str | None:
        """Of every pod."""

    def of(self, cluster: Cluster, nodes: tuple[Node, ...]) -> Mapping[str, NodeGpus]:
        """GPUs by node; nodes of which nothing is known yet are left out. Raises ApiTrouble."""

    def environment(self, spec: LaunchSpec) -> tuple[tuple[str, str], ...]:
        """What the container's runtime has to be told; the training process gets its own later."""

    def looked_at(self, devices: tuple[str, ...]) -> str | None:
        """The node whose GPUs these are, if their memory can be read there."""


@dataclass(frozen=True, slots=True)
class SimulatedDevices:
    """``count`` simulated GPUs on each node: TensorFlow logical CPU devices."""

    count: int
    gpu_type: str = SIMULATED_TYPE
    runtime_class: str | None = None

    @property
    def mode(self) -> str:
        return f"{self.count} simulated GPUs on each node"

    def of(self, cluster: Cluster, nodes: tuple[Node, ...]) -> Mapping[str, NodeGpus]:
        ids = {node.name: self._ids(node) for node in nodes}
        return {name: NodeGpus(self.gpu_type, gpus, shown=gpus) for name, gpus in ids.items()}

    def environment(self, spec: LaunchSpec) -> tuple[tuple[str, str], ...]:
        """No GPU of the node, if it has any, is made visible."""
        return (("NVIDIA_VISIBLE_DEVICES", "void"),)

    def looked_at(self, devices: tuple[str, ...]) -> str | None:
        return None

    def _ids(self, node: Node) -> tuple[str, ...]:
        return tuple(f"{SIMULATED_PREFIX}{node.name}-{number}" for number in range(self.count))
