"""The cluster's network: a bridge, a namespace for each node with one cable to it, plain routes.

Does: lays it, cuts and joins one node's cable, takes it away. Never: needs DNS, kube-proxy or NAT
for pods: a pod's address is the same everywhere; only the API server's service address is mapped.
State: the kernel's.
"""

from __future__ import annotations

from pathlib import Path

from tests.kubernetes import layout
from tests.kubernetes.layout import BRIDGE, NODES, Node
from tests.kubernetes.running import END_S, ClusterError, eventually, run


def lay() -> None:
    """The bridge with the API server's address, and every node's cable and routes."""
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    run("ip", "address", "add", f"{layout.BRIDGE_ADDRESS}/24", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")
    for node in NODES:
        _lay_cable(node)
    for node in NODES:
        run("ip", "route", "add", node.pod_range, "via", node.address)
        for other in NODES:
            if other != node:
                run(*_inside(node), "route", "add", other.pod_range, "via", other.address)


def cut(node: Node) -> None:
    """Pull the cable: the node and its pods run on and reach nobody outside."""
    run("ip", "link", "set", node.leg, "down")


def join(node: Node) -> None:
    """Put the cable back."""
    run("ip", "link", "set", node.leg, "up")


def enter(node: Node) -> list[str | Path]:
    """Words before a command that let it run in the node's network.

    Not ``ip netns exec``: that mounts a /sys in which there are no cgroups.
    """
    return ["nsenter", f"--net={node.namespace}", "--"]


def remove() -> None:
    """Take away what is there of it; what is not there is no error."""
    for node in NODES:
        if node.namespace.exists():
            run("ip", "netns", "delete", node.short)
        _delete_link(node.leg)
    _delete_link(BRIDGE)  # its routes go along


def remains() -> list[str]:
    """Names of namespaces and links of ours that exist."""
    names = [node.short for node in NODES if node.namespace.exists()]
    return names + [name for name in (BRIDGE, *(n.leg for n in NODES)) if _has_link(name)]


def _lay_cable(node: Node) -> None:
    run("ip", "netns", "add", node.short)
    peer = ("peer", "name", "eth0", "netns", node.short)
    run("ip", "link", "add", node.leg, "type", "veth", *peer)
    run("ip", "link", "set", node.leg, "master", BRIDGE, "up")
    run(*_inside(node), "address", "add", f"{node.address}/24", "dev", "eth0")
    run(*_inside(node), "link", "set", "lo", "up")
    run(*_inside(node), "link", "set", "eth0", "up")
    run(*_inside(node), "route", "add", "default", "via", layout.BRIDGE_ADDRESS)
    run(*enter(node), "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
    rule = ("-d", layout.SERVICE_API_ADDRESS, "-p", "tcp", "--dport", "443")
    target = ("-j", "DNAT", "--to-destination", f"{layout.BRIDGE_ADDRESS}:{layout.API_PORT}")
    for chain in ("PREROUTING", "OUTPUT"):
        run(*enter(node), "iptables", "-t", "nat", "-A", chain, *rule, *target)


def _inside(node: Node) -> list[str | Path]:
    return ["ip", "-n", node.short]


def _delete_link(name: str) -> None:
    """Until it is gone: the kernel takes a namespace's cables away by itself, in its own time."""

    def gone() -> bool:
        if _has_link(name):
            run("ip", "link", "delete", name)
        return not _has_link(name)

    eventually(f"removal of {name}", gone, END_S)


def _has_link(name: str) -> bool:
    try:
        run("ip", "link", "show", name)
    except ClusterError:
        return False
    return True
