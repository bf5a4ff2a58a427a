"""The processes of attempts on this machine, found by the marker in their environment.

Does: counts, and ends, what carries an attempt's marker, whoever its parent is now. Never: touches
a process without the marker, or trusts a pid without its start time. State: none; /proc is read at
each call.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable

from reshape_sidecar.init import processes as proc
from reshape_sidecar.init.processes import MarkedProcess, Marker

KILL_POLL_S = 0.02
KILL_WAIT_S = 5.0
"""SIGKILL to gone. Then: the attempt counts as still running (a process hangs in the kernel)."""


def living(markers: Iterable[Marker]) -> dict[Marker, list[MarkedProcess]]:
    """Living processes of each of the attempts, by one look at /proc."""
    found: dict[Marker, list[MarkedProcess]] = {marker: [] for marker in markers}
    for entry in proc.marked_processes(proc.snapshot()):
        if entry.marker in found:
            found[entry.marker].append(entry)
    return found


def end(marker: Marker, wait_s: float) -> None:
    """SIGTERM to an init whose files are lost, so that training saves and all ends in order.

    Blocks until it is gone, at most ``wait_s`` seconds; returns at once where no init is alive.
    """
    give_up_s = time.monotonic() + wait_s
    told = False
    while time.monotonic() < give_up_s:
        keepers = [entry for entry in living((marker,))[marker] if entry.generation is None]
        if not keepers:
            return
        if not told:
            told = True
            for entry in keepers:
                proc.send_signal(entry.proc, signal.SIGTERM)
        time.sleep(KILL_POLL_S)


def kill(marker: Marker, wait_s: float = KILL_WAIT_S) -> list[MarkedProcess]:
    """SIGKILL to every process of the attempt until none is left; gives what would not go.

    Blocks at most ``wait_s`` seconds.
    """
    give_up_s = time.monotonic() + wait_s
    while True:
        left = living((marker,))[marker]
        if not left or time.monotonic() >= give_up_s:
            return left
        for entry in left:
            proc.send_signal(entry.proc, signal.SIGKILL)
        time.sleep(KILL_POLL_S)
