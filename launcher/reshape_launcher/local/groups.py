"""The cgroups of this machine's attempts: where they can be had, made, found and ended.

Does: finds out once, with a process, whether the kernel holds an attempt; writes the group of each
attempt into its folder, so that a later controller in another group finds it. Never: takes a group
for empty because its name is not found in a hierarchy that is not mounted.

State: the base group, once it was tried.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from reshape_launcher.spec import Containment, Hold
from reshape_sidecar import cgroup, codec, durable, state_files
from reshape_sidecar.agent.spec import Folder
from reshape_sidecar.cgroup import CgroupError, Limits
from reshape_sidecar.init import files

GROUP_FILE = "cgroup.json"
ENV_BASE = "RESHAPE_CGROUP"
"""Group below which the groups are made; ``off``: none are made. Default: that of this process."""
TRIAL = "reshape-trial-"
"""Name of a trial's group, before the pid."""
TRIAL_OLD_S = 60.0
"""A trial's group that is this old is that of a process that was killed in its trial."""
TRIAL_S = 10.0
"""Time limit of the trial with a process. Then: the kernel holds no attempt here."""
REMEDY = (
    "start it as root, or with: systemd-run --user --scope -p Delegate=yes reshape up, or name a "
    f"delegated group in {ENV_BASE}"
)


@dataclass(frozen=True, slots=True)
class GroupFile:
    """``cgroup.json``: the group of an attempt; valid only within the same boot of the machine."""

    path: str
    boot_id: str
    limited_by: tuple[str, ...] = ()
    """Its groups of version 1, which limit it."""


class Groups:
    """The groups of the attempts below a launcher's ``root``."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._containment: Containment | None = None
        named = os.environ.get(ENV_BASE)
        parent = cgroup.own_group() if named is None else Path(named)
        # The name distinguishes the controllers of one machine.
        name = "reshape-" + hashlib.sha256(os.fsencode(root)).hexdigest()[:12]
        self._base = None if parent is None or named == "off" else parent / name
        self._off, self._named = named == "off", named is not None

    def containment(self) -> Containment:
        """Return by what attempts are held that start now. Blocks for one short process at first.

        Raises nothing: where no group can be had, the answer says why.
        """
        with self._lock:
            if self._containment is None:
                self._containment = self._tried()
            return self._containment

    def make(self, folder: Folder, limits: Limits) -> GroupFile | None:
        """Return the group for an attempt, made and noted in its folder; None: by the marker alone.

        Raises CgroupError, and OSError if the note cannot be written.
        """
        if self.containment().hold is Hold.MARKER:
            return None
        with self._lock:
            # An earlier controller may have started its init in another group just now.
            group = self.of(folder) or self._derived(folder)
            assert group is not None
            cgroup.make(group / cgroup.INIT)
            _enable(group.parent, self._named)
            limited_by = cgroup.limit(group, limits)
        note = GroupFile(str(group), files.boot_id(), tuple(map(str, limited_by)))
        durable.write_whole(folder.path / GROUP_FILE, codec.dumps(note).encode(), 0o600)
        return note

    def of(self, folder: Folder) -> Path | None:
        """Return the group of an attempt; None: it has none, or an earlier boot had it.

        Raises OSError if the note cannot be read now.
        """
        note = _note(folder)
        if note is None:
            derived = self._derived(folder)  # a note that is lost loses no group
            return derived if derived is not None and derived.is_dir() else None
        return Path(note.path) if note.boot_id == files.boot_id() else None

    def busy(self, folder: Folder, generation: int | None) -> str:
        """Return what lives in an attempt's group, in words; an empty text: nothing.

        ``generation``: of starts up to this one; None: of all. Raises OSError if that is unknown.
        """
        group = self.of(folder)
        if group is None:
            return ""
        if generation is not None:
            found = cgroup.busy(group, generation)
        else:
            found = [group] if cgroup.populated(group) else []
        return "; ".join(_words(each) for each in found)

    def end(self, folder: Folder, wait_s: float) -> bool:
        """Kill everything in an attempt's group; return whether it is empty.

        Blocks at most ``wait_s`` seconds. Raises OSError if that is unknown.
        """
        group = self.of(folder)
        if group is None:
            return True
        empty = cgroup.kill_until_empty(group, wait_s)
        note = _note(folder)
        limited_by = set(map(Path, note.limited_by)) if note is not None else set()
        limited_by.update(
            filter(None, (cgroup.place_of_version_1(group, name) for name in cgroup.CONTROLLERS))
        )  # a note that is lost leaves none behind
        if empty:
            cgroup.remove_limits(limited_by)
        with self._lock, contextlib.suppress(OSError):
            group.parent.rmdir()  # the last attempt's
        return empty

    def end_all(self, wait_s: float) -> None:
        """Kill everything in the groups of all attempts below the root, also of those that no
        launcher has noted. Blocks at most ``wait_s`` seconds for each. Raises OSError."""
        for path in (*self._root.glob("*/attempt-*/worker-*"), *self._root.glob("*/attempt-*")):
            self.end(Folder(path), wait_s)

    def _derived(self, folder: Folder) -> Path | None:
        if self._base is None:
            return None
        return self._base / ".".join(folder.path.relative_to(self._root).parts)

    def _tried(self) -> Containment:
        if self._base is None:
            reason = f"{ENV_BASE} is off" if self._off else "no cgroup of version 2 is mounted here"
            return Containment(Hold.MARKER, reason, "" if self._off else REMEDY)
        try:
            alone, limited = _trial(self._base.parent, self._named)
        except (CgroupError, OSError, subprocess.SubprocessError) as error:
            return Containment(Hold.MARKER, str(error), REMEDY)
        missing = ", ".join(name for name in cgroup.CONTROLLERS if name not in limited)
        reason = f"groups in {self._base}; limits of {', '.join(limited) or 'nothing'}"
        reason += f", missing: {missing}" if missing else ""
        if alone:
            return Containment(Hold.CGROUP, reason)
        reason += "; a program of this user can leave its group on purpose"
        return Containment(Hold.SAME_USER, reason)


def _enable(base: Path, named: bool) -> None:
    """Let attempts have limits of version 2.

    Besides the launcher's own group only one that a person has named is changed: it is there for
    this, and has no process.
    """
    if named:
        cgroup.enable(base.parent)
    cgroup.enable(base)


@functools.cache
def _trial(parent: Path, named: bool) -> tuple[bool, tuple[str, ...]]:
    """Hold a process in a group below ``parent``, once in the life of this process.

    Returns whether it saw its own group alone, and the controllers that limit it. Raises
    CgroupError, OSError and SubprocessError, and is then done again at the next call.
    """
    _remove_old_trials(parent)
    base = parent / f"{TRIAL}{os.getpid()}"
    group, limited = base / "attempt", dict[str, Path]()
    try:
        cgroup.make(group)
        _enable(base, named)
        limited = cgroup.places(group)
        return _try(group), tuple(limited)
    finally:
        cgroup.remove_limits(place for place in limited.values() if place != group)
        cgroup.remove(base)


def _remove_old_trials(parent: Path) -> None:
    for group in parent.glob(f"{TRIAL}*"):
        with contextlib.suppress(OSError):
            if time.time() - group.stat().st_mtime > TRIAL_OLD_S:
                cgroup.remove(group)


def _note(folder: Folder) -> GroupFile | None:
    """Return the note in an attempt's folder; None if there is none, or if it is damaged.

    Raises OSError if it cannot be read now: a folder in its place does not say that it is missing.
    """
    path = folder.path / GROUP_FILE
    try:
        note = state_files.read(GroupFile, path)
    except NotADirectoryError:
        return None
    if isinstance(note, state_files.Torn) and not path.is_file():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    return note if isinstance(note, GroupFile) else None


def _try(group: Path) -> bool:
    """Hold one process and kill it; return whether it saw its own group alone.

    Raises CgroupError, OSError and SubprocessError.
    """
    command = [sys.executable, "-I", "-S", cgroup.__file__, str(group)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            line = process.stdout.readline()
            if not line:
                text = process.stderr.read().decode(errors="replace").strip()
                raise CgroupError(text.splitlines()[-1] if text else "the trial process ended")
            if not cgroup.populated(group):
                raise CgroupError(f"cgroup {group} says that it is empty, with a process in it")
            if not cgroup.kill_until_empty(group, TRIAL_S):
                raise CgroupError(f"cgroup {group} is not empty {TRIAL_S:g} s after its kill")
        finally:
            process.kill()
    return line == cgroup.ALONE.encode() + b"\n"


def _words(group: Path) -> str:
    pids = ", ".join(map(str, cgroup.pids(group)))
    return f"cgroup {group.name} has processes {pids}"
