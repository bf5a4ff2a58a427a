"""The one way to read a file that a job, a user or an earlier crash may have put there.

Does: opens regular files alone, without waiting, and reads them up to a size; removes a folder of
any depth. A FIFO, a device, a folder or an endless file is an OSError that says so. Standard
library only.

``tests/unit/test_foreign_reads.py`` lists the modules that open files in other ways, and why.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

STATE_BYTES_MAX = 16 << 20
"""Longest state file of init, agent and launcher, which may hold an environment."""
SECRET_BYTES_MAX = 64 << 10
"""Longest token, secret or other short text."""
SCRIPT_BYTES_MAX = 1 << 20
"""Longest script that is looked into."""
SETTINGS_BYTES_MAX = 1 << 20
"""Longest file of settings: a record, a cluster file, a configuration."""
INPUT_BYTES_MAX = 256 << 20
"""Longest input of a command, such as a workload."""
CHUNK_BYTES = 1 << 20
REMOVE_TRIES = 3
"""Passes over a folder that changes while it is removed."""
_KINDS = (
    (stat.S_ISDIR, "a folder", errno.EISDIR),
    (stat.S_ISFIFO, "a FIFO", errno.EINVAL),
    (stat.S_ISSOCK, "a socket", errno.EINVAL),
    (stat.S_ISCHR, "a device", errno.EINVAL),
    (stat.S_ISBLK, "a device", errno.EINVAL),
)


class NotRegular(OSError):
    """The path leads to something else than a regular file."""


class TooLong(OSError):
    """The file is longer than its reader accepts."""


class Outside(OSError):
    """The path leaves the folder that it has to stay in."""


class Stopped(OSError):
    """The reader was asked to stop."""


def never() -> bool:
    """Return False: a reader that nothing stops."""
    return False


def descriptor(
    path: Path | str,
    flags: int = os.O_RDONLY,
    mode: int = 0o666,
    *,
    follow: bool = True,
    within: Path | None = None,
) -> int:
    """Return a descriptor of a regular file; it never waits.

    ``follow``: whether the last part of the path may be a link. ``within``: the folder, without
    links in its path, that the file must be in, wherever links on the way lead. Raises OSError, of
    which NotRegular and Outside.
    """
    with contextlib.suppress(FileNotFoundError):  # not even opened: that alone may move a device
        _require_regular(os.stat(path, follow_symlinks=follow).st_mode, path)
    flags |= os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    opened = os.open(path, flags, mode)
    try:
        _require_regular(os.fstat(opened).st_mode, path)
        if within is not None:
            real = Path(os.readlink(f"/proc/self/fd/{opened}"))
            if not real.is_relative_to(within):
                raise Outside(errno.EXDEV, f"leads to {real}, outside of {within}", str(path))
        os.set_blocking(opened, True)
    except BaseException:
        os.close(opened)
        raise
    return opened


def reader(
    path: Path | str, *, follow: bool = True, within: Path | None = None
) -> io.BufferedReader:
    """Open a regular file for reading; arguments and errors as of ``descriptor``."""
    return io.BufferedReader(io.FileIO(descriptor(path, follow=follow, within=within)))


def read(
    path: Path | str, bytes_max: int, *, follow: bool = True, within: Path | None = None
) -> bytes:
    """Return a file of at most ``bytes_max`` bytes. Raises OSError, of which TooLong."""
    with reader(path, follow=follow, within=within) as file:
        return bounded(file, bytes_max, path)


def bounded(file: BinaryIO, bytes_max: int, name: object) -> bytes:
    """Return what an open file still has, of at most ``bytes_max`` bytes. Raises OSError."""
    content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise TooLong(errno.EFBIG, f"has more than {_size(bytes_max)}", str(name))
    return content


def read_text(
    path: Path | str,
    bytes_max: int,
    encoding: str = "utf-8",
    *,
    follow: bool = True,
    within: Path | None = None,
) -> str:
    """Return a text file as ``read``. Raises OSError and UnicodeDecodeError."""
    return read(path, bytes_max, follow=follow, within=within).decode(encoding)


def begin_of(path: Path | str, bytes_max: int) -> bytes:
    """Return the first ``bytes_max`` bytes of a file. Raises OSError."""
    with reader(path) as file:
        return file.read(bytes_max)


def sha256(path: Path | str, stop: Callable[[], bool] = never) -> str:
    """Return the SHA-256 of a file in hexadecimal.

    ``stop`` is asked between two parts; if it says yes, Stopped is raised. Raises OSError.
    """
    digest = hashlib.sha256()
    with reader(path) as file:
        while chunk := file.read(CHUNK_BYTES):
            if stop():
                raise Stopped(errno.ECANCELED, "was not read to its end in time", str(path))
            digest.update(chunk)
    return digest.hexdigest()


def remove_tree(root: Path, stop: Callable[[], bool] = never) -> None:
    """Remove ``root``, whatever is below it and however deep; what is missing is no error.

    A folder in a folder is moved up before it is emptied, so that neither the stack nor the length
    of a path limits the depth. Links are removed, never followed. Raises OSError.
    """
    for _ in range(REMOVE_TRIES):
        try:
            _empty(root, stop)
            os.rmdir(root)
            return
        except FileNotFoundError:
            if not os.path.lexists(root):
                return
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):  # a link, or a file
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(root)
                return
            if error.errno != errno.ENOTEMPTY:
                raise
    raise OSError(errno.ENOTEMPTY, "changes while it is removed", str(root))


def _empty(root: Path, stop: Callable[[], bool]) -> None:
    top = _folder(root)
    moved = 0
    try:
        while folders := _unlink_files(top, stop):
            for name in folders:
                below = _folder(name, top)
                try:
                    for deeper in _unlink_files(below, stop):
                        moved += 1
                        os.close(_folder(deeper, below))  # a closed folder cannot be moved
                        up = f".removed-{os.getpid()}-{moved}-{os.urandom(4).hex()}"
                        os.rename(deeper, up, src_dir_fd=below, dst_dir_fd=top)
                finally:
                    os.close(below)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)


def _folder(path: Path | str, dir_fd: int | None = None) -> int:
    """Open a folder to empty it, also one whose mode forbids that to its owner. Raises OSError."""
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        opened = os.open(path, flags | os.O_RDONLY, dir_fd=dir_fd)
    except PermissionError:
        held = os.open(path, flags | os.O_PATH, dir_fd=dir_fd)
        try:
            os.chmod(f"/proc/self/fd/{held}", stat.S_IRWXU)
            opened = os.open(f"/proc/self/fd/{held}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        finally:
            os.close(held)
    if os.fstat(opened).st_mode & stat.S_IRWXU != stat.S_IRWXU:
        with contextlib.suppress(PermissionError):  # not its owner
            os.fchmod(opened, stat.S_IRWXU)
    return opened


def _unlink_files(folder: int, stop: Callable[[], bool]) -> list[str]:
    """Remove everything but folders from an open folder; return the names of its folders."""
    names = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if stop():
                raise Stopped(errno.ECANCELED, "was not removed in time")
            if entry.is_dir(follow_symlinks=False):
                names.append(entry.name)
            else:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.name, dir_fd=folder)
    return names


def _require_regular(mode: int, path: Path | str) -> None:
    if stat.S_ISREG(mode) or stat.S_ISLNK(mode):  # of a link, O_NOFOLLOW says it
        return
    kind, number = next((text, code) for is_it, text, code in _KINDS if is_it(mode))
    raise NotRegular(number, f"is {kind} and not a regular file", str(path))


def _size(count_bytes: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count_bytes >= unit:
            return f"{count_bytes // unit} {name}"
    return f"{count_bytes} bytes"
