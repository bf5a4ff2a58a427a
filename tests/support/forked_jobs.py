"""Starts of PyTorch jobs by forks of one process that has imported their library.

Does: gives each start the environment of its SideCar, and stops it at a line of its log. So a
start costs a second or two instead of the import's ten.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.daemon_bed import ROOT
from tests.support.pytorch_bed import PYTHON
from tests.support.rank_runs import free_port

SERVER = ROOT / "tests" / "integration" / "pytorch" / "scripts" / "forked_jobs.py"
READY_S = 300.0
"""What the import may take on a busy machine."""
START_S = 240.0
"""What one start may take."""


class Forks:
    """The process that forks."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def answer(self, wait_s: float, log: Path | None = None) -> dict[str, Any]:
        """The next answer; fails with the log if none comes in time."""
        out = self._process.stdout
        assert out is not None
        ready, _, _ = select.select([out], [], [], wait_s)
        shown = log.read_text() if log is not None and log.exists() else ""
        assert ready, f"no end after {wait_s:g} s\n{shown}"
        line = out.readline()
        assert line, f"the process that forks has ended\n{shown}"
        found: dict[str, Any] = json.loads(line)
        return found

    def run(self, start: dict[str, Any], wait_s: float = START_S) -> int:
        """Run a start; its exit code."""
        start["env"]["MASTER_PORT"] = str(free_port())
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(start) + "\n")
        self._process.stdin.flush()
        code: int = self.answer(wait_s, Path(start["log"]))["code"]
        return code


@contextlib.contextmanager
def forks(*modules: str) -> Iterator[Forks]:
    """A process that has imported ``modules``."""
    assert PYTHON.exists(), "there is no PyTorch: make test-pytorch installs it for these tests"
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT / "sidecar"),
        "PYTHONUNBUFFERED": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "MASTER_ADDR": "127.0.0.1",
    }
    process = subprocess.Popen(
        [PYTHON, SERVER, *modules],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        found = Forks(process)
        found.answer(READY_S)
        yield found
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()


class ForkedJob:
    """A job in a folder of its own: one script, started again and again."""

    def __init__(self, forks: Forks, folder: Path, script: Path, *arguments: str) -> None:
        self._forks, self.folder = forks, folder
        self.command = [str(script), *arguments]
        (folder / "checkpoints").mkdir(parents=True)
        self.log = folder / "log"
        self.variables: dict[str, str] = {}

    def runs(self, gpus: int, stop_at: str | None = None, *, hooked: bool = True) -> int:
        """Run it on ``gpus`` until its end, or until the stop as rank 0 prints a text; the code.

        hooked: with Reshape; otherwise as ``torchrun`` runs it.
        """
        told = {
            "RESHAPE_JOB": "a",
            "RESHAPE_ATTEMPT": "1",
            "RESHAPE_GENERATION": "1",
            "RESHAPE_DEVICES": ",".join(f"gpu-{number}" for number in range(gpus)),
            "RESHAPE_DEVICE_MODE": "simulated",
            "RESHAPE_CHECKPOINTS": str(self.folder / "checkpoints"),
        }
        start = {
            "folder": str(self.folder),
            "log": str(self.log),
            "command": self.command,
            "ranks": gpus,
            "stop_at": stop_at,
            "env": {**told, **self.variables},
            "hooked": hooked,
        }
        return self._forks.run(start)

    def text(self, rank: int = 0) -> str:
        """What a rank has printed, in all starts."""
        log = self.log if rank == 0 else self.log.with_name(f"{self.log.name}.{rank}")
        return log.read_text() if log.exists() else ""

    def newest(self) -> Path:
        """Its newest checkpoint."""
        return max((self.folder / "checkpoints").glob("step-*"))
