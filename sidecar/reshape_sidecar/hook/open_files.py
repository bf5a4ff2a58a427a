"""The files that the script holds open for writing.

Does: looks at the open regular files of this process, and leaves out those that belong to others:
what was open before the script began, checkpoints, TensorBoard's events, caches and locks of
libraries, and files that callbacks of Keras open again by themselves.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

DESCRIPTORS = "/proc/self/fd"
DETAILS = "/proc/self/fdinfo"
OF_SYSTEM = ("/dev/", "/proc/", "/sys/", "/run/", "/usr/", "/etc/", "/var/log/", "/var/cache/")
OF_LIBRARIES = re.compile(
    r"events\.out\.tfevents|\.lock(file)?$|\.data-\d{5}-of-\d{5}|\.tempstate\d+|\.profile-empty$"
)
"""Names of TensorBoard's events, of lock files, and of caches and checkpoints of TensorFlow."""
CACHES = (".cache", ".keras")
"""Folders in the user's home that belong to libraries."""

Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file that is open for writing."""

    path: str
    appends: bool


def identities() -> frozenset[Identity]:
    """Return device and number of every file that this process has open now."""
    found = set()
    for descriptor in _descriptors():
        with contextlib.suppress(OSError):
            status = os.fstat(descriptor)
            found.add((status.st_dev, status.st_ino))
    return frozenset(found)


def of_script(
    before: frozenset[Identity], checkpoints: Path | None, ours: Iterable[object] = ()
) -> list[OpenFile]:
    """Return the files that the script holds open for writing, by path.

    ``before``: files that were open when the script began. ``checkpoints``: a folder whose files
    are not the script's. ``ours``: open files that are reopened with their content.
    """
    known = set(before)
    for file in ours:
        with contextlib.suppress(OSError, AttributeError, ValueError):
            status = os.fstat(file.fileno())  # type: ignore[attr-defined]
            known.add((status.st_dev, status.st_ino))
    homes = tuple(str(Path.home() / name) + os.sep for name in CACHES)
    owned = (
        *OF_SYSTEM,
        *homes,
        f"{sys.prefix}{os.sep}",
        *([f"{os.path.realpath(checkpoints)}{os.sep}"] if checkpoints is not None else []),
    )
    found = {}
    for descriptor in _descriptors():
        with contextlib.suppress(OSError, ValueError):
            file_or_none = _writable(descriptor, known)
            if file_or_none is not None and not _of_others(file_or_none.path, owned):
                found[file_or_none.path] = file_or_none
    return [found[path] for path in sorted(found)]


def flush() -> None:
    """Write what the files of the script have in buffers, so that their sizes are right."""
    for thing in gc.get_objects():
        if isinstance(thing, (io.TextIOWrapper, io.BufferedWriter)):
            with contextlib.suppress(Exception):
                if stat.S_ISREG(os.fstat(thing.fileno()).st_mode):
                    thing.flush()


def _of_others(path: str, owned: tuple[str, ...]) -> bool:
    folder, name = os.path.split(path)
    temporary = folder == tempfile.gettempdir() and name.startswith("tmp")
    return temporary or path.startswith(owned) or OF_LIBRARIES.search(name) is not None


def _descriptors() -> Iterator[int]:
    with contextlib.suppress(OSError):  # no /proc
        yield from (int(name) for name in os.listdir(DESCRIPTORS))


def _writable(descriptor: int, known: set[Identity]) -> OpenFile | None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or not status.st_nlink:
        return None
    if (status.st_dev, status.st_ino) in known:
        return None
    with open(f"{DETAILS}/{descriptor}", "rb") as file:
        flags = next(int(line[6:], 8) for line in file if line.startswith(b"flags:"))
    if flags & os.O_ACCMODE == os.O_RDONLY:
        return None
    return OpenFile(os.readlink(f"{DESCRIPTORS}/{descriptor}"), bool(flags & os.O_APPEND))
