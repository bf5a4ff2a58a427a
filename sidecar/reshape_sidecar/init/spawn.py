"""Starts a process for init; standard library only.

Does: forks and executes a program in its own session, with a log file as its output and no other
open file, as another user if the job has one; the kernel kills it if init dies. No shell is used.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from reshape_sidecar import cgroup, death_signal, foreign
from reshape_sidecar.user import User

PR_SET_CHILD_SUBREAPER = 36
LOG_MODE = 0o640
LOG_MODE_OF_USER = 0o600
CHILD_SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGCHLD,
    signal.SIGPIPE,
    signal.SIGQUIT,
)


class SpawnError(Exception):
    """The program could not be executed; the message names it and the reason."""


_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Adopt the orphans among this process's descendants, as PID 1 does."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def spawn(
    command: Sequence[str],
    folder: str,
    env: Mapping[str, str],
    log: Path,
    inherit: int | None = None,
    group: Path | None = None,
    sees_others: bool = False,
    user: User | None = None,
) -> int:
    """Start ``command`` in ``folder`` with exactly ``env``; output is appended to ``log``.

    Returns the pid once the program was executed. Raises SpawnError if it was not. ``inherit``: a
    descriptor that the program gets. ``group``: the cgroup that it is in, and the only one that it
    sees, unless ``sees_others``. ``user``: runs it; None: the user of this process.
    """
    parent = os.getpid()
    try:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        with os.fdopen(reader, "rb") as result, os.fdopen(writer, "wb") as report:
            pid = os.fork()
            if pid == 0:
                _child(command, folder, env, log, writer, parent, inherit, group, sees_others, user)
            report.close()
            failure = result.read()
    except OSError as error:  # too many processes or open files
        raise SpawnError(f"{command[0]} cannot be started in {folder}: {error}") from None
    if failure:
        os.waitpid(pid, 0)
        raise SpawnError(failure.decode(errors="replace"))
    return pid


def _child(
    command: Sequence[str],
    folder: str,
    env: Mapping[str, str],
    log: Path,
    writer: int,
    parent: int,
    inherit: int | None,
    group: Path | None,
    sees_others: bool,
    user: User | None,
) -> None:
    """Prepare and execute the program after the fork; does not return."""
    try:
        os.setsid()
        _die_with(parent)
        if group is not None:
            cgroup.enter(group)
            if not sees_others:
                cgroup.show_own_group_alone(cgroup.mount_points())
        for signum in CHILD_SIGNALS:
            signal.signal(signum, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        nothing = os.open(os.devnull, os.O_RDONLY)
        output = open_log(log, user)
        os.dup2(nothing, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if inherit is not None:
            os.set_inheritable(inherit, True)
        if user is not None:
            user.become()
            _die_with(parent)
        os.chdir(folder)
        os.execvpe(command[0], list(command), dict(env))
    except BaseException as error:
        text = f"{command[0]} cannot be started in {folder}: {error}{_hint(command[0], error)}"
        os.write(writer, text.encode(errors="replace"))
        os._exit(1)


def open_log(log: Path, user: User | None) -> int:
    """Return a descriptor that appends to ``log``, which is ``user``'s. Raises OSError."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    try:
        output = foreign.descriptor(log, flags, LOG_MODE, follow=False)
    except OSError as error:
        if not isinstance(error, foreign.NotRegular) and error.errno != errno.ELOOP:
            raise
        # The job has put something else there; its own output must not wait for a reader.
        log.rename(log.with_name(f"{log.name}.{os.urandom(4).hex()}"))
        output = foreign.descriptor(log, flags, LOG_MODE, follow=False)
    if user is not None:
        os.fchown(output, user.uid, user.gid)
        os.fchmod(output, LOG_MODE_OF_USER)
    return output


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies, or end it if that has died."""
    if not death_signal.die_with(parent):
        os._exit(signal.SIGKILL)


def _hint(program: str, error: BaseException) -> str:
    """Return the hint that the first line of a script is wrong, which the kernel does not say."""
    if not isinstance(error, OSError) or error.filename != program:
        return ""
    if error.errno == errno.ENOEXEC:
        return "; the first line of a script names its program, as in #!/bin/sh"
    if error.errno == errno.ENOENT and os.path.exists(program):
        return "; it exists, but the program on its first line does not (Windows line ends?)"
    return ""


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")
