"""One node's containerd and kubelet: their configuration, their start, their end.

Does: writes the files, starts both in the node's network and cgroup, takes away what a hard end
leaves behind. Never: uses a folder or socket of a containerd that the machine may have itself.
State: ``ROOT/NODE``.

Why the configuration is as it is: two kubelets on one machine need a ``cgroupRoot`` and a folder of
logs each, or they remove each other's pods and pods' logs as orphans; ``restrict_oom_score_adj``
lets runc work where even root may not lower that score; mounts below the state folder go with it.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Sequence
from pathlib import Path

from tests.kubernetes import cgroups, layout, network, stand_in
from tests.kubernetes.control_plane import kubeconfig
from tests.kubernetes.layout import ROOT, Node
from tests.kubernetes.running import Daemon, eventually, run

START_S = 120.0
IMPORT_S = 600.0
STATUS_S = 2
LEASE_S = 8
"""How often kubelet says that it lives; with NODE_SILENT_S of the control plane."""
RESOLVER = "resolv.conf"
"""The resolver of pods: nothing listens there, so that a look-up fails at once. No server answers
them here, and PyTorch looks up the name of 127.0.0.1 at each start: it would wait for 10 s."""
CONTAINERD_TOML = """version = 2
root = "{folder}/containerd/root"
state = "{folder}/containerd/state"
[grpc]
address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{sandbox}"
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
runtime_type = "io.containerd.runc.v2"
base_runtime_spec = "{folder}/nvidia.json"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{plugins}"
conf_dir = "{folder}/cni"
"""


def configure(node: Node, sandbox: str) -> None:
    """Write the files of both daemons; ``sandbox`` is the image that holds a pod's namespaces."""
    (node.folder / "cni").mkdir(parents=True)
    (node.folder / "cni" / "10.conflist").write_text(json.dumps(_cni(node)))
    (node.folder / "containerd.toml").write_text(
        CONTAINERD_TOML.format(
            folder=node.folder, socket=node.socket, sandbox=sandbox, plugins=layout.CNI_PLUGINS
        )
    )
    (node.folder / "nvidia.json").write_text(json.dumps(stand_in.runtime_spec(node)))
    (node.folder / RESOLVER).write_text("nameserver 127.0.0.1\n")
    (node.folder / "kubelet.json").write_text(json.dumps(_kubelet(node)))


def start(node: Node, program: Path, images: tuple[Path, ...] = ()) -> None:
    """Start containerd, import ``images``, start kubelet; returns when both are started."""
    _remove_sockets(node)
    groups = cgroups.make(node)
    enter = network.enter(node)
    containerd = Daemon(f"containerd-{node.name}")
    containerd.start(*enter, "containerd", "-c", node.folder / "containerd.toml", groups=groups)
    eventually(f"containerd of {node.name}", lambda: run(*_ctr(node), "version"), START_S)
    for image in images:
        take_in(node, image)
    _start_kubelet(
        node,
        *enter,
        *(program, "kubelet", f"--config={node.folder}/kubelet.json"),
        *(f"--kubeconfig={kubeconfig(node.name)}", f"--hostname-override={node.name}"),
        *(f"--root-dir={node.folder}/kubelet", f"--cert-dir={node.folder}/pki"),
        f"--node-ip={node.address}",
        groups=groups,
    )


def _start_kubelet(node: Node, *words: str | Path, groups: Sequence[Path]) -> None:
    """Start kubelet, and wait until it has bound its device socket, which has a fixed path.

    Each kubelet removes the socket of another and binds its own. Two that do so at the same time
    may both remove first, and then the second one ends with "address already in use".
    """
    kubelet = Daemon(f"kubelet-{node.name}")

    def bound() -> bool:
        kubelet.check()
        return layout.DEVICE_SOCKET.exists()

    with layout.DEVICE_SOCKET_LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        layout.DEVICE_SOCKET.unlink(missing_ok=True)
        kubelet.start(*words, groups=groups)
        eventually(f"device socket of kubelet on {node.name}", bound, START_S)


def take_in(node: Node, image: Path) -> None:
    """Let the node have the image of this archive."""
    run(*_ctr(node), "image", "import", image, timeout_s=IMPORT_S)


def _ctr(node: Node) -> tuple[str | Path, ...]:
    return ("ctr", "-a", node.socket, "-n", "k8s.io")


def clear(node: Node) -> None:
    """Unmount and remove what the end of all its processes leaves outside its folder."""
    for mount in _mounts(node.folder):
        run("umount", "--lazy", mount)
    _remove_sockets(node)
    sandboxes = node.folder / "containerd/root/io.containerd.grpc.v1.cri/sandboxes"
    for sandbox in sandboxes.glob("*"):
        for result in layout.CNI_RESULTS.glob(f"*-{sandbox.name}-*"):
            result.unlink(missing_ok=True)
    cgroups.remove(node)


def _remove_sockets(node: Node) -> None:
    """Sockets of shims, which are elsewhere, and of which none runs when a node is not up."""
    for file in (node.folder / "containerd" / "state").rglob("address"):
        scheme, _, path = file.read_text().strip().partition("://")
        if scheme == "unix":
            Path(path).unlink(missing_ok=True)


def mounts_left() -> list[str]:
    """Mount points below the cluster's folder."""
    return _mounts(ROOT)


def _mounts(folder: Path) -> list[str]:
    """Mount points below ``folder``, the innermost first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = (line.split()[4] for line in lines)
    return sorted((point for point in points if point.startswith(f"{folder}/")), reverse=True)


def _cni(node: Node) -> dict[str, object]:
    addresses = {
        "type": "host-local",
        "dataDir": str(node.folder / "addresses"),
        "ranges": [[{"subnet": node.pod_range}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": addresses,
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "0.4.0", "name": node.short, "plugins": [bridge, ports]}


def _kubelet(node: Node) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.short}",
        "containerRuntimeEndpoint": f"unix://{node.socket}",
        "enforceNodeAllocatable": [],
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
        },
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "nodeLeaseDurationSeconds": LEASE_S,
        "nodeStatusUpdateFrequency": f"{STATUS_S}s",
        "podLogsDir": str(node.folder / "pod-logs"),
        "resolvConf": str(node.folder / RESOLVER),
    }
