"""Names, addresses and folders of the test cluster: all of it fixed by the cluster's number.

Does: says where everything is. Never: makes any of it. State: none.

Names and addresses must be free on the machine; they are in one place so that they can be changed.
Clusters of other numbers (RESHAPE_KUBE_NUMBER, 0 to 9) share nothing with this one but the cache.
Where tests run on several workers, each has a cluster: of this number, of the next, and so on.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
"""Which of pytest-xdist's workers this is, as it calls them."""
NUMBER = int(os.environ.get("RESHAPE_KUBE_NUMBER", "0")) + int(WORKER.removeprefix("gw"))
ROOT = Path(f"/var/tmp/reshape-kube-{NUMBER}")
"""Everything of a running cluster. Short, for a Unix socket's path has at most 107 bytes."""
LOCK = ROOT.with_suffix(".lock")
"""Held while a cluster is brought up or taken down."""
IN_USE = ROOT.with_suffix(".in-use")
"""Held by a test run for as long as it lasts: it may kill nodes that another would need."""
DEVICE_SOCKET = Path("/var/lib/kubelet/device-plugins/kubelet.sock")
"""The same for each kubelet of the machine; the path cannot be configured."""
DEVICE_SOCKET_LOCK = Path("/var/tmp/reshape-kube-device-socket.lock")
"""Held, by any worker, while a kubelet takes the socket for its own."""
BRIDGE = f"rk{NUMBER}-bridge"
BRIDGE_ADDRESS = f"10.87.{NUMBER}.1"
API_PORT = 6443
API_URL = f"https://{BRIDGE_ADDRESS}:{API_PORT}"
ETCD_URL = f"http://{BRIDGE_ADDRESS}:2379"
ETCD_PEER_URL = f"http://{BRIDGE_ADDRESS}:2380"
SERVICE_RANGE = "10.96.0.0/16"
SERVICE_API_ADDRESS = "10.96.0.1"
"""The first address of SERVICE_RANGE: what pods know as the API server."""
CGROUPS = Path("/sys/fs/cgroup")
NETWORK_NAMESPACES = Path("/run/netns")
CNI_PLUGINS = Path("/usr/lib/cni")
CNI_RESULTS = Path("/var/lib/cni/results")
"""Where the CNI library keeps what it did; the place cannot be configured."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node: a kubelet and a containerd in a network namespace and a cgroup of their own."""

    number: int

    @property
    def name(self) -> str:
        return f"node{self.number}"

    @property
    def short(self) -> str:
        """Name of its network namespace, its cgroup and its CNI network."""
        return f"rk{NUMBER}{self.number}"

    @property
    def leg(self) -> str:
        """Its end of the cable at the bridge."""
        return f"rk{NUMBER}-leg{self.number}"

    @property
    def address(self) -> str:
        return f"10.87.{NUMBER}.{10 + self.number}"

    @property
    def pod_range(self) -> str:
        return f"10.88.{10 * NUMBER + self.number}.0/24"

    @property
    def folder(self) -> Path:
        return ROOT / self.name

    @property
    def socket(self) -> Path:
        """Where its containerd listens."""
        return self.folder / "containerd.sock"

    @property
    def namespace(self) -> Path:
        return NETWORK_NAMESPACES / self.short


NODES = (Node(1), Node(2))


def cache() -> Path:
    """What outlives a cluster: the server program, the base image, the Python packages."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "reshape-kubernetes"
