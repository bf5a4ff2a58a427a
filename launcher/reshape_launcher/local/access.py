"""Who may enter the folders below a launcher's root, and whose they are.

Does: keeps every folder to the launcher's user, and opens those on the way to a job's files for the
job's user to pass. Such a user finds its sockets and its own folders there by name; it lists
nothing, and writes in its own folders only. Never: change a folder that a record names outside of
the job's own.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from reshape_launcher.local.users import account_of
from reshape_sidecar.user import User

PRIVATE, PASS_GROUP, PASS_ALL = 0o700, 0o710, 0o711
_OTHERS, _GROUP_AND_OTHERS = 0o007, 0o077
_WRITE, _PASS = 0o2, 0o1
OWN = ("work", "checkpoints", "home")
"""Folders in a job's own that may be its user's."""


def make_private(folder: Path, *roots: Path) -> None:
    """Create ``folder`` below one of ``roots``, and each one that is missing on the way. Raises
    OSError."""
    for each in (*reversed(folder.parents), folder):
        if any(each.is_relative_to(root) for root in roots):
            each.mkdir(mode=PRIVATE, parents=True, exist_ok=True)


def open_roots(roots: tuple[Path, ...], home: Path | None) -> None:
    """Let all users pass through ``roots``, and through the folders around them up to the daemon's
    ``home``. Raises OSError.

    Before that, what lies there is closed to them: the token, the store, the folders of jobs.
    """
    made = [root for root in roots if root.exists()]
    around = [
        folder
        for folder in dict.fromkeys(parent for root in made for parent in root.parents)
        if home is not None and folder.is_relative_to(home)
    ]
    for parent in (*made, *around):
        bits = _OTHERS if parent in made else _GROUP_AND_OTHERS
        with os.scandir(parent) as entries:
            for entry in entries:
                if entry.is_symlink() or Path(entry.path) in (*made, *around):
                    continue
                mode = stat.S_IMODE(entry.stat().st_mode)
                if mode & bits:
                    os.chmod(entry.path, mode & ~bits)
    for place in (*made, *around):
        os.chmod(place, PASS_ALL)


def is_open(root: Path) -> bool:
    """Return whether ``root`` was opened, by this launcher or an earlier one. Raises OSError."""
    try:
        return stat.S_IMODE(root.stat().st_mode) == PASS_ALL
    except FileNotFoundError:
        return False


def let_pass(folder: Path, user: User) -> None:
    """Let ``user`` pass through ``folder``, which is the launcher's. Raises OSError."""
    os.chown(folder, -1, user.gid)
    os.chmod(folder, PASS_GROUP)


def give(folder: Path, job_folder: Path, user: User) -> None:
    """Create ``folder`` for ``user`` if it is one of the job's own (``OWN``). Raises OSError.

    A record may name any other; its user creates that, or has the rights to use it.
    """
    if folder.parent != job_folder or folder.name not in OWN:
        return
    folder.mkdir(mode=PRIVATE, exist_ok=True)
    os.chown(folder, user.uid, user.gid, follow_symlinks=False)


def may_write(folder: Path, uid: int) -> bool:
    """Return whether ``uid`` may write in ``folder``, or may make it, by the modes on the way.

    What this process cannot look at counts as closed to others, as does an access list: only modes
    are read.
    """
    if uid == 0:
        return True
    user = account_of(uid, folder).user
    groups = {user.gid, *user.groups}
    try:
        path = folder.resolve()
        there = next(each for each in (path, *path.parents) if each.exists())
        around = [each.stat() for each in there.parents]
        return _permits(there.stat(), uid, groups, _WRITE | _PASS) and all(
            _permits(each, uid, groups, _PASS) for each in around
        )
    except (OSError, RuntimeError):
        return False


def _permits(status: os.stat_result, uid: int, groups: set[int], bits: int) -> bool:
    """Return whether a mode gives ``bits`` (of the last three) to a user with these groups."""
    if status.st_uid == uid:
        return status.st_mode >> 6 & bits == bits
    if status.st_gid in groups:
        return status.st_mode >> 3 & bits == bits
    return status.st_mode & bits == bits
