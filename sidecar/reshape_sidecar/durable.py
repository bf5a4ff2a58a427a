"""Files that survive a crash: written whole, synced, and visible by one rename.

Does: the few steps by which a file or a folder reaches the disk for certain. Standard library
only. Never: decides what is written, or hides an OSError. State: none.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

READ_CHUNK_BYTES = 1 << 20
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""What an OSError says of a full disk, or a quota that is used up."""


def write_whole(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content``: a reader sees the old or the new file, never a part.

    Whoever does so at once writes a temporary file of its own: threads, processes, and pods on one
    volume, in each of which the process has the same number."""
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    try:
        write_synced(temporary, content)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_synced(path: Path, content: bytes) -> None:
    """Write a new file and wait until the disk has it."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_tree(root: Path) -> None:
    """Wait until the disk has every file below ``root``; links are as in ``sync_and_hash``."""
    for _ in _synced(root):
        pass


def sync_and_hash(root: Path) -> list[tuple[str, int, str]]:
    """Sync every file below ``root``; the name below root, size in bytes and SHA-256 of each.

    An absolute link into ``root`` becomes a relative one: it holds when ``root`` is renamed."""
    return [
        (path.relative_to(root).as_posix(), path.stat().st_size, sha256(path))
        for path in _synced(root)
    ]


def _synced(root: Path) -> Iterator[Path]:
    """Every file below ``root``, each after it was synced."""
    for parent, folders, files in os.walk(root):
        for name in (*folders, *files):
            _link_relatively(root, Path(parent, name))
        folders.sort()
        for file in sorted(files):
            path = Path(parent, file)
            _sync(path, os.O_RDONLY)
            yield path
        if Path(parent) != root:
            sync_folder(Path(parent))


def link(source: Path | str, target: Path | str) -> None:
    """Give a file a second name; a copy where the file system has no such names."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def sync_folder(path: Path) -> None:
    """Wait until the disk has the names in the folder ``path``."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(READ_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _link_relatively(root: Path, path: Path) -> None:
    if not path.is_symlink():
        return
    target = Path(os.readlink(path))
    for base in (root, root.resolve()):
        if target.is_absolute() and target.is_relative_to(base):
            path.unlink()
            os.symlink(os.path.relpath(target, base / path.parent.relative_to(root)), path)
            return


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
