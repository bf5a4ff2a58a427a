"""Ending everything that earlier training processes left: TERM, deadline, KILL, look again.

Does: finds the processes by descent from init and by the marker in their environment, so that a
double fork and a process that cleared its environment are found alike. Never: touches init, the
agent, or a process of a later generation. State: one ``Sweeping`` per sweep, owned by init.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field

from reshape_sidecar.init import processes
from reshape_sidecar.init.processes import Marker, Proc


@dataclass(slots=True)
class Sweeping:
    """A sweep under way. Times are seconds of the monotonic clock."""

    generation: int
    kill_at_s: float
    told: set[tuple[int, int]] = field(default_factory=set)


def leftovers(marker: Marker, agent: int | None) -> list[Proc]:
    """Living processes of this container besides init and the agent, by descent and by marker."""
    procs = processes.snapshot()
    me = os.getpid()
    spared = {me} if agent is None else {me, agent}
    found = {p.pid: p for p in processes.descendants(me, procs, without=spared)}
    for entry in processes.marked(procs):
        trains = entry.marker == marker and entry.generation is not None
        if trains and entry.proc.pid not in spared:
            found[entry.proc.pid] = entry.proc
    return [found[pid] for pid in sorted(found)]


def advance(sweeping: Sweeping, marker: Marker, agent: int | None, now_s: float) -> bool:
    """Signal what is left; True once nothing is."""
    left = leftovers(marker, agent)
    kill = now_s >= sweeping.kill_at_s
    for proc in left:
        key = (proc.pid, proc.start_time)
        if kill:
            processes.send(proc, signal.SIGKILL)
        elif key not in sweeping.told:
            sweeping.told.add(key)
            processes.send(proc, signal.SIGTERM)
    return not left
