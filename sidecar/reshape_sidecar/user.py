"""The user of a job's processes, where that is another than the user of its SideCar.

Does: becomes that user in a fork, for good. In a thread of the agent it reaches files as that user,
so that a path in a record leads to nothing that the job's user may not touch. Only root can use it.
Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

UMASK = 0o022
"""Of the job's processes; the daemon's may be narrower for its own files."""
_SET_DEATH_SIGNAL, _GET_DEATH_SIGNAL, _SET_NO_NEW_PRIVILEGES = 1, 2, 38
_NO_CHANGE = 0xFFFFFFFF
_libc = ctypes.CDLL(None, use_errno=True)
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class User:
    """A user by numbers, which need no entry in a database of users."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    """Supplementary groups."""

    @classmethod
    def of(cls, text: str) -> User:
        """Return the user of ``UID:GID:GROUP:...``, as ``str`` writes it. Raises ValueError."""
        uid, gid, *groups = map(int, text.split(":"))
        return cls(uid, gid, tuple(groups))

    def __str__(self) -> str:
        return ":".join(map(str, (self.uid, self.gid, *self.groups)))

    def become(self) -> None:
        """Make this process the user's, for good: no program gives it other rights again.

        The kernel then forgets the signal at the parent's death. Raises OSError.
        """
        os.setgroups(self.groups)
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)
        os.umask(UMASK)
        if _libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"prctl(PR_SET_NO_NEW_PRIVS): {os.strerror(number)}")


@contextlib.contextmanager
def files_as(user: User | None) -> Iterator[None]:
    """Let this thread reach files as ``user`` within the context; None: as it does already.

    A thread that starts within it would keep that user. The process has to have the user's groups.
    Raises PermissionError if the kernel refuses.
    """
    if user is None:
        yield
        return
    death_signal = ctypes.c_int()
    _libc.prctl(_GET_DEATH_SIGNAL, ctypes.byref(death_signal), 0, 0, 0)
    try:
        _libc.setfsgid(user.gid)
        _libc.setfsuid(user.uid)  # of this thread alone; signals and tracing go by the other ids
        if _libc.setfsuid(_NO_CHANGE) != user.uid:
            raise PermissionError(f"files cannot be reached as user {user.uid}")
        yield
    finally:
        _libc.setfsuid(os.geteuid())
        _libc.setfsgid(os.getegid())
        _libc.prctl(_SET_DEATH_SIGNAL, death_signal, 0, 0, 0)  # the changes have cleared it


def run_as(user: User | None, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of ``work``, which reaches files as ``user``."""
    with files_as(user):
        return work(*args, **kwargs)


def closed_folder(path: Path) -> Path | None:
    """Return the first folder on the way to ``path`` that this thread may not enter."""
    for place in (*reversed(path.parents), path):
        try:
            os.stat(place)
        except PermissionError:
            return place.parent
        except OSError:
            return None
    return None
