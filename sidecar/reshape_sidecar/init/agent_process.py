"""The agent's process: starts it, starts it again after a back-off, ends it with the container."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from reshape_sidecar import limits
from reshape_sidecar.contract import ENV_GENERATION
from reshape_sidecar.init import spawn
from reshape_sidecar.init.processes import Marker
from reshape_sidecar.init.values import NOT_EXECUTABLE


class AgentProcess:
    """The one agent of this container. Times are seconds of the monotonic clock."""

    def __init__(self, command: tuple[str, ...], folder: Path, log: Path, marker: Marker) -> None:
        self._command = command
        self._folder = folder
        self._log = log
        self._marker = marker
        self._started_s = 0.0
        self._backoff_s = 0.0
        self._kill_s: float | None = None
        self.pid: int | None = None
        self.due_s = 0.0
        """When the agent is started (again)."""

    @property
    def ending(self) -> bool:
        """Whether SIGTERM was sent to it."""
        return self._kill_s is not None

    def start_if_due(self, now_s: float) -> str | None:
        """Start the agent if it is due; return a line for the log if that fails."""
        if self.pid is not None or now_s < self.due_s:
            return None
        env = dict(os.environ) | self._marker.environment()
        env.pop(ENV_GENERATION, None)
        self._started_s = now_s
        try:
            self.pid = spawn.spawn(self._command, str(self._folder), env, self._log)
        except spawn.SpawnError as error:
            self.on_exit(NOT_EXECUTABLE, now_s)
            return str(error)
        return None

    def on_exit(self, code: int, now_s: float) -> str:
        """Schedule the next start after the agent was reaped; return a line for the log."""
        self.pid = None
        if now_s - self._started_s >= limits.AGENT_STEADY_S:
            self._backoff_s = 0.0
        self.due_s = now_s + self._backoff_s
        longer_s = max(limits.AGENT_BACKOFF_MIN_S, self._backoff_s * 2)
        self._backoff_s = min(longer_s, limits.AGENT_BACKOFF_MAX_S)
        return f"the agent ended with exit code {code}; training goes on"

    def end(self, now_s: float) -> bool:
        """Send SIGTERM, later SIGKILL; True once there is no agent."""
        if self.pid is None:
            return True
        if self._kill_s is None:
            self._kill_s = now_s + limits.AGENT_END_S
            os.kill(self.pid, signal.SIGTERM)
        elif now_s >= self._kill_s:
            os.kill(self.pid, signal.SIGKILL)
        return False
