"""A job of real PyTorch processes under a real daemon, which is reshaped down and up again.

Does: what the tests of PyTorch share. Never: runs without PyTorch, or skips a test for want of it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon_bed import ROOT, Bed, eventually
from tests.support.rank_runs import free_port

EXAMPLES = ROOT / "examples" / "pytorch"
OWN_PROCESSES = ROOT / "tests" / "integration" / "pytorch" / "scripts" / "own_processes"
"""Programs as the examples were before `job.batches`; jobs have copies of them."""
PYTHON = ROOT / ".venv-pytorch" / "bin" / "python"
PYTORCH_S = 100.0
"""What several starts of PyTorch, four processes each, may take on a slow machine."""
STEPS = 300
STEP_S = 0.1
"""Long enough for a newcomer to come and go."""
STEP = re.compile(r"^step (\d+) loss (\S+)\n", re.M)


class PyTorchBed:
    """A program as a job, on four devices or two."""

    def __init__(
        self,
        bed: Bed,
        program: str,
        step_s: float = STEP_S,
        arguments: tuple[str, ...] = ("--steps", str(STEPS)),
        code: Path = OWN_PROCESSES,
        **fields: Any,
    ) -> None:
        assert PYTHON.exists(), "there is no PyTorch: make test-pytorch installs it for these tests"
        self._bed = bed
        truth = bed.folder / "truth.json"
        pace = {"linear": {"2": step_s, "4": step_s}}
        truth.write_text(json.dumps({"seconds_per_step": pace}))
        bed.up("--device-truth", str(truth), "--preset", "paper")
        self._job = bed.submit(
            "trains",
            steps=STEPS,
            command=[str(PYTHON), program, *arguments],
            code=str(code),
            framework="pytorch",
            job_type="linear",
            **fields,
        )

    @property
    def log(self) -> str:
        """What the job printed."""
        path = self._bed.home / "jobs" / self._job / "attempt-1" / "logs" / "training.log"
        return path.read_text() if path.exists() else ""

    def prints(self, text: str) -> None:
        """Wait until it has printed this."""
        eventually(lambda: text in self.log, least_s=PYTORCH_S, text=text)

    def found(self) -> Any:
        """The job as the daemon shows it."""
        return self._bed.job(self._job)

    def pid(self) -> int:
        return self._bed.pid(self._job)

    def reshaped(self) -> list[tuple[int, float]]:
        """Let a newcomer take half of the devices and leave again, without a loss or a failure;
        steps and losses of the job."""
        self.prints("step 20 loss")
        newcomer = self._bed.submit("newcomer", steps=100_000, optional_gpus=[2], max_wait_s=1)
        self.prints("going on after step")
        self._bed.reaches(self._job, "running", size=2)
        self._bed.reshape("cancel", "newcomer")
        self._bed.reaches(newcomer, "cancelled")
        self._bed.reaches(self._job, "running", size=4)
        done = self.completed()
        assert (done["reshape_downs"], done["reshape_ups"]) == (1, 1)
        lost = (done["steps_lost"], done["failures"], done["container_restarts"])
        assert lost == (0, 0, 0), f"{done}\n{STEP.sub('', self.log)}"
        assert self.log.count("going on after step") == 2
        assert "Traceback" not in self.log
        return losses(self.log)

    def completed(self) -> Any:
        """Wait for the end of the job, which must be a good one; the job."""

        def ended() -> Any:
            found = self._bed.job(self._job)
            return found if found["state"] in ("completed", "failed") else None

        done = eventually(ended, least_s=PYTORCH_S, text="the job ends")
        assert done["state"] == "completed", done
        return done


def straight(
    program: Path = OWN_PROCESSES / "train.py", arguments: tuple[str, ...] = ("--steps", str(STEPS))
) -> list[tuple[int, float]]:
    """Steps and losses of a program that is started by hand, on one device."""
    group = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "sidecar")}
    ended = subprocess.run(
        [PYTHON, program, *arguments],
        env={**env, **group, "MASTER_PORT": str(free_port())},
        capture_output=True,
        text=True,
        timeout=PYTORCH_S,
        check=True,
    )
    return losses(ended.stdout)


def near(wanted: list[tuple[int, float]]) -> list[tuple[int, Any]]:
    """The same steps, and losses up to rounding: sums over devices are made in another order."""
    return [(step, pytest.approx(loss, abs=0.001)) for step, loss in wanted]


def losses(log: str) -> list[tuple[int, float]]:
    """Each step that was printed, and its loss."""
    return [(int(step), float(loss)) for step, loss in STEP.findall(log)]
