"""Ten ways in which a file of a daemon's home can be damaged."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

HUGE_BYTES = 4 << 30


def _replaced(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.unlink(missing_ok=True)
        make(path)

    return damage


def _cut(path: Path) -> None:
    content = path.read_bytes() if path.exists() else b"{"
    path.write_bytes(content[: len(content) // 2])


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(HUGE_BYTES)


def _closed(path: Path) -> None:
    path.touch()
    path.chmod(0)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "empty": _replaced(lambda path: path.write_bytes(b"")),
    "cut": _cut,
    "zeros": _replaced(lambda path: path.write_bytes(bytes(4096))),
    "fifo": _replaced(os.mkfifo),
    "folder": _replaced(Path.mkdir),
    "link-to-nothing": _replaced(lambda path: path.symlink_to("nowhere")),
    "link-to-itself": _replaced(lambda path: path.symlink_to(path.name)),
    "unreadable": _closed,
    "huge": _replaced(_huge),
    "other-version": _replaced(lambda path: path.write_text('{"version": 99, "new": [1]}\n')),
}
