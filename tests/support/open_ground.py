"""``python open_ground.py PROGRAM...``: run a program where every user may run Python.

Does: in mounts of its own, opens the folders above Python and this repository that other users may
not enter, such as a Python below /root. The machine's folders stay as they are. For root alone.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

NEW_MOUNTS = 0x00020000
BIND, RECURSIVE, OWN = 1 << 12, 1 << 14, 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)


def _mount(source: str, target: Path, kind: str, flags: int, options: str) -> None:
    texts = [os.fsencode(text) for text in (source, target, kind)]
    if _libc.mount(*texts, flags, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), f"{target} cannot be mounted")


def open_for_all(paths: list[Path]) -> None:
    """Open the way to each path, for this process and its children."""
    if _libc.unshare(NEW_MOUNTS) != 0:
        raise OSError(ctypes.get_errno(), "this process gets no mounts of its own")
    _mount("none", Path("/"), "", RECURSIVE | OWN, "")
    for path in paths:
        for folder in reversed(path.resolve().parents):
            if folder.stat().st_mode & 0o001:
                continue
            child = folder / path.resolve().relative_to(folder).parts[0]
            opened = os.open(child, os.O_PATH)
            _mount("none", folder, "tmpfs", 0, "mode=755")
            child.mkdir()
            _mount(f"/proc/self/fd/{opened}", child, "", BIND | RECURSIVE, "")
            os.close(opened)


if __name__ == "__main__":
    open_for_all([Path(sys.base_prefix), Path(sys.prefix), Path(__file__)])
    os.execv(sys.argv[1], sys.argv[1:])
