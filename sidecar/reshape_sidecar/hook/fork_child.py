"""Makes a fork of the zygote what a cold start would be, before the script runs.

Does: takes its order from init, becomes init's child, and puts environment, folder, output, random
state and modules where a new interpreter has them. If the script then needs another import than
the zygote has done, it executes the cold command in place. With one process per GPU the fork is
the parent of the ranks, and each rank that it forks is put there (``ranks.forks``).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import socket
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from reshape_sidecar import cgroup
from reshape_sidecar.contract import (
    ENV_ATTEMPT,
    ENV_GENERATION,
    ENV_JOB,
    ENV_SOCKET,
    ENV_STANDBY_FD,
    ZYGOTE_GO,
)
from reshape_sidecar.hook import import_world, process_image
from reshape_sidecar.hook.import_record import Records
from reshape_sidecar.hook.import_replay import ImportReplay

HIGH_DESCRIPTOR = 200
"""The connection to init has at least this number: the script's files get those of a cold start."""
LINE_BYTES = 1 << 16
TENSORFLOW, PYTORCH = "tensorflow", "torch"


@dataclass(frozen=True, slots=True)
class World:
    """What the zygote knows of a new interpreter, and what it has imported since."""

    framework: str
    """The module that stands for the whole framework."""
    hooked: bool
    """Whether the script runs under the hook; if not, it sees no module of it."""
    options: int
    """Words of the cold command before the program of the hook, or before the script."""
    path: tuple[str, ...]
    finders: tuple[Any, ...]
    filters: tuple[Any, ...]
    oom_score: str | None
    records: Records
    absent: dict[str, Any]
    """Modules that a cold start has not imported before its script, by name. The zygote hides them
    before it forks."""
    imports: import_world.ImportWorld
    cgroup_mounts: list[bytes]
    """Where cgroups are mounted, read while every module is there."""
    lazy: frozenset[str] = frozenset()
    """Modules that import others as their attributes are read; they hold none of these now."""


@dataclass(frozen=True, slots=True)
class Order:
    """One start, as init asks for it."""

    command: tuple[str, ...]
    """The cold command."""
    folder: str
    log: str
    environment: dict[str, str]
    cgroup: bool = False
    """Whether it sees its own cgroup alone."""
    keeps: tuple[int, ...] = ()
    """Descriptors that the cold command inherits."""


class Connection:
    """The connection of one start to init; open until the framework is imported."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream

    def order(self) -> Order | None:
        """Read the order; None if init has given it up."""
        text = b""
        while not text.endswith(b"\n"):
            part = self._stream.recv(LINE_BYTES)
            if not part:
                return None
            text += part
        fields = json.loads(text.decode(errors="surrogatepass"))
        return Order(
            tuple(fields["command"]),
            fields["folder"],
            fields["log"],
            dict(fields["environment"]),
            fields.get("cgroup", False),
        )

    def may_go(self) -> bool:
        """Say that this process is ready; return whether init wants it to run."""
        self.say(pid=os.getpid())
        return self._stream.recv(len(ZYGOTE_GO)) == ZYGOTE_GO

    def say(self, **fields: object) -> None:
        """Send one message; an init that is gone is no error."""
        with contextlib.suppress(OSError):
            self._stream.sendall(json.dumps(fields).encode() + b"\n")

    def move_up(self) -> None:
        """Give the connection a high descriptor, which no executed program inherits."""
        self._stream = socket.socket(fileno=_moved_up(self._stream.detach()))

    @property
    def is_open(self) -> bool:
        return self._stream.fileno() >= 0

    def close(self) -> None:
        """Close it: nothing can make this process a cold start any more."""
        self._stream.close()


def become_cold_start(
    stream: socket.socket, world: World, init: int, middle: int, standby: int | None = None
) -> list[str]:
    """Become the process that init orders on ``stream``; return its arguments.

    The first is the hook's program, or the script that runs without the hook. Ends the process if
    init has given the order up, or if it cannot be carried out. ``standby``: the descriptor on
    which a successor waits for its release.
    """
    order, connection = take_order(stream, world, init, middle, standby)
    replay(order, world, connection)
    wait_for_go(order, world, connection)
    return arguments(order, world)


def take_order(
    stream: socket.socket, world: World, init: int, middle: int, standby: int | None = None
) -> tuple[Order, Connection]:
    """Take the place of the process that init orders on ``stream``; return order and connection.

    Ends the process as ``become_cold_start`` does.
    """
    connection = Connection(stream)
    connection.move_up()
    order = connection.order()
    if order is None:
        os._exit(0)
    if standby is not None:
        number = str(_moved_up(standby))
        order = replace(order, environment={**order.environment, ENV_STANDBY_FD: number})
    problem = import_world.stale(world.imports)
    if problem is not None:
        connection.say(stale=problem)
        os._exit(0)
    try:
        _take_place(order, world, init, middle)
    except Exception as error:
        connection.say(failed=f"{type(error).__name__}: {error}")
        os._exit(0)
    return order, connection


def wait_for_go(order: Order, world: World, connection: Connection) -> None:
    """Wait for init's word; end this process if init does not want it to run."""
    if not connection.may_go():
        os._exit(0)
    if order.cgroup:
        cgroup.show_own_group_alone(world.cgroup_mounts)


def arguments(order: Order, world: World) -> list[str]:
    """Return the words of the cold command after the interpreter and its options."""
    return list(order.command[world.options :])


def _moved_up(descriptor: int) -> int:
    high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR)
    os.close(descriptor)
    return high


def _take_place(order: Order, world: World, init: int, middle: int) -> None:
    process_image.become_child_of(init, middle)
    process_image.redirect_output(order.log)
    os.chdir(order.folder)
    if world.oom_score is not None:
        process_image.set_oom_score(world.oom_score)
    renew(order, world)


def renew(order: Order, world: World) -> None:
    """Put environment, command line, paths and random state where a new interpreter has them."""
    marker = (ENV_JOB, ENV_ATTEMPT, ENV_GENERATION, ENV_SOCKET)
    process_image.set_environment(order.environment, marker)
    process_image.set_command_line(order.command)
    sys.orig_argv[:] = order.command
    sys.path[:] = world.path
    filters: list[Any] = warnings.filters  # type: ignore[assignment]
    filters[:] = world.filters
    warnings._filters_mutated()  # type: ignore[attr-defined]
    sys.meta_path[:] = world.finders
    random.seed()
    if PYTORCH in world.absent:
        world.absent[PYTORCH].default_generator.seed()
    if "numpy.random" in world.absent:
        numpy_random = world.absent["numpy.random"]
        numpy_random.set_bit_generator(numpy_random.MT19937())


def replay(order: Order, world: World, connection: Connection) -> None:
    """Have the script's imports put the hidden modules back, or start cold if they differ."""
    me = os.getpid()
    comparison = import_world.Comparison(world.imports)

    def check(name: str) -> None:
        if os.getpid() != me or world.framework in sys.modules:
            return  # a process that the script has forked must not run the script again
        difference = comparison.difference(name, os.environ)
        if difference is not None:
            connection.say(cold=difference.reason, variables=difference.variables)
            execute(order, difference.reason)

    def done() -> None:
        if world.framework in sys.modules and os.getpid() == me and connection.is_open:
            connection.close()
            if world.framework == TENSORFLOW:
                _set_logger()

    ImportReplay(world.absent, world.records, check, done, world.lazy).begin()
    if not world.hooked:
        hook = [name for name in sys.modules if name.startswith("_reshape_hook")]
        process_image.keep([sys.modules.pop(name) for name in hook])


def _set_logger() -> None:
    """Leave TensorFlow's logger its own handler only where its import would give it that."""
    logging = sys.modules["logging"]  # TensorFlow has imported it
    if logging.getLogger().handlers:
        logging.getLogger(TENSORFLOW).handlers.clear()


def execute(order: Order, reason: str) -> NoReturn:
    """Become the cold start: the lines of the script above the import run again.

    A successor that still waits ends instead: its own output and effects are held.
    """
    if ENV_STANDBY_FD in order.environment:
        from reshape_sidecar.hook.standby import Standby

        assert Standby.of_this_process is not None
        Standby.of_this_process.give_up(reason)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os.chdir(order.folder)
    for descriptor in order.keeps:
        os.set_inheritable(descriptor, True)
    _exec(order.command, order.environment)


def _exec(command: tuple[str, ...], environment: Mapping[str, str]) -> NoReturn:
    try:
        os.execvpe(command[0], list(command), dict(environment))
    except OSError as error:
        print(f"reshape: {command[0]} cannot be executed: {error}", file=sys.stderr)
        os._exit(127)
