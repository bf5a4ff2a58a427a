"""The parent of the ranks as a fork of the zygote: each rank is a fork with PyTorch imported.

Does: takes init's order, forks a rank for each device and makes it what ``run`` would execute, and
then waits for the group as ``run`` does. If the ranks cannot be forked, it executes the cold
command in place, and so does a rank whose script needs another import. Standard library only.
"""

from __future__ import annotations

import os
import signal
import socket
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from reshape_sidecar.death_signal import die_with
from reshape_sidecar.hook import fork_child
from reshape_sidecar.hook.fork_child import Connection, Order, World
from reshape_sidecar.ranks import run
from reshape_sidecar.ranks.page import Page
from reshape_sidecar.wire import SIGNAL_BASE

PROGRAM = str(Path(run.__file__).resolve())


class ForkedRank:
    """The process of one rank, a fork of this one (``run.Rank``)."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        return self._reap(os.WNOHANG)

    def wait(self) -> int | None:
        """Reap it once it has ended."""
        return self._reap(0)

    def send_signal(self, number: int, /) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def _reap(self, options: int) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, options)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code


class Parent:
    """This process before and while it has ranks."""

    def __init__(self, order: Order, world: World, connection: Connection) -> None:
        """Read the order. Raises ValueError, OSError."""
        self._order, self._world, self._connection = order, world, connection
        self._command = order.command[order.command.index(PROGRAM) + 1 :]
        self._pid = os.getpid()
        self._page = Page.create(run.number())
        self._meeting = run.rendezvous(self._command)
        self._ranks: list[ForkedRank] = []

    def fork(self) -> list[str] | None:
        """Fork the ranks; return the arguments of a rank in its process, None in this one.

        If one cannot be forked, this process becomes the cold start.
        """
        for rank in range(self._page.ranks):
            env = run.environment(rank, self._page.ranks, self._page.path, self._meeting)
            try:
                pid = os.fork()
            except OSError as error:
                run.Group(self._page, self._ranks).end()
                start_cold(self._order, self._connection, f"a rank cannot be forked: {error}")
            if pid == 0:
                return self._become(rank, env)
            self._ranks.append(ForkedRank(pid))
        self._connection.close()  # each rank has it until it has imported the framework
        if self._meeting is not None:
            self._meeting.close()
        return None

    def wait(self) -> NoReturn:
        """Wait for the ranks, and end with the exit code of the group."""
        group = run.Group(self._page, self._ranks)
        try:
            code = group.wait()
        finally:
            group.end()
        os._exit(code)

    def _become(self, rank: int, env: dict[str, str]) -> list[str]:
        """Make this process, a fork, the rank that ``run`` would execute; return its arguments."""
        os.setsid()
        if not die_with(self._pid):
            os._exit(SIGNAL_BASE + signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.close(int(self._page.path.name))
        order = replace(self._order, command=self._command, environment=env, keeps=self._kept(rank))
        try:
            fork_child.renew(order, self._world)
            fork_child.replay(order, self._world, self._connection)
        except Exception as error:
            start_cold(order, self._connection, f"rank {rank} cannot be forked: {error!r}")
        return fork_child.arguments(order, self._world)

    def _kept(self, rank: int) -> tuple[int, ...]:
        """Leave the socket of the rendezvous to rank 0 alone; return the descriptors it keeps."""
        if self._meeting is None:
            return ()
        if rank:
            self._meeting.close()
            return ()
        return (self._meeting.detach(),)


def start_cold(order: Order, connection: Connection, reason: str) -> NoReturn:
    """Tell init the reason, and execute the cold command of ``order`` in place."""
    connection.say(cold=reason)
    fork_child.execute(order, reason)


def become_cold_start(
    stream: socket.socket, world: World, init: int, middle: int, standby: int | None = None
) -> list[str]:
    """Become the parent of the ranks that init orders on ``stream``; it ends here with them.

    Returns the arguments of a rank in the process of that rank; the first is the hook's program.
    Ends the process if init has given the order up. ``standby``: None, as no successor has ranks.
    """
    order, connection = fork_child.take_order(stream, world, init, middle, standby)
    signal.pthread_sigmask(signal.SIG_BLOCK, run.SIGNALS)
    fork_child.wait_for_go(order, world, connection)
    try:
        parent = Parent(order, world, connection)
    except (OSError, ValueError) as error:
        start_cold(order, connection, f"the ranks have no parent: {error}")
    return parent.fork() or parent.wait()
