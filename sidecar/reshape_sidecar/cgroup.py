"""Cgroups: the groups of an attempt's processes, and what the kernel says of memory.

Does: makes a group, enters it, shows a process no other group, kills a group until the kernel says
that it is empty, and reads limits and counts of memory. A process cannot leave its group by a
double fork, a session of its own or a cleared environment. Standard library only.

Groups of an attempt (version 2), below the group that the launcher made for it:
``reshape-init`` (init and agent), ``zygote``, ``successor-N`` by preparation, and
``generation-N`` by start. Emptiness is ``populated 0`` in ``cgroup.events``, because
``cgroup.procs`` shows no process of a group below.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")
MOUNTS = Path("/proc/self/mountinfo")
INIT = "reshape-init"
ZYGOTE = "zygote"
_GENERATION = re.compile(r"generation-(\d+)\Z")
_SUCCESSOR = re.compile(r"successor-(\d+)\Z")
CONTROLLERS = {"pids": "pids.max", "memory": "memory.max", "cpu": "cpu.max"}
"""Controllers that limit an attempt, with the file of version 2 by which each is found."""
CPU_US = 100_000
"""Period of a limit of CPU time."""
CPU_QUOTA_MIN_US = 1_000
PROCS, EVENTS, KILL = "cgroup.procs", "cgroup.events", "cgroup.kill"
ALONE = "own group alone"
POLL_S = 0.01
LIMITS_WAIT_S = 5.0
GROUP_MODE = 0o755
MOVES_MAX = 100
_CLONE_NEWNS, _CLONE_NEWCGROUP = 0x00020000, 0x02000000
_MS_REC, _MS_SLAVE, _MNT_DETACH = 1 << 14, 1 << 19, 2
_GONE = (errno.ENOENT, errno.ENODEV)
_libc = ctypes.CDLL(None, use_errno=True)


class CgroupError(Exception):
    """A group cannot be made or entered; the message names it and the reason."""


def own_group(own: Path = OWN_CGROUP, mounts: Path = MOUNTS, controller: str = "") -> Path | None:
    """Return the folder of this process's group in the hierarchy of version 2; None without one.

    ``controller``: in that of this controller of version 1.
    """
    for line in _lines(own):
        _, controllers, path = line.split(":", 2)
        if controller not in controllers.split(","):
            continue
        for mount, root in _mounts(mounts, controller):
            below = os.path.relpath(path, root)
            if below.split("/")[0] != "..":
                return mount / below
    return None


def _mounts(mounts: Path, controller: str = "") -> list[tuple[Path, str]]:
    """Return each mount point of version 2, or of a controller of version 1, with the path of the
    group that is its root."""
    found = []
    for line in _lines(mounts):
        place, _, rest = line.partition(" - ")
        kind, _, options = rest.partition(" ")
        names = options.rpartition(" ")[2].split(",")
        if (kind == "cgroup" and controller in names) if controller else kind == "cgroup2":
            root, point = place.split(" ")[3:5]
            found.append((Path(re.sub(r"\\(\d{3})", lambda m: chr(int(m[1], 8)), point)), root))
    return found


# --- the life of a group


def make(group: Path) -> Path:
    """Create a group unless it exists; return it. Raises CgroupError."""
    try:
        group.mkdir(mode=GROUP_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise CgroupError(f"cgroup {group} cannot be made: {error.strerror}") from None
    if not (group / KILL).exists():
        raise CgroupError(f"cgroup {group} has no {KILL}; Linux 5.14 or later has it")
    return group


def enter(group: Path, pid: int = 0) -> None:
    """Move a process into a group (0: this one), with all of its threads. Raises CgroupError."""
    try:
        (group / PROCS).write_text(str(pid))
    except OSError as error:
        raise CgroupError(f"cgroup {group} cannot be entered: {error.strerror}") from None


def move_all(source: Path, target: Path) -> bool:
    """Move the processes of a group into another; return whether the first is empty then.

    Raises CgroupError.
    """
    for _ in range(MOVES_MAX):
        pids = _own_pids(source)
        if not pids:
            break
        for pid in pids:
            try:
                (target / PROCS).write_text(str(pid))
            except ProcessLookupError:
                continue
            except OSError as error:
                raise CgroupError(f"{pid} cannot enter {target}: {error.strerror}") from None
    return not populated(source)


def mount_points() -> list[bytes]:
    """Return where version 2 is mounted, for ``show_own_group_alone``."""
    return [os.fsencode(point) for point, _ in _mounts(MOUNTS)]


def show_own_group_alone(points: Sequence[bytes]) -> bool:
    """Let this process and its children see no cgroup of version 2 above or beside their own.

    ``points``: the mount points of version 2. Return False where this user may not: then a program
    can move itself to another group that this user may write. A program of root can undo it, as it
    can do all else on the machine.

    A fork of the zygote calls it while most modules are hidden from it: only system calls here.
    """
    if _libc.unshare(_CLONE_NEWCGROUP | _CLONE_NEWNS) != 0:
        return False
    # Mounts of the machine still appear here; those made here appear nowhere else.
    if _libc.mount(None, b"/", None, _MS_REC | _MS_SLAVE, None) != 0:
        return False
    unmounted = [_libc.umount2(point, _MNT_DETACH) == 0 for point in reversed(points)]
    for point in points:
        _libc.mount(b"cgroup2", point, b"cgroup2", 0, None)
    return all(unmounted)


def populated(group: Path) -> bool:
    """Return whether a process lives in a group or below it. Raises OSError if that is unknown."""
    try:
        text = (group / EVENTS).read_text()
    except OSError as error:
        if error.errno in _GONE and _is_mounted(group):
            return False  # the kernel removes no group with a process in it
        raise
    return "populated 0" not in text.splitlines()


def pids(group: Path) -> list[int]:
    """Return the processes of a group and of all groups below it."""
    return sorted({pid for each in (group, *_below(group)) for pid in _own_pids(each)})


def kill(group: Path) -> None:
    """Send SIGKILL to each process in a group and below it, at once; a fork does not escape."""
    with contextlib.suppress(OSError):
        (group / KILL).write_text("1")


def kill_until_empty(group: Path, wait_s: float) -> bool:
    """Kill a group and remove it; return whether it is empty. Blocks at most ``wait_s`` seconds.

    Raises OSError if that is unknown.
    """
    give_up_s = time.monotonic() + wait_s
    while populated(group):
        kill(group)
        if time.monotonic() >= give_up_s:
            return not populated(group)
        time.sleep(POLL_S)
    remove(group)
    return True


def remove(group: Path) -> None:
    """Remove a group and all below it, as far as these have no process."""
    for each in (*reversed(_below(group)), group):
        with contextlib.suppress(OSError):
            each.rmdir()


# --- limits


@dataclass(frozen=True, slots=True)
class Limits:
    """What a group may take; None: no limit."""

    pids: int
    """Processes and threads."""
    memory_bytes: int | None = None
    cpus: float | None = None

    def texts(self, version: int) -> dict[str, dict[str, str]]:
        """Return the files with their texts, by controller; none for what has no limit."""
        quota_us = None if self.cpus is None else max(CPU_QUOTA_MIN_US, int(self.cpus * CPU_US))
        found = {"pids": {"pids.max": str(self.pids)}}
        if self.memory_bytes is not None:
            name = "memory.max" if version == 2 else "memory.limit_in_bytes"
            found["memory"] = {name: str(self.memory_bytes)}
        if quota_us is not None and version == 2:
            found["cpu"] = {"cpu.max": f"{quota_us} {CPU_US}"}
        elif quota_us is not None:
            found["cpu"] = {"cpu.cfs_period_us": str(CPU_US), "cpu.cfs_quota_us": str(quota_us)}
        return found


def enable(group: Path) -> None:
    """Let the groups below one have limits, as far as the kernel allows it there."""
    for controller in CONTROLLERS:
        with contextlib.suppress(OSError):
            (group / "cgroup.subtree_control").write_text(f"+{controller}")


def places(group: Path) -> dict[str, Path]:
    """Return the folder in which each controller limits what is in ``group``.

    It is the group itself, or a group of version 1 that is made here; a controller that is missing
    or that this user may not use is left out.
    """
    found = {}
    for controller, file in CONTROLLERS.items():
        if (group / file).exists():
            found[controller] = group
            continue
        place = place_of_version_1(group, controller)
        if place is not None:
            with contextlib.suppress(OSError):
                place.mkdir(mode=GROUP_MODE, parents=True, exist_ok=True)
                found[controller] = place
    return found


def place_of_version_1(group: Path, controller: str) -> Path | None:
    """Return where a controller of version 1 limits what is in ``group``; None without one."""
    own = own_group(controller=controller)
    return None if own is None else own / group.parent.name / group.name


def limit(group: Path, limits: Limits) -> tuple[Path, ...]:
    """Limit what is in a group, where there is a controller for it.

    Returns the groups of version 1 that its first process has to enter as well. Raises CgroupError.
    """
    others: list[Path] = []
    for controller, place in places(group).items():
        version = 2 if place == group else 1
        texts = limits.texts(version).get(controller, {})
        for name, text in texts.items():
            try:
                (place / name).write_text(text)
            except OSError as error:
                raise CgroupError(f"{place / name} cannot be {text}: {error.strerror}") from None
        if version == 1 and texts and place not in others:
            others.append(place)
        elif version == 1 and not texts:
            remove_limits((place,))
    return tuple(others)


def remove_limits(groups: Iterable[Path]) -> None:
    """Remove groups of version 1 without processes, and the groups above if they are empty.

    A process that has ended may be in its group for a moment more.
    """
    give_up_s = time.monotonic() + LIMITS_WAIT_S
    for group in groups:
        while not _removed(group) and time.monotonic() < give_up_s:
            time.sleep(POLL_S)
        with contextlib.suppress(OSError):
            group.parent.rmdir()


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError as error:
        return error.errno in _GONE
    return True


# --- the groups of an attempt


def of_generation(attempt: Path, generation: int) -> Path:
    """Return the group of the training process of a generation."""
    return attempt / f"generation-{generation}"


def of_successor(attempt: Path, number: int) -> Path:
    """Return the group of the successor of a preparation."""
    return attempt / f"successor-{number}"


def busy(attempt: Path, generation: int) -> list[Path]:
    """Return the groups in which something of a start up to ``generation`` may live.

    Those of init, the zygote, later starts and the newest successor are passed over. A process in
    the attempt's own folder, or in a group of another name, counts. Raises OSError.
    """
    found = [attempt] if _own_pids(attempt) else []
    groups = _children(attempt)
    numbers = [int(match[1]) for each in groups if (match := _SUCCESSOR.match(each.name))]
    passed = {INIT, ZYGOTE, f"successor-{max(numbers, default=0)}"}
    for each in groups:
        match = _GENERATION.match(each.name)
        later = match is not None and int(match[1]) > generation
        if each.name not in passed and not later and populated(each):
            found.append(each)
    return found


def children_but(attempt: Path, spared: Iterable[Path]) -> list[Path]:
    """Return the groups of an attempt besides init's and those in ``spared``."""
    names = {INIT, *(each.name for each in spared)}
    return [each for each in _children(attempt) if each.name not in names]


# --- memory


def oom_kills(own: Path = OWN_CGROUP, cgroups: Path = CGROUPS) -> int:
    """Return how many processes of this container the kernel has killed because memory ran out.

    In a container the mount is often the cgroup itself, although its path has another name.
    """
    for folder in _memory_folders(own, cgroups):
        for name in ("memory.events", "memory.oom_control"):
            for entry in _lines(folder / name):
                if entry.startswith("oom_kill "):
                    return int(entry.split()[1])
    return 0


def memory_left_bytes(own: Path = OWN_CGROUP, cgroups: Path = CGROUPS) -> int | None:
    """Return the memory that this container may still take; None without a limit.

    The tightest of its group and those above counts. Pages of files that are not in use do not
    count as taken.
    """
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    left: list[int] = []
    for folder in _memory_folders(own, cgroups):
        limit = _number(folder, "memory.max", "memory.limit_in_bytes")
        taken = _number(folder, "memory.current", "memory.usage_in_bytes")
        if limit is not None and taken is not None and limit < most:
            left.append(max(0, limit - taken + _inactive_bytes(folder / "memory.stat")))
    return min(left, default=None)


def _memory_folders(own: Path, cgroups: Path) -> Iterator[Path]:
    """Return the folders with this container's memory, its own first, then those above it."""
    for line in _lines(own):
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        # A mount of both versions has that of version 2 in a folder of its own.
        mounts = (cgroups, cgroups / "unified") if controllers == "" else (cgroups / "memory",)
        names = [name for name in path.split("/") if name not in ("", "..")]
        if names and names[-1] == INIT:
            names.pop()  # the attempt's group counts its training, too
        for mount in mounts:
            for count in range(len(names), -1, -1):
                yield mount.joinpath(*names[:count])


def _inactive_bytes(statistics: Path) -> int:
    for line in _lines(statistics):
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):
            return int(value)
    return 0


def _number(folder: Path, *names: str) -> int | None:
    texts = [line for name in names for line in _lines(folder / name)[:1]]
    return int(texts[0]) if texts and texts[0].isdecimal() else None


# --- files


def _is_mounted(group: Path) -> bool:
    """Return whether a group's hierarchy is mounted, so that its absence says that it is gone."""
    return any(group.is_relative_to(point) for point, _ in _mounts(MOUNTS))


def _own_pids(group: Path) -> list[int]:
    try:
        return [int(line) for line in (group / PROCS).read_text().split()]
    except OSError as error:
        if error.errno in _GONE:
            return []
        raise


def _children(group: Path) -> list[Path]:
    try:
        with os.scandir(group) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir())
    except OSError as error:
        if error.errno in _GONE and _is_mounted(group):
            return []
        raise


def _below(group: Path) -> list[Path]:
    """Return all groups below one, each before those below it."""
    return [each for child in _children(group) for each in (child, *_below(child))]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return []


def main() -> int:
    """Enter the group of the argument, say what this process sees there, and wait for its end."""
    enter(Path(sys.argv[1]))
    print(ALONE if show_own_group_alone(mount_points()) else "others as well", flush=True)
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
