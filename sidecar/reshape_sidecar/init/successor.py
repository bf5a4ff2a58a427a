"""The successor of a training process, as init sees it: started, released or dropped.

Does: has the zygote fork it, or starts it cold, with a connection of its own; notes how far it
comes, and on release makes it the training process of a generation by one message. Closing the
connection drops it: it then ends by itself, or is killed. State is in memory alone, as init's other
state.
"""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from reshape_sidecar import codec, limits
from reshape_sidecar.cgroup import CgroupError
from reshape_sidecar.contract import (
    ENV_GENERATION,
    ENV_STANDBY_FD,
    WAITING_GENERATION,
    Release,
    StandbyReport,
)
from reshape_sidecar.init import logs, processes, spawn
from reshape_sidecar.init.groups import NO_GROUPS, Groups
from reshape_sidecar.init.processes import Identity, Marker
from reshape_sidecar.init.values import Adopt, Prepare, SuccessorProcess
from reshape_sidecar.init.zygote import Fork, Order, Zygote
from reshape_sidecar.user import User
from reshape_sidecar.wire import PrepareStage

READ_BYTES = 1 << 16
USABLE = (PrepareStage.EFFECT_BARRIER, PrepareStage.READY)
InVain = Callable[[int, str], None]
"""Called with the pid of an adopted successor that goes on as a cold start, and the reason."""


class Successor:
    """The one process that is prepared, if there is one; numbers of preparations only grow."""

    def __init__(
        self,
        log: Path,
        marker: Marker,
        selector: selectors.BaseSelector,
        in_vain: InVain,
        zygote: Zygote,
        groups: Groups = NO_GROUPS,
        user: User | None = None,
    ) -> None:
        self._log = log
        self._zygote = zygote
        self._fork: tuple[Fork, socket.socket] | None = None
        """The fork of the newest preparation and the connection to it, until it begins."""
        self._groups, self._user = groups, user
        self._marker = marker
        self._selector = selector
        self._in_vain = in_vain
        self._connection: socket.socket | None = None
        self._read: Callable[[], None] = lambda: None
        """Reads what the newest successor has sent."""
        self._leaving: dict[Identity, float] = {}
        """Dropped processes, and when each is killed."""
        self.number = 0
        """Newest preparation."""
        self.status: SuccessorProcess | None = None

    def prepare(self, request: Prepare, now_s: float) -> None:
        """Start the successor of ``request`` unless it or a later one was started."""
        if request.number <= self.number:
            return
        self.drop(self.number, now_s)
        self.number = request.number
        self.status = SuccessorProcess(request.number, request.devices, 0, 0, now_s)
        env = dict(request.env) | self._marker.environment()
        env |= {ENV_GENERATION: WAITING_GENERATION}
        if request.key is None:
            self._start_cold(request, env)
            return
        mine, its = socket.socketpair()
        order = Order(
            *(request.key, request.command, request.folder, env, self._log),
            preparation=request.number,
            standby=its,
        )

        def begin(answer: int | str) -> None:
            self._fork = None
            if isinstance(answer, int):
                self._begin(mine, answer, "a fork of the zygote")
            else:
                mine.close()
                self._start_cold(request, env, answer)

        with its:
            fork = self._zygote.fork(order, now_s, begin)
        if self.status.running and not self.status.pid:
            assert fork is not None
            self._fork = fork, mine

    def _start_cold(self, request: Prepare, env: dict[str, str], fallback: str = "") -> None:
        """Start the successor of ``request`` without the zygote; ``fallback``: why."""
        assert self.status is not None
        mine, its = socket.socketpair()
        env = env | {ENV_STANDBY_FD: str(its.fileno())}
        with its:
            try:
                group = self._groups.successor(request.number)
                pid = spawn.spawn(
                    *(request.command, request.folder, env, self._log, its.fileno(), group),
                    user=self._user,
                )
            except (spawn.SpawnError, CgroupError, OSError) as error:
                mine.close()
                self.status = _failed(self.status, str(error))
                logs.write_line(str(error))
                return
        self._begin(mine, pid, f"a cold start: {fallback}" if fallback else "a cold start")

    def _begin(self, connection: socket.socket, pid: int, how: str) -> None:
        assert self.status is not None
        self.status = replace(self.status, pid=pid, start_time=processes.start_time(pid))
        self._listen(connection, pid)
        logs.write_line(f"pid {pid} prepares for {len(self.status.devices)} devices, {how}")

    def give_up_fork(self, reason: str) -> None:
        """Fail a preparation whose fork has not begun: it ends without init's word."""
        if self._fork is None or self.status is None:
            return
        fork, connection = self._fork
        self._zygote.give_up(fork)
        connection.close()
        self._fork = None
        self.status = _failed(self.status, reason)

    def adopt(self, request: Adopt, now_s: float) -> SuccessorProcess | None:
        """Release the successor as a generation's training process; None if it is not there."""
        if self.status is not None and self.status.number == request.number:
            self.give_up_fork("it had not begun when it was to go on")
        status, connection = self.status, self._connection
        if status is None or connection is None or not status.running:
            return None
        if status.number != request.number:
            return None
        release = Release(request.generation, now_s, request.env)
        try:
            self._groups.adopt(request.number, request.generation)
            connection.sendall(codec.dumps(release).encode(errors="surrogatepass") + b"\n")
        except (CgroupError, OSError) as error:
            self.status = _failed(status, f"it cannot be released: {error}")
            return None
        self.status, self._connection = None, None
        return status

    def drop(self, number: int, now_s: float) -> None:
        """Drop the successor of preparation ``number`` or an earlier one."""
        status = self.status
        if status is None or status.number > number:
            return
        self.give_up_fork("it is dropped")
        self._close()
        if status.pid and status.running:
            identity = (status.pid, status.start_time)
            self._leaving[identity] = now_s + limits.SUCCESSOR_LEAVE_S
        self.status = None

    def on_exit(self, pid: int, code: int) -> bool:
        """Note the end of a process; True if it is the successor."""
        status = self.status
        if status is None or not status.running or status.pid != pid:
            return False
        self._read()
        self._close()
        newest = self.status or status
        failed = newest.stage is PrepareStage.FAILED
        self.status = _failed(newest, newest.reason if failed else f"exit code {code}")
        return True

    def spared(self, number: int | None) -> tuple[Identity, ...]:
        """Return the successor of preparation ``number`` for a sweep that spares it."""
        status = self.status
        if status is None or not status.running or number != status.number or not status.pid:
            return ()
        return ((status.pid, status.start_time),)

    def due_s(self) -> float | None:
        """Return when a dropped process is killed; None if there is none."""
        return min(self._leaving.values(), default=None)

    def kill_if_due(self, now_s: float) -> None:
        """Kill the dropped processes that have not ended in time."""
        for (pid, start_time), due_s in list(self._leaving.items()):
            if now_s >= due_s:
                del self._leaving[pid, start_time]
                proc = processes.read(pid)
                if proc is not None and proc.start_time == start_time:
                    processes.send_signal(proc, signal.SIGKILL)

    def _listen(self, connection: socket.socket, pid: int) -> None:
        connection.setblocking(False)
        self._connection = connection
        text = b""

        def read() -> None:
            nonlocal text
            try:
                part = connection.recv(READ_BYTES)
            except BlockingIOError:
                return
            except OSError:
                part = b""
            if not part:
                self._end(connection)
                return
            *lines, text = (text + part).split(b"\n")
            for line in lines:
                self._note(pid, codec.loads(StandbyReport, line))

        self._read = read
        self._selector.register(connection, selectors.EVENT_READ, read)

    def _note(self, pid: int, report: StandbyReport) -> None:
        status = self.status
        if status is None or status.pid != pid:
            if report.stage is PrepareStage.FAILED:
                self._in_vain(pid, report.reason)
            return
        ready_at_s = status.ready_at_s
        if ready_at_s is None and report.stage in USABLE:
            ready_at_s = time.monotonic()
        self.status = replace(
            status, stage=report.stage, reason=report.reason, ready_at_s=ready_at_s
        )
        if report.stage is PrepareStage.FAILED:
            self._close()  # it ends, and is released no more

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._end(connection)

    def _end(self, connection: socket.socket) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection)
        connection.close()


def _failed(status: SuccessorProcess, reason: str) -> SuccessorProcess:
    return replace(status, stage=PrepareStage.FAILED, reason=reason, running=False)
