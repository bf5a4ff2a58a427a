"""Small JSON files of init, agent and launcher, read back: one answer for a torn file.

Does: tells a file that is not there from one that is cut, empty or otherwise no whole value. A torn
file says nothing about the processes beside it: they may live, so no reader takes it for their end.
Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from reshape_sidecar import codec, foreign

T = TypeVar("T")
Version = tuple[int, int, int]
"""Inode, size in bytes and time of the last change of a file."""


@dataclass(frozen=True, slots=True)
class Torn:
    """A file that exists and holds no whole value. ``reason`` says where its text breaks off."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path} is torn: {self.reason}"


def version(path: Path) -> Version | None:
    """Return the version of a file, which changes with it; None if it cannot be looked at."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def read(kind: type[T], path: Path) -> T | Torn | None:
    """Return the value in ``path``, None if there is no file, or ``Torn``.

    Raises OSError if the file exists and cannot be read now.
    """
    try:
        text = foreign.read(path, foreign.STATE_BYTES_MAX)
    except FileNotFoundError:
        return None
    except (foreign.NotRegular, foreign.TooLong) as error:
        return Torn(path, f"it {error.strerror}")
    try:
        return codec.loads(kind, text)
    except codec.CodecError as error:
        return Torn(path, str(error) if text else "it is empty")
