"""What the kernel shows of a forked process: environment, command line, session, parent, output.

Does: overwrites the bytes of ``/proc/self/environ`` and ``/proc/self/cmdline``, which a fork
inherits, and does for a fork what init does for a process that it executes. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Iterable, Mapping

from reshape_sidecar.death_signal import die_with

_ARGUMENTS, _ENVIRONMENT = slice(45, 47), slice(47, 49)
"""Begin and end in /proc/self/stat behind the name (fields 48 to 51 of proc_pid_stat(5))."""
LOG_MODE = 0o640
PARENT_POLL_S = 0.0002
OOM_SCORE = "/proc/self/oom_score_adj"
_libc = ctypes.CDLL(None, use_errno=True)


class ParentGone(Exception):
    """Init ended before it became the parent of this process."""


def become_child_of(init: int, middle: int) -> None:
    """Wait until ``init`` is the parent instead of ``middle``; then lead a session, die with init.

    Earlier, the death signal would be that of ``middle``, which ends at once. Raises ParentGone.
    """
    while (parent := os.getppid()) != init:
        if parent != middle:
            raise ParentGone
        time.sleep(PARENT_POLL_S)
    os.setsid()
    if not die_with(init):
        raise ParentGone


def redirect_output(log: str) -> None:
    """Read from nowhere, and append standard output and error to ``log``."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, LOG_MODE)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(output)


def set_environment(variables: Mapping[str, str], first: Iterable[str]) -> None:
    """Make ``variables`` the environment of this process, for ``os``, for C and for ``/proc``.

    Where ``/proc`` has too little room, the variables ``first`` have priority.
    """
    os.environ.clear()
    os.environ.update(variables)
    names = [*first, *(name for name in variables if name not in set(first))]
    entries = [
        os.fsencode(f"{name}={variables[name]}") + b"\0" for name in names if name in variables
    ]
    begin, end = _area(_ENVIRONMENT)
    room = end - begin
    text = b""
    for entry in entries:
        if len(text) + len(entry) <= room:
            text += entry
    _overwrite(begin, end, text)


def overwrite_variable(name: str, number: str) -> None:
    """Show ``number``, with zeros before it, as a variable's value in ``/proc``, in the room of the
    value that stands there; leave it if the variable is not there, or its room too small.

    The sweep and the check of a release recognize a training process by its generation there.
    """
    with open("/proc/self/environ", "rb") as file:
        content = file.read()
    key = os.fsencode(f"{name}=")
    begin = 0 if content.startswith(key) else content.find(b"\0" + key) + 1
    if not content.startswith(key, begin):
        return
    begin += len(key)
    width = content.find(b"\0", begin) - begin
    text = number.zfill(width).encode()
    if len(text) == width:
        ctypes.memmove(_area(_ENVIRONMENT)[0] + begin, text, width)


def set_command_line(words: Iterable[str]) -> None:
    """Show ``words`` as the command line, shortened to its room."""
    begin, end = _area(_ARGUMENTS)
    text = b"".join(os.fsencode(word) + b"\0" for word in words)
    # A last byte other than zero would make the kernel show the environment as well.
    _overwrite(begin, end, text[: max(0, end - begin - 1)])


def oom_score() -> str | None:
    """Return how early the kernel ends this process if memory runs out; None if unknown."""
    try:
        with open(OOM_SCORE, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None


def set_oom_score(score: str) -> None:
    """Set ``oom_score``; a kernel that refuses leaves it as it is."""
    with contextlib.suppress(OSError), open(OOM_SCORE, "w", encoding="ascii") as file:
        file.write(score)


def keep(thing: object) -> None:
    """Never destroy ``thing``, not even at the end of Python."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def return_free_memory() -> None:
    """Give memory that is free back to the system, so that no fork has it as well."""
    trim = getattr(_libc, "malloc_trim", None)
    if trim is not None:
        trim(0)


def _area(fields: slice) -> tuple[int, int]:
    with open("/proc/self/stat", "rb") as file:
        text = file.read()
    begin, end = text[text.rindex(b")") + 2 :].split()[fields]
    return int(begin), int(end)


def _overwrite(begin: int, end: int, text: bytes) -> None:
    if 0 < begin < end:
        # Never empty: a rank keeps its marker, which is first, while it puts its variables behind.
        ctypes.memmove(begin, text, len(text))
        ctypes.memset(begin + len(text), 0, end - begin - len(text))
