"""Who may enter the folders below a launcher's root, and whose they are.

Does: keeps every folder to the launcher's user, and opens those on the way to a job's files for the
job's user to pass. Such a user finds its sockets and its own folders there by name; it lists
nothing, and writes in its own folders only. Never: change a folder that a record names outside of
the job's own.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from reshape_sidecar.user import User

PRIVATE, PASS_GROUP, PASS_ALL = 0o700, 0o710, 0o711
_OTHERS, _GROUP_AND_OTHERS = 0o007, 0o077
OWN = ("work", "checkpoints", "home")
"""Folders in a job's own that may be its user's."""


def make_private(folder: Path, root: Path) -> None:
    """Create ``folder`` below ``root``, and each one that is missing on the way. Raises OSError."""
    for each in (*reversed(folder.parents), folder):
        if each.is_relative_to(root):
            each.mkdir(mode=PRIVATE, parents=True, exist_ok=True)


def open_root(root: Path, home: Path | None) -> None:
    """Let all users pass through ``root``, and the daemon's ``home`` around it. Raises OSError.

    Before that, what lies there is closed to them: the token, the store, the folders of jobs.
    """
    for parent, bits in ((root, _OTHERS), (home, _GROUP_AND_OTHERS)):
        with os.scandir(parent) if parent is not None else contextlib.nullcontext(()) as entries:
            for entry in entries:
                if entry.is_symlink() or Path(entry.path) == root:
                    continue
                mode = stat.S_IMODE(entry.stat().st_mode)
                if mode & bits:
                    os.chmod(entry.path, mode & ~bits)
    for place in (root, *([] if home is None else [home])):
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
