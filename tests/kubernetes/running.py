"""Commands that end, daemons that stay, and waiting for what they do.

Does: runs programs from argument lists; records each daemon's pid with its start time. Never:
signals a process that is not exactly the recorded one. State: ``ROOT/pids/NAME``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from tests.kubernetes import layout

COMMAND_S = 120.0
END_S = 30.0
POLL_S = 0.1
UMASK = 0o022
"""Under a stricter one containerd unpacks images whose root folder only root may enter."""
TAIL_BYTES = 2000
T = TypeVar("T")
_JOIN = """import os, sys
count = int(sys.argv[1])
for path in sys.argv[2 : 2 + count]:
    with open(path, "w") as file:
        file.write(str(os.getpid()))
os.execvp(sys.argv[2 + count], sys.argv[2 + count :])
"""
"""Joins cgroups, then becomes the program: code between fork and exec is not safe with threads."""


class ClusterError(Exception):
    """The cluster cannot do what was asked; the message says what, where, and the remedy."""


class DaemonEnded(ClusterError):
    """A program that should stay has ended; waiting for anything more is of no use."""


def run(*words: str | Path, timeout_s: float = COMMAND_S, **environment: str) -> str:
    """What a command printed. Raises ClusterError with it if the command fails."""
    command = [str(word) for word in words]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            env=os.environ | environment,
            umask=UMASK,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(f"{' '.join(command)}: not done within {timeout_s:g} s") from None
    except OSError as error:
        raise ClusterError(f"{command[0]}: {error.strerror}") from None
    if done.returncode:
        said = done.stdout.strip()[-TAIL_BYTES:]
        raise ClusterError(f"{' '.join(command)}: exit code {done.returncode}: {said}")
    return done.stdout


def eventually(what: str, look: Callable[[], T | None], within_s: float) -> T:
    """The first true value of ``look``; ClusterError with its last trouble after ``within_s``.

    A DaemonEnded is passed on at once.
    """
    until_s = time.monotonic() + within_s
    trouble: object = "nothing yet"
    while time.monotonic() < until_s:
        try:
            found = look()
            if found:
                return found
            trouble = found
        except DaemonEnded:
            raise
        except (OSError, ValueError, LookupError, ClusterError) as error:
            trouble = error
        time.sleep(POLL_S)
    raise ClusterError(f"{what}: not within {within_s:g} s (last: {trouble})")


def start_time(pid: int) -> str | None:
    """Start time of a living process in clock ticks; with the pid it is unique. None: no such."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else fields[19]


def kill(pid: int, started: str, name: str) -> None:
    """SIGKILL to exactly this process, and wait until it is gone."""
    if start_time(pid) == started:
        os.kill(pid, signal.SIGKILL)
    eventually(f"end of {name} (pid {pid})", lambda: start_time(pid) != started, END_S)


class Daemon:
    """One program that stays, known by its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.record = layout.ROOT / "pids" / name
        self.log = layout.ROOT / "logs" / f"{name}.log"

    def start(self, *words: str | Path, groups: Sequence[Path] = ()) -> None:
        """Start it detached, in the cgroups ``groups`` from its very first instruction on."""
        files = [str(group / "cgroup.procs") for group in groups]
        join = [sys.executable, "-I", "-S", "-c", _JOIN, str(len(files)), *files]
        with self.log.open("ab") as log:
            child = subprocess.Popen(
                [*join, *(str(word) for word in words)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                umask=UMASK,
            )
        self.record.write_text(f"{child.pid} {start_time(child.pid)}")
        _children.append(child)

    def pid(self) -> int | None:
        """Its pid while exactly this process is alive."""
        try:
            number, started = self.record.read_text().split()
        except (OSError, ValueError):
            return None
        return int(number) if start_time(int(number)) == started else None

    def kill(self) -> None:
        """End it without warning; nothing happens if it has ended."""
        pid = self.pid()
        if pid is not None:
            kill(pid, self.record.read_text().split()[1], self.name)
        for child in _children:
            child.poll()

    def check(self) -> None:
        """Raises DaemonEnded with the end of its log if it is not alive."""
        if self.pid() is None:
            words = self.log.read_bytes()[-TAIL_BYTES:].decode(errors="replace")
            raise DaemonEnded(f"{self.name} ended by itself: {words}")


def daemons() -> list[Daemon]:
    """Everything that was started and recorded, by name."""
    return [Daemon(path.name) for path in sorted((layout.ROOT / "pids").glob("*"))]


_children: list[subprocess.Popen[bytes]] = []
"""Kept, so that a daemon that outlives this program's interest causes no ResourceWarning."""
