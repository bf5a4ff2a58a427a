"""The zygote of a container: starts it, orders forks from it, makes a dead one again.

Does: keeps at most one zygote, whose key says which starts it may serve. A start that it does not
serve in time is cold, and the zygote is killed then: its fork, which waits for init's word, ends
too. Never: waits for the zygote, or touches training that runs. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reshape_sidecar import limits
from reshape_sidecar.cgroup import CgroupError
from reshape_sidecar.contract import (
    ENV_GENERATION,
    ENV_ZYGOTE_ROOM,
    ENV_ZYGOTE_SOCKET,
    ZYGOTE_GO,
)
from reshape_sidecar.init import logs, processes, spawn
from reshape_sidecar.init.groups import NO_GROUPS, Groups
from reshape_sidecar.init.processes import Marker
from reshape_sidecar.init.values import TrainingProcess, UseZygote, ZygoteProcess
from reshape_sidecar.user import User
from reshape_sidecar.wire import StandbyState

ROOM_BYTES = 8192
"""Room in the zygote's environment for longer variables of its forks, such as their devices."""
NO_GENERATION = "z_________"
"""The zygote's generation: no number, so that it counts as no training process."""
ORDER = b"f"
READ_BYTES = 1 << 16

Report = Callable[[int, str], None]
"""Called with the pid of a fork that went on as a cold start, and the reason."""
Answer = Callable[[int | str], None]
"""Called once: with the pid of a fork before it begins, or with the reason why there is none."""


class NoFork(Exception):
    """The zygote does not serve this start; the message says why."""


@dataclass(frozen=True, slots=True)
class Order:
    """One start for the zygote to serve."""

    key: str
    command: tuple[str, ...]
    """The cold command."""
    folder: str
    env: dict[str, str]
    log: Path
    preparation: int | None = None
    """Number of the preparation if the fork is a successor."""
    standby: socket.socket | None = None
    """The end of a successor's connection that the fork gets."""

    def line(self, *, in_cgroup: bool) -> bytes:
        """Return the message to the fork."""
        fields = {
            "command": self.command,
            "folder": self.folder,
            "log": str(self.log),
            "environment": self.env,
            "cgroup": in_cgroup,
        }
        return json.dumps(fields).encode() + b"\n"


@dataclass(eq=False, slots=True)
class Fork:
    """A start that the zygote serves, from the order to the import of the framework."""

    order: Order
    stream: socket.socket
    due_s: float
    """When it must be ready."""
    answer: Answer
    text: bytes = b""
    """The part of its first message that has come."""
    pid: int = 0
    """Its pid once it has begun."""


class Zygote:
    """The zygote of one container. Times are seconds of the monotonic clock."""

    def __init__(
        self,
        log: Path,
        marker: Marker,
        selector: selectors.BaseSelector,
        went_cold: Report,
        again_s: float = limits.ZYGOTE_AGAIN_S,
        groups: Groups = NO_GROUPS,
        user: User | None = None,
    ) -> None:
        self._log = log
        self._groups, self._user = groups, user
        self._marker = marker
        self._selector = selector
        self._went_cold = went_cold
        self._again_s = again_s
        self._request: UseZygote | None = None
        self._control: socket.socket | None = None
        self._learned: dict[str, str | None] = {}
        """Variables that the script sets above its imports."""
        self._starts = 0
        self._forks: list[Fork] = []
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
                    group=self._groups.zygote(),
                    sees_others=True,  # its forks see their own group alone
                    user=self._user,
                )
            except (spawn.SpawnError, CgroupError) as error:
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

    def fork(self, order: Order, now_s: float, answer: Answer) -> Fork | None:
        """Order a fork that becomes a child of init; ``answer`` is called now or later.

        Returns the fork for ``give_up``; None if the zygote serves no such start.
        """
        problem = self._problem(order)
        if problem is not None:
            answer(problem)
            return None
        assert self._control is not None
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        fork = Fork(order, ours, now_s + limits.ZYGOTE_ANSWER_S, answer)
        line = order.line(in_cgroup=self._groups.attempt is not None)
        try:
            if self._user is not None:
                os.close(spawn.open_log(order.log, self._user))  # the fork may not create it
            with theirs:
                given = [theirs] if order.standby is None else [theirs, order.standby]
                socket.send_fds(self._control, [ORDER], [one.fileno() for one in given])
            with contextlib.suppress(BrokenPipeError):  # it has refused already, and says why
                if ours.send(line) < len(line):
                    raise OSError("the order is too long")
        except OSError as error:
            ours.close()
            self._drop(f"the zygote takes no order: {error}")
            answer(self.status.reason)
            return None
        self._forks.append(fork)
        self._selector.register(ours, selectors.EVENT_READ, lambda: self._read_fork(fork))
        return fork

    def give_up(self, fork: Fork) -> None:
        """Forget a fork: without init's word it ends by itself, and nothing is answered."""
        if fork in self._forks:
            self._forks.remove(fork)
            self._selector.unregister(fork.stream)
            fork.stream.close()

    def wait_until_s(self) -> float | None:
        """Return when the first fork that has not begun is late; None if there is none."""
        return min((fork.due_s for fork in self._forks if not fork.pid), default=None)

    def give_up_if_due(self, now_s: float) -> None:
        """Kill the zygote if a fork is late, and have that start be cold."""
        for fork in list(self._forks):
            if not fork.pid and now_s >= fork.due_s:
                self._fail(fork, f"nothing came within {limits.ZYGOTE_ANSWER_S:g} s")

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

    def _problem(self, order: Order) -> str | None:
        """Return why the zygote does not serve this start; None if it does."""
        status = self.status
        if status.state is not StandbyState.READY or self._control is None:
            return status.reason or f"the zygote is {status.state.value}"
        if self._request is None or order.key != self._request.key:
            return "the zygote has another interpreter or environment"
        return None

    def _pid_of(self, answer: dict[str, Any], order: Order) -> int:
        """Return the pid in a fork's answer, if that fork is what a sweep would recognise."""
        if "stale" in answer:
            self._drop(str(answer["stale"]))
            raise NoFork(self.status.reason)
        pid = answer.get("pid")
        if not isinstance(pid, int):
            raise NoFork(f"the fork failed: {answer.get('failed')}")
        proc = processes.read(pid)
        entries = [] if proc is None else processes.marked_processes({pid: proc})
        generation = None if order.preparation is not None else int(order.env[ENV_GENERATION])
        marked = [entry.generation for entry in entries if entry.marker == self._marker]
        if proc is None or proc.parent != os.getpid() or marked != [generation]:
            self._switch_off(f"its fork {pid} does not show its generation")
            raise NoFork(self.status.reason)
        try:
            if order.preparation is not None:
                self._groups.enter_successor(order.preparation, pid)
            elif generation is not None:
                self._groups.enter_training(generation, pid)
        except CgroupError as error:
            raise NoFork(str(error)) from None
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

    def _read_fork(self, fork: Fork) -> None:
        try:
            part = fork.stream.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        if fork.pid:
            self.give_up(fork)
            self._hear(fork.pid, _decoded(part))
            return
        fork.text += part
        if not part:
            self._fail(fork, "its fork ended")
        elif fork.text.endswith(b"\n"):
            self._begin(fork)

    def _begin(self, fork: Fork) -> None:
        """Have a fork run that is ready."""
        try:
            pid = self._pid_of(_message(fork.text), fork.order)
        except NoFork as error:
            self._refuse(fork, str(error))
        except (OSError, ValueError) as error:
            self._fail(fork, str(error) or type(error).__name__)
        else:
            fork.pid = pid
            fork.answer(pid)
            with contextlib.suppress(OSError):  # it has ended, and is reaped
                fork.stream.sendall(ZYGOTE_GO)

    def _fail(self, fork: Fork, problem: str) -> None:
        """Kill the zygote for a fork that is not served, and answer that."""
        self._drop(f"the zygote did not answer: {problem}")
        self._refuse(fork, self.status.reason)

    def _refuse(self, fork: Fork, reason: str) -> None:
        """Answer that there is no fork, unless this was answered."""
        if fork in self._forks:
            self.give_up(fork)
            fork.answer(reason)

    def _hear(self, pid: int, message: dict[str, Any]) -> None:
        """Serve a fork that executes the cold command, or that has imported the framework."""
        if "cold" not in message:
            return
        reason = str(message["cold"])
        self._went_cold(pid, reason)
        variables = message.get("variables")
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
        self.status = ZygoteProcess(
            StandbyState.NONE, reason, self.status.pid, self.status.start_time
        )
        self._kill()
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
        for fork in list(self._forks):
            if not fork.pid:
                self._refuse(fork, self.status.reason)

    def _close_control(self) -> None:
        if self._control is not None:
            self._selector.unregister(self._control)
            self._control.close()
            self._control = None


def _message(text: bytes) -> dict[str, Any]:
    """Return a fork's first message; raises ValueError if it is none."""
    answer = json.loads(text)
    if not isinstance(answer, dict):
        raise ValueError(answer)
    return answer


def _decoded(text: bytes) -> dict[str, Any]:
    """Return the first message; an empty one if it is none. Each rank of a start may send one."""
    try:
        answer = json.loads(text.partition(b"\n")[0])
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
