"""The processes of a step: found by a variable or an argument that all of them have, and killed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

KILL_S = 10.0


def of(word: str) -> list[int]:
    """Return the processes with ``word`` in their environment or arguments, this one left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
                if word.encode() in text:
                    found.append(int(entry.name))
    return found


def kill(word: str) -> int:
    """Kill them until none is left; how many there were at first."""
    end_s = time.monotonic() + KILL_S
    first = pids = of(word)
    while pids and time.monotonic() < end_s:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
        pids = of(word)
    return len(first)
