"""The user that a local job runs as: looked up, and whether this process may start it.

Does: turns a uid into the numbers and variables of its account, and tries once, with a process,
whether one of another user can be started and recognized. State: the result of that try.
"""

from __future__ import annotations

import functools
import os
import pwd
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from reshape_sidecar.user import User

NOBODY = 65534
"""Group of a uid without an account, and the user of the trial."""
_TRIAL = "RESHAPE_TRIAL"
REMEDY = "run the daemon as root, with the usual capabilities of root (CAP_SYS_PTRACE among them)"


@dataclass(frozen=True, slots=True)
class Account:
    """A user as the processes of a job need it."""

    user: User
    name: str
    home: str

    @property
    def environment(self) -> dict[str, str]:
        """The variables that say whose process it is."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}


def account_of(uid: int, spare_home: Path) -> Account:
    """Return the account of ``uid``. ``spare_home``: home of a user that no database knows."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return Account(User(uid, NOBODY), str(uid), str(spare_home))
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    user = User(uid, entry.pw_gid, tuple(sorted(groups)))
    return Account(user, entry.pw_name, entry.pw_dir)


def is_root() -> bool:
    """Return whether this process is root, so that a job without a uid is root too."""
    return os.geteuid() == 0


def isolation() -> str:
    """Return what a job may do on this machine, in words. Blocks for one short process at first."""
    found = problem()
    if found:
        return f"jobs can act as the operator: {found}"
    return "a job whose token has a uid runs as that user; other jobs can act as the operator"


@functools.cache
def problem() -> str:
    """Return why this process cannot run jobs as other users; an empty text if it can.

    Blocks for one short process at first.
    """
    if not is_root():
        return f"the daemon runs as user {os.geteuid()}, not as root"
    try:
        return _trial()
    except (OSError, subprocess.SubprocessError) as error:
        return f"no process of another user can be started: {error}"


def _trial() -> str:
    """Start a process of another user, read what marks it, and end it."""
    with subprocess.Popen(
        ["/bin/sh", "-c", "echo up; read line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={_TRIAL: "1"},
        user=NOBODY,
        group=NOBODY,
        extra_groups=(),
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()  # its environment is not there while it is being executed
            # A release is verified by this.
            shown = Path(f"/proc/{process.pid}/environ").read_bytes()
        except PermissionError:
            return "the environment of another user's process cannot be read"
        finally:
            process.send_signal(signal.SIGKILL)
    return "" if _TRIAL.encode() in shown else "another user's process shows no environment"
