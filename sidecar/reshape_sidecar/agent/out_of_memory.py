"""How often the kernel killed a process of this container because memory ran out.

Does: reads the counter of our own cgroup, of version 2 or 1. Never: raises; where there is no such
counter it is 0, and an end is told without its cause. State: none.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


def kills(own: Path = OWN, cgroups: Path = CGROUPS) -> int:
    """Processes killed so far. In a container the mount is often our cgroup itself, whatever path
    the kernel calls it by."""
    for place in _places(own, cgroups):
        for entry in _lines(place):
            if entry.startswith("oom_kill "):
                return int(entry.split()[1])
    return 0


def _places(own: Path, cgroups: Path) -> Iterator[Path]:
    for line in _lines(own):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            yield from (cgroups / path[1:] / "memory.events", cgroups / "memory.events")
        elif controllers == "memory":
            mount = cgroups / "memory"
            yield from (mount / path[1:] / "memory.oom_control", mount / "memory.oom_control")


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return []
