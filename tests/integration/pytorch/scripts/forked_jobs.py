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
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from reshape_sidecar.death_signal import die_with
from reshape_sidecar.ranks import run as ranks_run
from reshape_sidecar.ranks.page import Page


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


def train(start: dict[str, Any], env: dict[str, str]) -> int:
    """Run the script in this process, a fork."""
    suffix = "" if env["RANK"] == "0" else f".{env['RANK']}"
    log = os.open(start["log"] + suffix, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
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


def fork(start: dict[str, Any], env: dict[str, str]) -> Rank:
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
            code = train(start, env)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def stop_once(start: dict[str, Any], ended: threading.Event) -> None:
    """Send this process init's SIGTERM when this start's part of the log shows the text."""
    while not ended.is_set():
        text = Path(start["log"]).read_text() if Path(start["log"]).exists() else ""
        if start["stop_at"] in text[start["seen"] :]:
            os.kill(os.getpid(), signal.SIGTERM)
            return
        time.sleep(0.002)


def run(start: dict[str, Any]) -> int:
    """Run one start; return the exit code of its group."""
    count = start["ranks"]
    page = Page.create(count)
    os.environ.update(start["env"])
    ranks = [fork(start, ranks_run.environment(n, count, page.path)) for n in range(count)]
    group = ranks_run.Group(page, ranks)
    ended = threading.Event()
    thread = threading.Thread(target=stop_once, args=(start, ended), daemon=True)
    if start.get("stop_at"):
        thread.start()
    try:
        return group.wait()
    finally:
        ended.set()
        group.end()
        for name in start["env"]:
            del os.environ[name]
        if thread.ident is not None:
            thread.join()


def main() -> None:
    for name in sys.argv[1:]:
        importlib.import_module(name)
    signal.pthread_sigmask(signal.SIG_BLOCK, ranks_run.SIGNALS)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps({"code": run(json.loads(line))}), flush=True)


if __name__ == "__main__":
    main()
