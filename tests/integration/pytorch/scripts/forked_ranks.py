"""Starts groups of ranks as ``ranks/run.py`` does, but each process is a fork of this one.

Each line of the input is a start (JSON: words, env, folder, log, stop, plain). It answers with the
process of the parent of the ranks, and at its end with the exit code. The libraries are imported
once.

stop: the step after which the parent lets the ranks stop, or null. plain: one process without ranks
and hook.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

from reshape_sidecar.death_signal import die_with
from reshape_sidecar.hook import run as hook
from reshape_sidecar.ranks import run as ranks
from reshape_sidecar.ranks.forks import ForkedRank
from reshape_sidecar.ranks.page import Page


def start(command: Sequence[str], env: dict[str, str], keeps: Sequence[int]) -> ForkedRank:
    """Fork a rank that runs ``command``, a script with its arguments under the hook."""
    parent, pid = os.getpid(), os.fork()
    if pid:
        return ForkedRank(pid)
    os.setsid()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    die_with(parent)
    replace_environment(env)
    sys.argv = list(command)
    leave(hook.main)


def replace_environment(env: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)


def leave(main: Any) -> NoReturn:
    """Run ``main`` to its end, and end this process as Python would."""
    try:
        code = main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def stop_after(step: int) -> None:
    """Let the parent of the ranks ask them from the begin to stop after ``step``."""

    class Target(Page):
        @classmethod
        def create(cls, ranks: int) -> Page:
            page = Page.create(ranks)
            page.target = step
            return page

    class Asked(ranks.Group):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self._asked = True
            self._signalled = set(self._running)  # they have a target

    vars(ranks).update(Page=Target, Group=Asked)


def group(
    words: list[str], env: dict[str, str], folder: str, log: str, stop: int | None, plain: bool
) -> NoReturn:
    """Be the parent of the ranks of one start."""
    if stop is not None:
        stop_after(stop)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(folder)
    replace_environment(env)
    if plain:
        leave(lambda: hook.run(words))
    vars(ranks).update(start=start)
    leave(lambda: ranks.main([ranks.HOOK, *words]))


def main(libraries: list[str]) -> None:
    for name in libraries:
        importlib.import_module(name)
    print("ready", flush=True)
    for line in sys.stdin:
        wanted = json.loads(line)
        pid = os.fork()
        if not pid:
            group(**wanted)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
