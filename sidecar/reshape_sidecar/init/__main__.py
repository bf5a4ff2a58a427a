"""``python -I -S PATH/init/__main__.py --folder F --job J --attempt N -- AGENT...``: start init.

Does: reads its arguments and serves. Runs by file path, so that nothing enters a user's import
path. ``--grace-s`` is how long training may save after a SIGTERM to init, ``--zygote-again-s`` how
long it runs before a zygote that has ended is started again, ``--cgroup`` the attempt's group,
``--limited-by`` a group of version 1, ``--user`` the user of training where it is not init's. With
``--echo`` init's output has that of training too.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path

STANDARD_ERROR = 2
PRIVATE = 0o077
"""Umask of init and agent beside training of another user, which may enter their folder."""


def main() -> int:
    """Run init; return its exit code: 0 ended on request, FAILED_FOR_GOOD and UNFINISHED as
    ``values`` says, 3 another init holds the folder, or the attempt's cgroup cannot be entered."""
    _close_inherited()
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from reshape_sidecar import cgroup, limits
    from reshape_sidecar.init import logs
    from reshape_sidecar.init.groups import Groups
    from reshape_sidecar.init.processes import Marker
    from reshape_sidecar.init.supervisor import AlreadyRunning, Supervisor
    from reshape_sidecar.user import User

    parser = argparse.ArgumentParser(prog="reshape-init")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--job", required=True)
    parser.add_argument("--attempt", type=int, required=True)
    parser.add_argument("--grace-s", type=float, default=limits.GRACE_S)
    parser.add_argument("--zygote-again-s", type=float, default=limits.ZYGOTE_AGAIN_S)
    parser.add_argument("--cgroup", type=Path)
    parser.add_argument("--echo", action="store_true")
    parser.add_argument("--limited-by", type=Path, action="append", default=[])
    parser.add_argument("--user", type=User.of)
    parser.add_argument("agent", nargs="+", metavar="AGENT")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    marker = Marker(arguments.job, arguments.attempt, str(folder / "run" / "agent.sock"))
    times_s = (arguments.grace_s, arguments.zygote_again_s)
    groups = Groups(arguments.cgroup)
    if arguments.user is not None:
        os.umask(PRIVATE)
    try:
        if groups.attempt is not None:
            for group in (groups.attempt / cgroup.INIT, *arguments.limited_by):
                cgroup.enter(group)
        command, echoes = tuple(arguments.agent), arguments.echo
        supervisor = Supervisor(
            folder, marker, command, *times_s, groups, arguments.user, echoes=echoes
        )
    except (AlreadyRunning, cgroup.CgroupError) as error:
        print(f"init: {error}", file=sys.stderr, flush=True)
        return 3
    code = supervisor.run()
    logs.keep_end(folder / "logs", limits.LOG_BYTES_MAX)  # a log may grow fast between two checks
    return code


def _close_inherited() -> None:
    """Close inherited open files: a job would hold pipes of the controller's parent open."""
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > STANDARD_ERROR:
            with contextlib.suppress(OSError):  # the descriptor of the listing itself
                os.close(number)


if __name__ == "__main__":
    sys.exit(main())
