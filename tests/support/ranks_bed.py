"""A script of a PyTorch library in a folder of its own, started on some GPUs as its SideCar does.

Does: forks the ranks of a start from one process that has imported the library, so that a start
takes no seconds for that.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from reshape_sidecar.wire import EXIT_SAVED
from tests.support.daemon_bed import ROOT
from tests.support.pytorch_bed import PYTHON
from tests.support.rank_runs import free_port

SIDECAR = ROOT / "sidecar"
SCRIPTS = ROOT / "tests" / "integration" / "pytorch" / "scripts"
START_S = 300.0
"""Longest wait for a start on a busy machine."""
STEP_S = 0.01


class Forks:
    """The process from which all ranks are forked."""

    def __init__(self, *libraries: str) -> None:
        assert PYTHON.exists(), "there is no PyTorch: make test-pytorch installs it for these tests"
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(SIDECAR),
            "PYTHONUNBUFFERED": "1",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
        }
        self._process = subprocess.Popen(
            [PYTHON, SCRIPTS / "forked_ranks.py", *libraries],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._environment = env

    def start(
        self,
        words: list[str],
        env: dict[str, str],
        folder: Path,
        log: Path,
        *,
        stop: int | None = None,
        plain: bool = False,
    ) -> int:
        """Start ranks; return the process of their parent."""
        if self._environment:
            assert self._answer() == "ready"
            self._known, self._environment = self._environment, {}
        fields = {"words": words, "env": {**self._known, **env}, "stop": stop, "plain": plain}
        assert self._process.stdin is not None
        line = json.dumps({**fields, "folder": str(folder), "log": str(log)})
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return int(self._answer())

    def code(self, wait_s: float | None = None) -> int | None:
        """Wait for the end of the ranks; the exit code of their parent. None: not in ``wait_s``."""
        if wait_s is not None and not self._has_answer(wait_s):
            return None
        return int(self._answer())

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _answer(self) -> str:
        assert self._has_answer(START_S), "the process that forks does not answer"
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def _has_answer(self, wait_s: float) -> bool:
        assert self._process.stdout is not None
        found, _, _ = select.select([self._process.stdout], [], [], wait_s)
        return bool(found)


class ScriptBed:
    """One training, of one start or several."""

    def __init__(
        self, forks: Forks, folder: Path, script: str, *arguments: str, step_s: float = STEP_S
    ) -> None:
        self._forks, self.folder, self._script, self._arguments = forks, folder, script, arguments
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        pace = {"paced": {str(gpus): step_s for gpus in (1, 2, 4)}}
        (folder / "truth.json").write_text(json.dumps({"seconds_per_step": pace}))
        self.log = folder / "log"
        self.log.touch()
        self.variables: dict[str, str] = {}

    def runs(self, gpus: int, stop_after: int | None = None, code: int | None = None) -> None:
        """Train on ``gpus``, to the end or to a stop after a step."""
        self.begins(gpus, stop_after)
        self.ends(code if code is not None else 0 if stop_after is None else EXIT_SAVED)

    def begins(self, gpus: int, stop_after: int | None = None) -> int:
        """Start on ``gpus``; the process of the parent of the ranks."""
        variables = self._variables(gpus)
        return self._forks.start(self._words(), variables, self.folder, self.log, stop=stop_after)

    def runs_without_reshape(self) -> None:
        """Train on one GPU, as ``torchrun`` starts the script."""
        rendezvous = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
        known = self._variables(1)
        env = {name: known[name] for name in known if not name.startswith("RESHAPE_")}
        env |= rendezvous | {"GROUP_RANK": "0"}
        self._forks.start(self._words(), env, self.folder, self.log, plain=True)
        self.ends(0)

    def ends(self, code: int) -> None:
        """Wait for the end, which must be with this exit code."""
        ended = self._forks.code()
        assert ended == code, self.printed

    def stops(self, pid: int, text: str) -> None:
        """Ask for a stop once the script has printed ``text``."""
        give_up_s = time.monotonic() + START_S
        while text not in self.printed:
            assert Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z", self.printed
            assert time.monotonic() < give_up_s, self.printed
            time.sleep(0.01)
        os.kill(pid, signal.SIGTERM)
        self.ends(EXIT_SAVED)

    def position(self, file: str) -> Any:
        """What the newest checkpoint says in ``file``."""
        newest = max((self.folder / "checkpoints").glob(f"step-*/{file}"))
        return json.loads(newest.read_text())

    @property
    def printed(self) -> str:
        """What all starts have printed."""
        return self.log.read_text()

    def _words(self) -> list[str]:
        return [str(SCRIPTS / self._script), *self._arguments]

    def _variables(self, gpus: int) -> dict[str, str]:
        return {
            "HOME": str(self.folder),
            "RESHAPE_JOB": "a",
            "RESHAPE_ATTEMPT": "1",
            "RESHAPE_GENERATION": "1",
            "RESHAPE_DEVICES": ",".join(f"gpu-{number}" for number in range(gpus)),
            "RESHAPE_DEVICE_MODE": "simulated",
            "RESHAPE_DEVICE_TRUTH": str(self.folder / "truth.json"),
            "RESHAPE_JOB_TYPE": "paced",
            "RESHAPE_CHECKPOINTS": str(self.folder / "checkpoints"),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            **self.variables,
        }
