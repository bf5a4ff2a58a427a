"""The control groups of a node (version 1): every process of it, its containers and shims included.

Does: makes them, lists, freezes and kills what is inside, removes them. Never: touches a group
that is not the node's. State: the kernel's.
"""

from __future__ import annotations

import functools
import os
import signal
from pathlib import Path

from tests.kubernetes import layout
from tests.kubernetes.layout import Node
from tests.kubernetes.running import END_S, eventually, start_time

NEEDED = ("cpu", "cpuset", "devices", "freezer", "memory", "pids")
"""Hierarchies of version 1 without which kubelet, runc or the faults of the tests do not work."""
DAEMON_HIERARCHIES = ("pids", "freezer")
DAEMONS = "system"
"""Below the node's group: containerd and kubelet, and the shims that they leave there."""


def missing() -> list[str]:
    """Hierarchies of version 1 that this machine does not have."""
    return [name for name in NEEDED if not (layout.CGROUPS / name / "cgroup.procs").exists()]


def make(node: Node) -> list[Path]:
    """The node's group in every hierarchy (kubelet asks for all); gives the daemons' groups."""
    for hierarchy in _hierarchies():
        (hierarchy / node.short / DAEMONS).mkdir(parents=True, exist_ok=True)
    return [layout.CGROUPS / name / node.short / DAEMONS for name in DAEMON_HIERARCHIES]


def pids(node: Node) -> list[int]:
    """Every process of the node."""
    files = (layout.CGROUPS / "pids" / node.short).rglob("cgroup.procs")
    return sorted(int(line) for file in files for line in file.read_text().split())


def freeze(node: Node) -> None:
    """Stop every process of the node where it is: a machine that hangs."""
    _set_freezer(node, "FROZEN")


def thaw(node: Node) -> None:
    """Let them go on."""
    _set_freezer(node, "THAWED")


def kill(node: Node) -> None:
    """What a power cut does: no process of the node is left. Its files stay."""
    thaw(node)

    def none_left() -> bool:
        left = pids(node)
        for pid in left:
            # A pid of the group is the group's until it is read again; a zombie stays listed.
            if start_time(pid) is not None:
                os.kill(pid, signal.SIGKILL)
        return not left

    eventually(f"end of every process of {node.name}", none_left, END_S)


def remove(node: Node) -> None:
    """Remove the node's groups, which must be empty, the innermost first."""
    for group in groups(node):
        inner = [group, *(path for path in group.rglob("*") if path.is_dir())]
        for path in sorted(inner, reverse=True):
            eventually(f"removal of {path}", functools.partial(_removed, path), END_S)


def groups(node: Node) -> list[Path]:
    """The node's groups that exist."""
    found = (hierarchy / node.short for hierarchy in _hierarchies())
    return [group for group in found if group.is_dir()]


def _removed(path: Path) -> bool:
    path.rmdir()
    return True


def _set_freezer(node: Node, state: str) -> None:
    file = layout.CGROUPS / "freezer" / node.short / "freezer.state"
    if file.exists():
        file.write_text(state)
        eventually(f"{node.name} is {state}", lambda: file.read_text().strip() == state, END_S)


def _hierarchies() -> list[Path]:
    return [path for path in sorted(layout.CGROUPS.iterdir()) if path.is_dir()]
