"""Small files by rename, Unix sockets with long paths, the boot id; standard library only."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from reshape_sidecar import foreign
from reshape_sidecar.init.values import ENDING_FILE, FAILED_FOR_GOOD, UNFINISHED, Ending
from reshape_sidecar.user import User

SOCKET_MODE = 0o600
BACKLOG = 64
UNKNOWN_BOOT = "unknown"


def write_by_rename(path: Path, text: str) -> None:
    """Replace ``path`` by one rename: a reader sees the old or the new text."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def holds(path: Path, text: str) -> bool:
    """Return whether ``path`` holds exactly ``text``; False also if it cannot be read."""
    try:
        return foreign.read_text(path, foreign.STATE_BYTES_MAX) == text
    except (OSError, UnicodeDecodeError):
        return False


def exit_code(run: Path, *, asked: bool) -> int:
    """Return the exit code of an init that ends in order. ``asked``: agent or launcher asked for
    it, not a signal from outside."""
    if holds(run / ENDING_FILE, Ending.FAILED):
        return FAILED_FOR_GOOD
    return 0 if asked or holds(run / ENDING_FILE, Ending.COMPLETE) else UNFINISHED


def boot_id() -> str:
    """Return the id of the machine's boot; a pid and start time are unique only within it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return UNKNOWN_BOOT


def listen(path: Path, user: User | None = None) -> socket.socket:
    """Return a non-blocking listening Unix socket at ``path``, for ``user`` alone (and root).

    None: for the user of this process.

    The path may exceed the kernel's 107 bytes: it is reached through its opened folder.
    """
    path.unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        server.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)
    os.chmod(path, SOCKET_MODE)
    if user is not None:
        os.chown(path, user.uid, user.gid)
    server.listen(BACKLOG)
    return server


def connect(path: Path, timeout_s: float) -> socket.socket:
    """Return a Unix socket connected to ``path``; raises OSError."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(timeout_s)
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            client.connect(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
    except BaseException:
        client.close()
        raise
    return client
