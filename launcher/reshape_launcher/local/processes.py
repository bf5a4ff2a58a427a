"""The processes of attempts on this machine, found by the marker in their environment.

Does: list and end the processes with an attempt's marker, whichever parent they have. Never: touch
a process without the marker, or of a user who is not the attempt's, or trust a pid without its
start time.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable

from reshape_sidecar.init import processes as proc
from reshape_sidecar.init.processes import MarkedProcess, Marker

KILL_POLL_S = 0.02
KILL_WAIT_S = 5.0
"""Time from SIGKILL to the end. Then: the attempt still counts as running."""


def living(markers: Iterable[Marker]) -> dict[Marker, list[MarkedProcess]]:
    """Return the living processes of each attempt, by one pass over /proc."""
    found: dict[Marker, list[MarkedProcess]] = {marker: [] for marker in markers}
    for entry in proc.marked_processes(proc.snapshot()):
        if entry.marker in found and entry.uid in entry.marker.uids():
            found[entry.marker].append(entry)
    return found


def end(marker: Marker, wait_s: float) -> None:
    """Send SIGTERM to an init whose files are lost, so that training saves and all ends in order.

    Blocks until it is gone, at most ``wait_s`` seconds; returns at once if no init is alive.
    """
    give_up_s = time.monotonic() + wait_s
    signalled = False
    while time.monotonic() < give_up_s:
        inits = [entry for entry in living((marker,))[marker] if entry.generation is None]
        if not inits:
            return
        if not signalled:
            signalled = True
            for entry in inits:
                proc.send_signal(entry.proc, signal.SIGTERM)
        time.sleep(KILL_POLL_S)


def kill(marker: Marker, wait_s: float = KILL_WAIT_S) -> list[MarkedProcess]:
    """Send SIGKILL to every process of the attempt until none is left; return those that remain.

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
