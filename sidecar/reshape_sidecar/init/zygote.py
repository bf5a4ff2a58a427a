"""The zygote of a container: starts it, orders forks from it, makes a dead one again.

Does: keeps at most one zygote, whose key says which starts it may serve. A start that it does not
serve in time is cold, and the zygote is killed then: its fork, which waits for init's word, ends
too. Never: touches training that runs. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from reshape_sidecar import limits
from reshape_sidecar.contract import (
    ENV_GENERATION,
    ENV_ZYGOTE_ROOM,
    ENV_ZYGOTE_SOCKET,
    ZYGOTE_GO,
)
from reshape_sidecar.init import logs, processes, spawn
from reshape_sidecar.init.processes import Marker
from reshape_sidecar.init.values import Spawn, TrainingProcess, UseZygote, ZygoteProcess
from reshape_sidecar.wire import StandbyState

ROOM_BYTES = 8192
"""Room in the zygote's environment for longer variables of its forks, such as their devices."""
NO_GENERATION = "z_________"
"""The zygote's generation: no number, so that it counts as no training process."""
ORDER = b"f"
READ_BYTES = 1 << 16

Report = Callable[[int, str], None]
"""Called with the pid of a fork that went on as a cold start, and the reason."""


class NoFork(Exception):
    """The zygote does not serve this start; the message says why."""


class Zygote:
    """The zygote of one container. Times are seconds of the monotonic clock."""

    def __init__(
        self,
        log: Path,
        marker: Marker,
        selector: selectors.BaseSelector,
        went_cold: Report,
        again_s: float = limits.ZYGOTE_AGAIN_S,
    ) -> None:
        self._log = log
        self._marker = marker
        self._selector = selector
        self._went_cold = went_cold
        self._again_s = again_s
        self._request: UseZygote | None = None
        self._control: socket.socket | None = None
        self._learned: dict[str, str | None] = {}
        """Variables that the script sets above its imports."""
        self._starts = 0
        self.status = ZygoteProcess(StandbyState.NONE)

    @property
    def pid(self) -> int | None:
        """Pid of the living zygote; None if there is none."""
        return self.status.pid or None

    def use(self, request: UseZygote) -> None:
        """Keep a zygote for ``request``; one of another key is replaced at the next start."""
        if self._request is None or request.key != self._request.key:
            self._request = request
            self._drop("the interpreter or its environment changed")

    def start_if_due(self, training: TrainingProcess | None, now_s: float) -> None:
        """Start the zygote: the first at once, a later one beside a training that runs."""
        if self.due_s(training, now_s) != now_s:
            return
        assert self._request is not None
        self._starts += 1
        env = dict(self._request.env) | self._marker.environment()
        env |= {ENV_GENERATION: NO_GENERATION, ENV_ZYGOTE_ROOM: "_" * ROOM_BYTES}
        for name, value in self._learned.items():
            if value is None:
                env.pop(name, None)
            else:
                env[name] = value
        ours, theirs = socket.socketpair()
        with theirs:
            env[ENV_ZYGOTE_SOCKET] = str(theirs.fileno())
            try:
                pid = spawn.spawn(
                    self._request.command,
                    self._request.folder,
                    env,
                    self._log,
                    inherit=theirs.fileno(),
                )
            except spawn.SpawnError as error:
                ours.close()
                self._switch_off(str(error))
                return
        ours.setblocking(False)
        self._control = ours
        self._selector.register(ours, selectors.EVENT_READ, self._read_control)
        start_time = processes.start_time(pid)
        self.status = ZygoteProcess(StandbyState.STARTING, "", pid, start_time, now_s)
        logs.write_line(f"the zygote has pid {pid}")

    def due_s(self, training: TrainingProcess | None, now_s: float) -> float | None:
        """Return when the zygote is started (``now_s``: now); None: not before a change."""
        if self._request is None or self.pid is not None:
            return None
        if self.status.state is StandbyState.OFF:
            return None
        if self._starts == 0:
            return now_s
        if training is None or not training.running or training.rung:
            return None
        return max(now_s, training.spawned_at_s + self._again_s)

    def fork(self, request: Spawn, env: dict[str, str], log: Path) -> int:
        """Return the pid of a fork that runs ``request``, a child of init. Raises NoFork."""
        status = self.status
        if status.state is not StandbyState.READY or self._control is None:
            raise NoFork(status.reason or f"the zygote is {status.state.value}")
        if self._request is None or request.key != self._request.key:
            raise NoFork("the zygote has another interpreter or environment")
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(self._control, [ORDER], [theirs.fileno()])
            ours.settimeout(limits.ZYGOTE_ANSWER_S)
            order = {
                "command": request.command,
                "folder": request.folder,
                "log": str(log),
                "environment": env,
            }
            with contextlib.suppress(BrokenPipeError):  # it has refused already, and says why
                ours.sendall(json.dumps(order).encode() + b"\n")
            pid = self._pid_of(_line(ours), env)
            ours.sendall(ZYGOTE_GO)
        except (OSError, ValueError) as error:
            ours.close()
            self._drop(f"the zygote did not answer: {error or type(error).__name__}")
            raise NoFork(self.status.reason) from None
        except NoFork:
            ours.close()
            raise
        ours.setblocking(False)
        self._selector.register(ours, selectors.EVENT_READ, lambda: self._read_fork(ours, pid))
        return pid

    def on_exit(self, code: int) -> None:
        """Note that the zygote was reaped."""
        logs.write_line(f"the zygote ended with exit code {code}")
        self._close_control()
        state, reason = self.status.state, self.status.reason
        if state in (StandbyState.STARTING, StandbyState.READY):
            state, reason = StandbyState.NONE, f"the zygote ended with exit code {code}"
        self.status = ZygoteProcess(state, reason)
        if self._starts >= limits.ZYGOTE_STARTS_MAX and state is StandbyState.NONE:
            self._switch_off(f"{reason}; it was started {self._starts} times")

    def end(self) -> None:
        """Kill the zygote for good: the container ends."""
        self._switch_off("the container ends")

    def _pid_of(self, answer: dict[str, Any], env: dict[str, str]) -> int:
        """Return the pid in a fork's answer, if that fork is what a sweep would recognise."""
        if "stale" in answer:
            self._drop(str(answer["stale"]))
            raise NoFork(self.status.reason)
        pid = answer.get("pid")
        if not isinstance(pid, int):
            raise NoFork(f"the fork failed: {answer.get('failed')}")
        proc = processes.read(pid)
        entries = [] if proc is None else processes.marked_processes({pid: proc})
        generation = int(env[ENV_GENERATION])
        marked = [entry.generation for entry in entries if entry.marker == self._marker]
        if proc is None or proc.parent != os.getpid() or marked != [generation]:
            self._switch_off(f"its fork {pid} does not show its generation")
            raise NoFork(self.status.reason)
        return pid

    def _read_control(self) -> None:
        assert self._control is not None
        try:
            text = self._control.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            text = b""
        if not text:
            self._close_control()  # its end is reaped
            return
        answer = _decoded(text)
        if "off" in answer:
            self._switch_off(str(answer["off"]))
        elif "ready" in answer and self.status.state is StandbyState.STARTING:
            self.status = replace(self.status, state=StandbyState.READY)

    def _read_fork(self, stream: socket.socket, pid: int) -> None:
        """Serve a fork that executes the cold command, or that has imported the framework."""
        try:
            text = stream.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            text = b""
        self._selector.unregister(stream)
        stream.close()
        answer = _decoded(text)
        if "cold" not in answer:
            return
        reason = str(answer["cold"])
        self._went_cold(pid, reason)
        variables = answer.get("variables")
        if not isinstance(variables, dict):
            self._switch_off(reason)
        elif self._learned:
            self._switch_off(f"{reason}, in another way than before")
        else:
            self._learned = variables
            self._drop(reason)

    def _drop(self, reason: str) -> None:
        """Kill the zygote, if there is one; a new one comes when it is due."""
        if self.status.state is StandbyState.OFF:
            return
        self._kill()
        self.status = ZygoteProcess(
            StandbyState.NONE, reason, self.status.pid, self.status.start_time
        )
        if self._starts >= limits.ZYGOTE_STARTS_MAX:
            self._switch_off(f"{reason}; it was started {self._starts} times")

    def _switch_off(self, reason: str) -> None:
        if self.status.state is not StandbyState.OFF:
            logs.write_line(f"no zygote from now on: {reason}")
            self.status = ZygoteProcess(
                StandbyState.OFF, reason, self.status.pid, self.status.start_time
            )
        self._kill()

    def _kill(self) -> None:
        if self.pid is not None:
            # Its group has the forks that are not yet children of init.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self._close_control()

    def _close_control(self) -> None:
        if self._control is not None:
            self._selector.unregister(self._control)
            self._control.close()
            self._control = None


def _line(stream: socket.socket) -> dict[str, Any]:
    """Return the next message; raises OSError, or ValueError if it is none."""
    text = b""
    while not text.endswith(b"\n"):
        part = stream.recv(READ_BYTES)
        if not part:
            raise OSError("its fork ended")
        text += part
    answer = json.loads(text)
    if not isinstance(answer, dict):
        raise ValueError(answer)
    return answer


def _decoded(text: bytes) -> dict[str, Any]:
    """Return a message; an empty one if it is none."""
    try:
        answer = json.loads(text)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
