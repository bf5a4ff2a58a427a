"""The cgroups of the attempt whose init this is; standard library only.

Does: makes the group of each start, moves a fork or successor into that of its generation, and
names the groups that a sweep empties. Without a group of its own (in a pod, or where the kernel
holds none) every answer is that there is none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from reshape_sidecar import cgroup


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups below that of an attempt; ``attempt`` None: there are none."""

    attempt: Path | None = None

    def training(self, generation: int) -> Path | None:
        """Return the group for the training process of a generation. Raises CgroupError."""
        if self.attempt is None:
            return None
        return cgroup.make(cgroup.of_generation(self.attempt, generation))

    def enter_training(self, generation: int, pid: int) -> None:
        """Move a fork into the group of its generation. Raises CgroupError."""
        group = self.training(generation)
        if group is not None:
            cgroup.enter(group, pid)

    def zygote(self) -> Path | None:
        """Return the group for the zygote. Raises CgroupError."""
        return None if self.attempt is None else cgroup.make(self.attempt / cgroup.ZYGOTE)

    def successor(self, number: int) -> Path | None:
        """Return the group for the successor of a preparation. Raises CgroupError."""
        if self.attempt is None:
            return None
        return cgroup.make(cgroup.of_successor(self.attempt, number))

    def enter_successor(self, number: int, pid: int) -> None:
        """Move a fork into the group of the successor of a preparation. Raises CgroupError."""
        group = self.successor(number)
        if group is not None:
            cgroup.enter(group, pid)

    def adopt(self, number: int, generation: int) -> None:
        """Move a successor into the group of its generation. Raises CgroupError."""
        target = self.training(generation)
        if self.attempt is None or target is None:
            return
        source = cgroup.of_successor(self.attempt, number)
        cgroup.move_all(source, target)
        cgroup.remove(source)

    def swept(self, *, zygote: bool, successor: int | None) -> list[Path]:
        """Return the groups that a sweep empties, without the spared ones. Raises OSError.

        ``zygote``: whether it is spared. ``successor``: the preparation that is spared.
        """
        if self.attempt is None:
            return []
        spared = [self.attempt / cgroup.ZYGOTE] if zygote else []
        if successor is not None:
            spared.append(cgroup.of_successor(self.attempt, successor))
        return cgroup.children_but(self.attempt, spared)

    def remove(self, groups: Iterable[Path]) -> None:
        """Remove groups that are empty."""
        for group in groups:
            cgroup.remove(group)


NO_GROUPS = Groups()
