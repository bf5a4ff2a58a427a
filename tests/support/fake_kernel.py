"""Processes in memory, in the place of the kernel's, under init's own code.

Does: serves what init asks of the kernel (spawn, signals, reaping, /proc) for several containers at
once; the sockets between init and its processes are real. A process does nothing by itself: the
test says what it does next. Never: starts, signals or reads a process of the machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from reshape_sidecar import codec
from reshape_sidecar.contract import (
    ENV_DEVICES,
    ENV_GENERATION,
    ENV_STANDBY_FD,
    ENV_ZYGOTE_SOCKET,
    ZYGOTE_GO,
    Release,
    StandbyReport,
)
from reshape_sidecar.init import (
    agent_process,
    logs,
    processes,
    spawn,
    successor,
    supervisor,
    zygote,
)
from reshape_sidecar.init.processes import Proc
from reshape_sidecar.init.supervisor import Supervisor
from reshape_sidecar.user import User
from reshape_sidecar.wire import EXIT_SAVED, PrepareStage

READ_BYTES = 1 << 20


class Role(Enum):
    """What a process is; ``FORK`` waits for init's word, ``SUCCESSOR`` for its release."""

    INIT = "init"
    AGENT = "agent"
    ZYGOTE = "zygote"
    FORK = "fork"
    SUCCESSOR = "successor"
    TRAINING = "training"


@dataclass(eq=False)
class Process:
    """One process; its start time is its pid, which no other process ever has."""

    pid: int
    parent: int
    role: Role
    env: dict[str, str] = field(default_factory=dict)
    stream: socket.socket | None = None
    """Its connection to init."""
    standby: socket.socket | None = None
    """The connection that a fork has once it waits as a successor."""
    asked: bool = False
    """Whether it was sent SIGTERM."""
    status: int | None = None
    """Its wait status once it has ended."""

    @property
    def alive(self) -> bool:
        return self.status is None

    @property
    def trains(self) -> bool:
        return self.alive and self.role is Role.TRAINING

    @property
    def devices(self) -> frozenset[str]:
        """Devices that it holds."""
        return frozenset(self.env[ENV_DEVICES].split(",")) if self.trains else frozenset()


class _Os:
    """The module ``os`` for init's modules, where a call concerns processes."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)

    def getpid(self) -> int:
        return self._kernel.me

    def kill(self, pid: int, signum: int) -> None:
        self._kernel.send(pid, signum)

    def killpg(self, pid: int, signum: int) -> None:
        self._kernel.send(pid, signum)

    def waitpid(self, pid: int, flags: int) -> tuple[int, int]:
        return self._kernel.reap()


class _Polling(selectors.DefaultSelector):
    """A selector that does not wait: time passes only if the test says so."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(0)


class Kernel:
    """Every process, and the clock."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.me = 0
        """Pid of the init whose code runs."""
        self.processes: dict[int, Process] = {}

    def new(self, parent: int, role: Role, env: Mapping[str, str] | None = None) -> Process:
        """Return a new process."""
        process = Process(1000 + len(self.processes), parent, role, dict(env or {}))
        self.processes[process.pid] = process
        return process

    def of(self, init: int, *roles: Role) -> list[Process]:
        """Return the living processes of a container with one of these roles."""
        found = self.processes.values()
        return [one for one in found if one.alive and one.role in roles and one.parent == init]

    def run_init(self, init: Supervisor, pid: int) -> None:
        """Have init do once what is due."""
        self.me = pid
        init._run_once(mock.Mock())

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Serve init's modules within the block."""
        fake = _Os(self)
        clock = SimpleNamespace(monotonic=lambda: self.now_s, sleep=lambda wait_s: None)
        polling = SimpleNamespace(DefaultSelector=_Polling, EVENT_READ=selectors.EVENT_READ)
        replaced: dict[object, dict[str, Any]] = {
            supervisor: {"os": fake, "time": clock, "selectors": polling},
            successor: {"time": clock},
            zygote: {"os": fake},
            agent_process: {"os": fake},
            spawn: {"spawn": self._spawn},
            processes: {
                "os": fake,
                "read": self._read,
                "snapshot": self._snapshot,
                "send_signal": self._send_signal,
                "_names": self._names,
                "_uid": lambda pid: os.geteuid(),
            },
        }
        with contextlib.ExitStack() as stack:
            for module, names in replaced.items():
                stack.enter_context(mock.patch.multiple(module, **names))
            stack.enter_context(mock.patch.object(logs, "write_line"))
            try:
                yield
            finally:
                for process in self.processes.values():
                    _close(process)

    # --- what a process does

    def end(self, process: Process, status: int) -> None:
        """End a process with this wait status; the children of an init die with it."""
        if not process.alive:
            return
        process.status = status
        _close(process)
        for child in self.of(process.pid, *Role):
            self.end(child, signal.SIGKILL)

    def kill(self, process: Process) -> None:
        self.end(process, signal.SIGKILL)

    def leave(self, process: Process, code: int = EXIT_SAVED) -> None:
        self.end(process, code << 8)

    def say(self, process: Process, **fields: object) -> None:
        """Have a zygote or its fork send a message to init."""
        assert process.stream is not None
        with contextlib.suppress(OSError):
            process.stream.send(json.dumps(fields).encode() + b"\n")

    def report(self, process: Process, stage: PrepareStage) -> None:
        """Have a successor report how far it is."""
        assert process.stream is not None
        with contextlib.suppress(OSError):
            process.stream.send(codec.dumps(StandbyReport(stage)).encode() + b"\n")

    def serve(self, process: Process) -> None:
        """Have a zygote fork at its next order, if there is one."""
        assert process.stream is not None
        try:
            text, descriptors, _, _ = socket.recv_fds(process.stream, 1, 2)
        except BlockingIOError:
            return
        if not text:
            self.leave(process, 0)
            return
        stream, *standby = (socket.socket(fileno=number) for number in descriptors)
        for one in (stream, *standby):
            one.setblocking(False)
        try:
            line = stream.recv(READ_BYTES)
        except OSError:
            line = b""
        if not line:
            for one in (stream, *standby):
                one.close()  # init has given the order up
            return
        fork = self.new(process.parent, Role.FORK, json.loads(line)["environment"])
        fork.stream, fork.standby = stream, (standby[0] if standby else None)
        self.say(fork, pid=fork.pid)

    def listen(self, process: Process) -> None:
        """Have a process that waits read what init says to it."""
        assert process.stream is not None
        try:
            text = process.stream.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            text = b""
        if not text:
            self.leave(process, 0)
        elif process.role is Role.FORK:
            assert text == ZYGOTE_GO
            if process.standby is None:
                process.role = Role.TRAINING
            else:
                process.stream.close()
                process.role, process.stream, process.standby = (
                    Role.SUCCESSOR,
                    process.standby,
                    None,
                )
        else:
            release = codec.loads(Release, text)
            process.env[ENV_GENERATION] = str(release.generation)
            process.role = Role.TRAINING

    # --- what init asks

    def send(self, pid: int, signum: int) -> None:
        process = self.processes[pid]
        if process.status is not None:
            return
        if signum == signal.SIGKILL or process.role in (Role.AGENT, Role.ZYGOTE, Role.FORK):
            self.end(process, signum)
        else:
            process.asked = True

    def reap(self) -> tuple[int, int]:
        for process in self.processes.values():
            if process.parent == self.me and process.status is not None:
                process.parent = 0
                return process.pid, process.status
        return 0, 0

    def _spawn(
        self,
        command: Sequence[str],
        folder: str,
        env: Mapping[str, str],
        log: Path,
        inherit: int | None = None,
        group: Path | None = None,
        sees_others: bool = False,
        user: User | None = None,
    ) -> int:
        role = Role.AGENT if command[0] == Role.AGENT.value else Role.TRAINING
        role = Role.ZYGOTE if ENV_ZYGOTE_SOCKET in env else role
        role = Role.SUCCESSOR if ENV_STANDBY_FD in env else role
        process = self.new(self.me, role, env)
        if inherit is not None:
            process.stream = socket.socket(fileno=os.dup(inherit))
            process.stream.setblocking(False)
        return process.pid

    def _read(self, pid: int) -> Proc | None:
        process = self.processes.get(pid)
        if process is None or (process.status is not None and process.parent == 0):
            return None
        return Proc(pid, process.parent, pid, not process.alive)

    def _snapshot(self) -> dict[int, Proc]:
        found = {pid: self._read(pid) for pid in self.processes}
        return {pid: proc for pid, proc in found.items() if proc is not None}

    def _send_signal(self, proc: Proc, signum: signal.Signals) -> bool:
        self.send(proc.pid, signum)
        return True

    def _names(self, pid: int) -> dict[str, str]:
        return self.processes[pid].env


def _close(process: Process) -> None:
    for stream in (process.stream, process.standby):
        if stream is not None:
            stream.close()
