"""How long a start has been silent: no new output, and hardly any processor time.

Does: adds up the processor time of all processes of the container but init and agent, also of those
that have ended, and looks whether a log has grown. A start that downloads, reads data or compiles
is not silent; one that waits for what never comes is. What the silence leads to, the coordinator
decides.
"""

from __future__ import annotations

import os
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from reshape_sidecar.init import processes
from reshape_sidecar.init.values import AGENT_LOG, INIT_LOG
from reshape_sidecar.limits import SILENCE_CPU_S, SILENCE_MAX_S, SILENCE_STEP_S, SILENCE_WINDOW_S

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_OWN_LOGS = (AGENT_LOG, INIT_LOG)


@dataclass(frozen=True, slots=True)
class Signs:
    """What the processes of a container have done so far."""

    cpu_s: float
    """Processor time of those that live, and of the children that they have waited for."""
    output: tuple[tuple[str, int], ...]
    """Name and length of each log of theirs."""


def signs(init_pid: int, agent_pid: int, logs: Path) -> Signs:
    """Return what the processes below init have done, without the agent's."""
    procs = processes.snapshot()
    below = processes.descendants(init_pid, procs, without=(agent_pid,))
    cpu_s = sum(processes.cpu_ticks(proc.pid) for proc in below) / TICKS_PER_S
    try:
        with os.scandir(logs) as entries:
            sizes = [
                (entry.name, entry.stat(follow_symlinks=False).st_size)
                for entry in entries
                if entry.name not in _OWN_LOGS
            ]
    except OSError:
        sizes = []
    return Signs(cpu_s, tuple(sorted(sizes)))


@dataclass(slots=True)
class Silence:
    """The silence of one start. Times are seconds of the monotonic clock."""

    generation: int
    heard_at_s: float
    """When it last gave a sign; at first, when it began."""
    _last: Signs | None = None
    _used_s: float = 0.0
    _looks: deque[tuple[float, float]] = field(default_factory=deque)
    """Time of each look of the last ``SILENCE_WINDOW_S``, and the processor time until then."""

    def look(self, found: Signs, now_s: float) -> None:
        """Take in what is found at ``now_s``."""
        last = found if self._last is None else self._last
        # A process that nobody in the container waits for takes its time with it.
        self._used_s += max(0.0, found.cpu_s - last.cpu_s)
        self._last = found
        looks = self._looks
        looks.append((now_s, self._used_s))
        while len(looks) > 1 and looks[1][0] <= now_s - SILENCE_WINDOW_S:
            looks.popleft()
        if found.output != last.output or self._used_s - looks[0][1] >= SILENCE_CPU_S:
            self.heard_at_s = now_s

    def reported_s(self, now_s: float) -> float:
        """Return its length in whole steps."""
        steps = max(0.0, now_s - self.heard_at_s) // SILENCE_STEP_S
        return min(steps * SILENCE_STEP_S, SILENCE_MAX_S)
