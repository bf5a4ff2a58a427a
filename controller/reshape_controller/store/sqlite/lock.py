"""Where an SQLite store may lie, and the lock that gives it to one process.

Does: makes the folder, refuses files that others can read and network file systems, holds the lock.
The lock file ``<path>.lock`` has the holder's pid. It stays after the lock is dropped: if it were
removed, two processes could lock two files of one name.
"""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

from reshape_controller.store.protocol import StoreError
from reshape_sidecar import foreign

NETWORK = frozenset(
    (
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "fuse.ceph",
        "fuse.glusterfs",
        "fuse.s3fs",
        "fuse.sshfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "smb3",
        "smbfs",
    )
)
"""File systems on which SQLite's shared memory and locks do not work between hosts."""


def prepare(path: Path) -> None:
    """Make the folder of ``path`` (0700) and check that the store may lie there. Raises
    StoreError.

    Other users may pass through the folder, as those of jobs do through a home.
    """
    folder = path.parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _private(folder, "700", 0o066)
        if path.exists():
            if not path.is_file():
                raise StoreError(f"{path}: is not a file; remedy: name a file for the store")
            _private(path, "600", 0o077)
        kind = filesystem_of(folder, Path("/proc/self/mounts").read_text(errors="replace"))
    except OSError as error:
        raise StoreError(
            f"{path}: {error.strerror}; remedy: name a file in a folder that you may write"
        ) from None
    if kind in NETWORK:
        raise StoreError(
            f"{path}: lies on a network file system ({kind}), where SQLite can lose data; "
            "remedy: name a file on a local disk, or use a server (--store mongodb://...)"
        )


def filesystem_of(folder: Path, mounts: str) -> str:
    """Type of the file system that holds ``folder``, from the text of /proc/self/mounts."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        # A later mount on the same point hides the earlier one, hence >=.
        if len(point) >= best and (folder == Path(point) or Path(point) in folder.parents):
            best, kind = len(point), fields[2]
    return kind


def _private(path: Path, mode: str, others: int) -> None:
    if stat.S_IMODE(path.stat().st_mode) & others:
        raise StoreError(
            f"{path}: other users can read or write it, and it holds job records; "
            f"remedy: chmod {mode} {path}"
        )


class StoreInUse(StoreError):
    """Another process has the file open."""


class ProcessLock:
    """An advisory lock on ``<path>.lock``; the kernel drops it when the process dies."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        self._fd: int | None = None

    def take(self) -> None:
        """Take the lock. Raises StoreInUse, with the holder's pid, if another process has it."""
        try:
            fd = foreign.descriptor(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            what = f"{self._path}: cannot be opened: {error.strerror}"
            raise StoreError(f"{what}; remedy: remove it if no controller runs") from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.read(fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise StoreInUse(
                f"{self._path.with_suffix('')}: another controller has it open (pid {pid}); "
                "remedy: use that one, or stop it first"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd

    def drop(self) -> None:
        """Drop the lock; no effect if it is not held."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
