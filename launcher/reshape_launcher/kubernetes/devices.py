"""How GPUs reach a pod, and which a node has: the part of a launch that differs by kind of GPU.

Does: names the protocol, and the kind for nodes without GPUs. Never: gives a pod the right to ask
Kubernetes for a device (that is the controller's ledger), or invents a GPU that nobody asked for.
State: none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from reshape_launcher.kubernetes.cluster import Node
from reshape_launcher.spec import LaunchSpec

SIMULATED_PREFIX = "sim-"


class PodDevices(Protocol):
    """One kind of GPU, on every node of a cluster."""

    @property
    def gpu_type(self) -> str:
        """What profiles call it."""

    def of(self, node: Node) -> tuple[str, ...]:
        """The ids of the node's GPUs, in a fixed order, unique in the cluster."""

    def environment(self, spec: LaunchSpec) -> tuple[tuple[str, str], ...]:
        """What the container's runtime has to be told; the training process gets its own later."""


@dataclass(frozen=True, slots=True)
class SimulatedDevices:
    """``count`` simulated GPUs on each node: TensorFlow logical CPU devices."""

    count: int
    gpu_type: str = "simulated"

    def of(self, node: Node) -> tuple[str, ...]:
        return tuple(f"{SIMULATED_PREFIX}{node.name}-{number}" for number in range(self.count))

    def environment(self, spec: LaunchSpec) -> tuple[tuple[str, str], ...]:
        """No GPU of the node, if it has any, is made visible."""
        return (("NVIDIA_VISIBLE_DEVICES", "void"),)
