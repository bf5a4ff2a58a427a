"""Runs starts of PyTorch jobs, each rank as a fork of this process, which imports a library once.

Reads one JSON object a line from standard input and answers each with one. Does: what
``ranks/run.py`` and ``hook/run.py`` do, without the seconds of each import.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from reshape_sidecar.death_signal import die_with
from reshape_sidecar.ranks import run as ranks_run
from reshape_sidecar.ranks.page import Page

SEEN_S = 5.0
"""Longest wait until the parent has told a stop to the ranks: it does once all take part."""


class Stopping:
    """Standard output that asks the parent for a stop as it prints a text, and waits until the
    stop is told, so that a busy machine does not train on meanwhile."""

    def __init__(self, output: Any, text: str, page: Page) -> None:
        self._output, self._text, self._page = output, text, page
        self._line = ""
        self._is_asked = False

    def write(self, text: str) -> int:
        written: int = self._output.write(text)
        self._line = self._line.rpartition("\n")[2] + text
        if not self._is_asked and self._text in self._line:
            self._is_asked = True
            os.kill(os.getppid(), signal.SIGTERM)
            until_s = time.monotonic() + SEEN_S
            while not self._page.target and time.monotonic() < until_s:
                time.sleep(0.001)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._output, name)


class Rank:
    """A forked rank, as ``ranks/run.py`` handles a process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self) -> int:
        while self.poll() is None:
            time.sleep(0.001)
        assert self._code is not None
        return self._code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def train(start: dict[str, Any], env: dict[str, str], page: Page) -> int:
    """Run the script in this process, a fork."""
    suffix = "" if env["RANK"] == "0" else f".{env['RANK']}"
    log = os.open(start["log"] + suffix, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if start["stop_at"] and env["RANK"] == "0":
        sys.stdout = Stopping(sys.stdout, start["stop_at"], page)
    os.environ.clear()
    is_hooked = start["hooked"]
    os.environ.update({n: v for n, v in env.items() if is_hooked or not n.startswith("RESHAPE_")})
    os.chdir(start["folder"])
    path = Path(ranks_run.__file__).parents[1] / "hook" / "run.py"
    spec = importlib.util.spec_from_file_location("hook_run", path)
    assert spec is not None
    assert spec.loader is not None
    hook_run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook_run)
    sys.argv = [str(path), *start["command"]]
    try:
        return int(hook_run.main())
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)


def fork(start: dict[str, Any], env: dict[str, str], page: Page) -> Rank:
    parent = os.getpid()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return Rank(pid)
    code = 1
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if die_with(parent):
            code = train(start, env, page)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run(start: dict[str, Any]) -> int:
    """Run one start; return the exit code of its group."""
    count = start["ranks"]
    page = Page.create(count)
    os.environ.update(start["env"])
    ranks = [fork(start, ranks_run.environment(n, count, page.path), page) for n in range(count)]
    group = ranks_run.Group(page, ranks)
    try:
        return group.wait()
    finally:
        group.end()
        for name in start["env"]:
            del os.environ[name]


def main() -> None:
    for name in sys.argv[1:]:
        importlib.import_module(name)
    signal.pthread_sigmask(signal.SIG_BLOCK, ranks_run.SIGNALS)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps({"code": run(json.loads(line))}), flush=True)


if __name__ == "__main__":
    main()
