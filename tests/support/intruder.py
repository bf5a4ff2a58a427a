"""A training program that reaches for what is not its own, and says of each whether it got it.

``wanted.json`` in its folder lists paths to read, list, write, remove and connect to, and processes
to end and trace. It writes ``tried.json``, ``{what: "done" or the error}``, and then trains until a
SIGTERM.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

PTRACE_ATTACH = 16


def _connect(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        folder = os.open(os.path.dirname(path), os.O_PATH)
        client.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")


def _trace(pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_ATTACH, pid, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _groups() -> list[str]:
    """Return the files by which a process enters a cgroup, of all groups that can be seen."""
    return [str(path) for path in Path("/sys/fs/cgroup").rglob("cgroup.procs")]


def _attempts(wanted: dict[str, list[str]]) -> dict[str, Callable[[], object]]:
    made: dict[str, Callable[[], object]] = {"become root": partial(os.setuid, 0)}
    for path in wanted["read"]:
        made[f"read {path}"] = Path(path).read_bytes
    for path in wanted["list"]:
        made[f"list {path}"] = partial(os.listdir, path)
    for path in (*wanted["write"], *_groups()):
        made[f"write {path}"] = partial(_write, path)
    for path in wanted["remove"]:
        made[f"remove {path}"] = partial(os.rename, path, path + "-gone")
    for path in wanted["connect"]:
        made[f"connect to {path}"] = partial(_connect, path)
    for pid in wanted["process"]:
        made[f"end {pid}"] = partial(os.kill, int(pid), signal.SIGKILL)
        made[f"trace {pid}"] = partial(_trace, int(pid))
        for name in ("environ", "mem", "fd", "cwd"):
            made[f"read {name} of {pid}"] = partial(_look, pid, name)
    return made


def _write(path: str) -> None:
    with open(path, "a") as file:
        file.write("0")


def _look(pid: str, name: str) -> object:
    path = f"/proc/{pid}/{name}"
    return os.listdir(path) if os.path.isdir(path) else os.open(path, os.O_RDONLY)


def main() -> None:
    """Try everything, write what came of it, and train."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
    tried = {}
    for what, attempt in _attempts(json.loads(Path("wanted.json").read_text())).items():
        try:
            attempt()
        except OSError as error:
            tried[what] = type(error).__name__
        else:
            tried[what] = "done"
    Path("tried.tmp").write_text(json.dumps(tried))
    os.rename("tried.tmp", "tried.json")
    Path("ready-" + os.environ["RESHAPE_GENERATION"]).touch()
    while True:
        time.sleep(0.05)


if __name__ == "__main__":
    main()
