"""Files that survive a crash: written whole, synced, and visible by one rename.

Standard library only. Every function raises OSError if the disk refuses.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from reshape_sidecar import foreign

FILE_MODE = 0o666
"""Permissions of a new file, before the umask."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers of a full disk and of an exhausted quota."""


def write_whole(
    path: Path, content: bytes, mode: int | None = None, owner: tuple[int, int] | None = None
) -> None:
    """Replace ``path`` by ``content``: a reader sees the old or the new file, whole.

    ``mode``: permissions of the file; None: those that the umask leaves. ``owner``: uid and gid.

    The temporary file has a random name, because threads, processes and pods (in which process
    numbers repeat) may write to one volume at the same time.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        write_synced(temporary, content, mode, owner)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_synced(
    path: Path, content: bytes, mode: int | None = None, owner: tuple[int, int] | None = None
) -> None:
    """Write a new file and sync it; ``mode`` and ``owner`` as in ``write_whole``."""
    first = FILE_MODE if mode is None else mode
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, first)) as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        if owner is not None:
            os.fchown(file.fileno(), *owner)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_tree(root: Path) -> None:
    """Sync every file below ``root``; changes links as ``sync_and_hash`` does."""
    for _ in _synced(root):
        pass


def sync_and_hash(root: Path) -> list[tuple[str, int, str]]:
    """Sync every file below ``root``; return the relative name, bytes and SHA-256 of each.

    An absolute link into ``root`` becomes a relative one, which stays valid if ``root`` is renamed.
    """
    return [
        (path.relative_to(root).as_posix(), path.stat().st_size, foreign.sha256(path))
        for path in _synced(root)
    ]


def _synced(root: Path) -> Iterator[Path]:
    """Yield every file below ``root`` after its sync."""
    for parent, folders, files in os.walk(root):
        for name in (*folders, *files):
            _link_relatively(root, Path(parent, name))
        folders.sort()
        for file in sorted(files):
            path = Path(parent, file)
            _sync(foreign.descriptor(path))
            yield path
        if Path(parent) != root:
            sync_folder(Path(parent))


def link(source: Path | str, target: Path | str) -> None:
    """Create a hard link, or a copy on a file system without hard links."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def sync_folder(path: Path) -> None:
    """Sync the names in the folder ``path``."""
    _sync(os.open(path, os.O_RDONLY | os.O_DIRECTORY))


def _link_relatively(root: Path, path: Path) -> None:
    if not path.is_symlink():
        return
    target = Path(os.readlink(path))
    for base in (root, root.resolve()):
        if target.is_absolute() and target.is_relative_to(base):
            path.unlink()
            os.symlink(os.path.relpath(target, base / path.parent.relative_to(root)), path)
            return


def _sync(descriptor: int) -> None:
    """Sync an open file or folder, and close it."""
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
