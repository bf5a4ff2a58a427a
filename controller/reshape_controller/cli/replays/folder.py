"""The folder that ``--out`` names: one command at a time writes there.

Does: makes it, and holds it as long as the command lives, however it ends. Never: waits for another
command, or takes a folder with files of somebody else. State: the lock, which says whose it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from reshape_controller.cli.exits import CliError, Exit, failed

LOCK = ".lock"


@contextlib.contextmanager
def held(out: Path | None, *read: str | None) -> Iterator[None]:
    """Hold ``out``, if there is one; ``read`` may name files that the command reads. Raises
    CliError."""
    if out is None:
        yield
        return
    try:
        _own(out, [Path(name) for name in read if name])
        out.mkdir(parents=True, exist_ok=True)
        lock = os.open(out / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise unwritable(error, out) from None
    try:
        _lock(lock, out)
        yield
    finally:
        os.close(lock)


def _own(out: Path, read: list[Path]) -> None:
    """Whether nothing but a former command has written there. Raises CliError, OSError."""
    if not out.exists():
        return
    if any(out.iterdir()) and not (out / LOCK).exists():
        what = f"{out} has files of other programs, which could be overwritten"
        raise failed(Exit.USAGE, what, f"--out {out}", "give a new or an empty folder")
    for path in read:
        if path.is_file() and path.resolve().parent == out.resolve():
            what = f"the input {path} is in the folder for results"
            raise failed(Exit.USAGE, what, f"--out {out}", "give another folder")


def _lock(lock: int, out: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError:
        pid = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
        what = f"another command writes to this folder (pid {pid})"
        remedy = "wait until it has ended, or give another folder"
        raise failed(Exit.USAGE, what, f"--out {out}", remedy) from None
    except OSError as error:
        raise unwritable(error, out) from None


def unwritable(error: OSError, out: Path | None) -> CliError:
    """The folder cannot be written to; a disk that is full names no file."""
    what = f"{error.filename or out}: {error.strerror}"
    return failed(
        Exit.USAGE, what, "--out", "give a folder that you can write, or free space there"
    )
