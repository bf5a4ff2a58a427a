"""The control groups of a node: every process of it, its containers and shims included.

Does: makes them, lists, freezes and kills what is inside, removes them; in the many hierarchies of
version 1, or in the one of version 2. Never: touches a group that is not the node's. State: the
kernel's.
"""

from __future__ import annotations

import functools
import os
import signal
from pathlib import Path

from tests.kubernetes import layout
from tests.kubernetes.layout import Node
from tests.kubernetes.running import END_S, ClusterError, eventually, start_time

NEEDED = ("cpu", "cpuset", "devices", "freezer", "memory", "pids")
"""Hierarchies of version 1 without which kubelet, runc or the faults of the tests do not work."""
CONTROLLERS = ("cpu", "cpuset", "memory", "pids")
"""The same of version 2, where freezing needs no controller, and devices are no file."""
DAEMON_HIERARCHIES = ("pids", "freezer")
DAEMONS = "system"
"""Below the node's group: containerd and kubelet, and the shims that they leave there."""
TRY_2 = "RESHAPE_KUBE_CGROUPS"
"""Set to 2 it lets nodes start in cgroups of version 2."""


def fault() -> str | None:
    """Why nodes cannot have their groups on this machine, with the remedy; None: all is well."""
    if _is_2():
        there = (layout.CGROUPS / "cgroup.controllers").read_text().split()
        missing = [name for name in CONTROLLERS if name not in there]
        if missing:
            return f"cgroups of version 2 lack the controllers {', '.join(missing)}; delegate them"
        if os.environ.get(TRY_2) != "2":
            return (
                "cgroups of version 2 alone, on which no kubelet of these tests has run yet; set "
                f"{TRY_2}=2 to try it, boot with systemd.unified_cgroup_hierarchy=0"
            )
        return None
    missing = [name for name in NEEDED if not (layout.CGROUPS / name / "cgroup.procs").exists()]
    if missing:
        return f"the cgroups {', '.join(missing)} of version 1 are not there; mount them"
    return None


def make(node: Node) -> list[Path]:
    """The node's group in every hierarchy (kubelet asks for all); gives the daemons' groups."""
    for hierarchy in _hierarchies():
        (hierarchy / node.short / DAEMONS).mkdir(parents=True, exist_ok=True)
    if _is_2():
        for group in (layout.CGROUPS, layout.CGROUPS / node.short):
            _delegate(group)
        return [layout.CGROUPS / node.short / DAEMONS]
    return [layout.CGROUPS / name / node.short / DAEMONS for name in DAEMON_HIERARCHIES]


def pids(node: Node) -> list[int]:
    """Every process of the node."""
    hierarchy = layout.CGROUPS if _is_2() else layout.CGROUPS / "pids"
    files = (hierarchy / node.short).rglob("cgroup.procs")
    return sorted(int(line) for file in files for line in file.read_text().split())


def freeze(node: Node) -> None:
    """Stop every process of the node where it is: a machine that hangs."""
    _set_frozen(node, True)


def thaw(node: Node) -> None:
    """Let them go on."""
    _set_frozen(node, False)


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


def _set_frozen(node: Node, frozen: bool) -> None:
    if _is_2():
        group = layout.CGROUPS / node.short
        file, word = group / "cgroup.freeze", str(int(frozen))
        said, reached = group / "cgroup.events", f"frozen {word}"
    else:
        said = file = layout.CGROUPS / "freezer" / node.short / "freezer.state"
        reached = word = "FROZEN" if frozen else "THAWED"
    if file.exists():
        file.write_text(word)
        eventually(
            f"{node.name} is {reached}", lambda: reached in said.read_text().splitlines(), END_S
        )


def _delegate(group: Path) -> None:
    """Let the groups inside have the controllers (version 2)."""
    there = (group / "cgroup.controllers").read_text().split()
    wanted = [f"+{name}" for name in CONTROLLERS if name in there]
    try:
        (group / "cgroup.subtree_control").write_text(" ".join(wanted))
    except OSError as error:
        raise ClusterError(
            f"{group}: its controllers cannot be delegated ({error.strerror}); move the processes "
            "that are in this group itself into one below it, or set KUBECONFIG"
        ) from None


def _hierarchies() -> list[Path]:
    if _is_2():
        return [layout.CGROUPS]
    return [path for path in sorted(layout.CGROUPS.iterdir()) if path.is_dir()]


def _is_2() -> bool:
    """Whether this machine has version 2 alone; with both, the controllers are in version 1."""
    return (layout.CGROUPS / "cgroup.controllers").exists()
