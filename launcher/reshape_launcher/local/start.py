"""Start of init for one attempt on this machine, detached from the controller.

Does: write the attempt's files, and start init in a session of its own without an inherited pipe.
It does not wait for the agent. Never: let another user read the token.

``python`` in a job's command means the interpreter of this process (``AttemptSpec.python``), so
that a script finds the packages that are installed beside the controller.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from reshape_launcher.local import access
from reshape_launcher.local.groups import GroupFile, Groups
from reshape_launcher.spec import LaunchSpec
from reshape_sidecar import agent as agent_package
from reshape_sidecar import codec, durable
from reshape_sidecar import init as init_package
from reshape_sidecar.agent import spec as attempt
from reshape_sidecar.agent.spec import Folder
from reshape_sidecar.cgroup import CgroupError, Limits
from reshape_sidecar.init import processes as proc
from reshape_sidecar.init.look import init_of
from reshape_sidecar.init.values import INIT_FILE, INIT_LOG, LOCK_FILE
from reshape_sidecar.user import User

START_WAIT_S = 20.0
"""Time limit from the start of init to its pid file. Then: it counts as not started."""
POLL_S = 0.01
ROOM_FILE = "room"
ROOM_BYTES = 4096
PIDS_MAX = 16_384
"""Most processes and threads of one attempt: half of Linux's smallest limit of all."""
FOLDER_MODE = 0o700
SECRET_MODE = 0o600


class NotStarted(Exception):
    """Init could not be started; the message says why and the remedy."""


def start(
    folder: Folder,
    spec: LaunchSpec,
    token: str,
    env: Mapping[str, str],
    groups: Groups,
    user: User | None = None,
) -> int:
    """Start init for the attempt in ``folder`` with exactly ``env``; return its pid.

    ``user``: runs training; its way to ``folder`` is open. Raises NotStarted.
    """
    try:
        for path in (folder.path, folder.run, folder.logs):
            path.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
            if user is not None:
                access.let_pass(path, user)
        write_files(folder, spec, token)
        limits = Limits(PIDS_MAX, spec.memory_bytes, spec.cpus)
        return _spawn(folder, spec, env, groups.make(folder, limits), user)
    except CgroupError as error:
        raise NotStarted(str(error)) from error
    except OSError as error:
        raise NotStarted(
            f"{folder.path}: {error.strerror or error}; make it writable and free space there"
        ) from error


def write_files(folder: Folder, spec: LaunchSpec, token: str) -> None:
    """Write the token and the spec of an attempt, each whole or not at all. Raises OSError."""
    durable.write_whole(folder.path / attempt.TOKEN_FILE, f"{token}\n".encode(), SECRET_MODE)
    text = codec.dumps(spec.sidecar_spec(python=sys.executable))
    # It has the job's variables, and other users may know its path.
    durable.write_whole(folder.path / attempt.SPEC_FILE, text.encode(), SECRET_MODE)


def wait_until_up(folder: Folder, pid: int) -> None:
    """Block until init has written its pid file. Raises NotStarted."""
    give_up_s = time.monotonic() + START_WAIT_S
    while not (folder.run / INIT_FILE).exists() or init_of(folder.run) is None:
        ended = not proc.alive(pid, proc.start_time(pid))
        # An init that an earlier controller started just before its death may hold the folder.
        if (ended and not _is_locked(folder)) or time.monotonic() >= give_up_s:
            _check_room(folder)
            raise NotStarted(f"its init process did not start; see {folder.logs / INIT_LOG}")
        time.sleep(POLL_S)


def _check_room(folder: Folder) -> None:
    """Raise NotStarted, caused by the OSError, if init's folder takes no file now."""
    try:
        (folder.run / ROOM_FILE).write_bytes(bytes(ROOM_BYTES))
        (folder.run / ROOM_FILE).unlink()
    except OSError as error:
        raise NotStarted(
            f"{folder.run}: {error.strerror or error}; make it writable and free space there"
        ) from error


def _spawn(
    folder: Folder,
    spec: LaunchSpec,
    env: Mapping[str, str],
    group: GroupFile | None,
    user: User | None,
) -> int:
    agent = _program(agent_package.__file__)
    held = [] if group is None else ["--cgroup", group.path]
    for other in () if group is None else group.limited_by:
        held += ["--limited-by", other]
    by_user = [] if user is None else ["--user", str(user)]
    command = [
        *(sys.executable, "-I", "-S", _program(init_package.__file__)),
        *("--folder", str(folder.path), "--job", spec.job, "--attempt", str(spec.attempt)),
        *held,
        *by_user,
        *("--", sys.executable, "-I", agent, "--folder", str(folder.path), *by_user),
    ]
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    return os.posix_spawn(
        sys.executable,
        command,
        dict(env),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(folder.logs / INIT_LOG), flags, SECRET_MODE),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP),
    )


def _program(package_file: str | None) -> str:
    """Return the path of a package's ``__main__.py``; a path keeps ``sys.path`` as it is."""
    assert package_file is not None
    return str(Path(package_file).resolve().with_name("__main__.py"))


def _is_locked(folder: Folder) -> bool:
    """True if an init holds the attempt's lock."""
    try:
        with open(folder.run / LOCK_FILE, "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
    except OSError:
        return True
