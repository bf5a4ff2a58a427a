"""A step of the run, in a process of its own: its figures, its checks, its programs, its time.

Does: writes the step's result after each figure, so that a step that is killed leaves what it had.
State: the result's file, and the logs of its programs.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from gpu.report import Check, Outcome, Result, write_result

T = TypeVar("T")
PROGRAMS = Path(__file__).with_name("programs")
POLL_S = 0.02
MIB = 1 << 20
MARKS, STAND_IN, TORCH = "GPU_RUN_MARKS", "GPU_RUN_STAND_IN", "GPU_RUN_TORCH"
"""Variables of the programs: see programs/device.py."""
DRIVER, RUN = "GPU_RUN_DRIVER", "GPU_RUN_STEP"
"""Variables: the driver's library; the step, by which its processes are found."""


class StepFailed(Exception):
    """The step cannot go on; the text says what did not happen."""


class StepRefused(Exception):
    """This machine cannot do the step; the text says why."""


@dataclass
class Step:
    """One step while it runs."""

    result: Result
    file: Path
    work: Path
    """A folder of its own, with a short name."""
    logs: Path
    until_s: float
    """When its time is over, on the monotonic clock."""
    uuid: str = ""
    checks: list[Check] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def left_s(self) -> float:
        return self.until_s - time.monotonic()

    @property
    def is_real(self) -> bool:
        """Whether the GPU is no stand-in."""
        return STAND_IN not in os.environ

    @property
    def has_torch(self) -> bool:
        """Whether the programs use PyTorch."""
        return os.environ.get(TORCH) != "off"

    def put(self, **facts: Any) -> None:
        """Add figures to the result."""
        self.facts |= facts
        self.write(Outcome.FAILED, "it was interrupted")

    def check(self, text: str, ok: bool, found: str = "") -> None:
        """Add a check; the step fails at its end if one does not hold."""
        self.checks.append(Check(text, bool(ok), found))
        self.write(Outcome.FAILED, "it was interrupted")

    def write(self, outcome: Outcome, reason: str) -> None:
        result = replace(
            self.result,
            outcome=outcome,
            reason=reason,
            ran_on=self.ran_on(),
            checks=tuple(self.checks),
            facts=dict(self.facts),
        )
        write_result(self.file, result)

    def ran_on(self) -> tuple[str, ...]:
        if self.is_real:
            return ("GPU",)
        steps = "CPU steps of PyTorch" if self.has_torch else "pauses instead of training steps"
        return ("stand-in for NVML", "stand-in for the driver", steps)

    def wait(self, what: Callable[[], T | None], text: str, limit_s: float) -> T:
        """Return the first true value of ``what``. Raises StepFailed after ``limit_s``."""
        end_s = time.monotonic() + min(limit_s, max(0.0, self.left_s))
        while True:
            value = what()
            if value:
                return value
            if time.monotonic() > end_s:
                raise StepFailed(f"did not happen within {limit_s:.0f} s: {text}")
            time.sleep(POLL_S)

    def run(self, *words: str, limit_s: float, **env: str) -> str:
        """Return what a program of this Python prints; its errors go to the log. Raises
        StepFailed."""
        log = self.logs / f"{Path(words[0]).stem}.log"
        try:
            with log.open("ab") as errors:
                done = subprocess.run(
                    [sys.executable, str(PROGRAMS / words[0]), *words[1:]],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env={**os.environ, **env},
                    timeout=min(limit_s, max(1.0, self.left_s)),
                    check=False,
                )
        except subprocess.TimeoutExpired:
            raise StepFailed(f"{words[0]} took more than {limit_s:.0f} s; see {log.name}") from None
        if done.returncode != 0:
            last = log.read_text(errors="replace").strip().splitlines()[-1:]
            raise StepFailed(f"{words[0]} ended with {done.returncode}: {' '.join(last)}")
        return done.stdout.decode()


class Dialogue:
    """A program that says a word at each stage, and goes on at a line of input."""

    def __init__(self, step: Step, name: str, *words: str) -> None:
        self._step = step
        self._log = (step.logs / f"{name}.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAMS / words[0]), *words[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": step.uuid},
        )

    def hear(self, limit_s: float) -> str:
        """Return the next line that it prints. Raises StepFailed."""
        pipe = self.process.stdout
        assert pipe is not None
        ready, _, _ = select.select([pipe], [], [], min(limit_s, max(0.0, self._step.left_s)))
        line = pipe.readline().decode().strip() if ready else ""
        if not line:
            state = self.process.poll()
            why = "said nothing" if state is None else f"ended with {state}"
            raise StepFailed(f"{self._log.name} {why} within {limit_s:.0f} s; its log says why")
        return line

    def go_on(self) -> None:
        """Let it go to its next stage."""
        pipe = self.process.stdin
        assert pipe is not None
        pipe.write(b"\n")
        pipe.flush()

    def end(self) -> None:
        """Kill it and wait for its end."""
        self.process.kill()
        self.process.wait()
        self._log.close()

    def __enter__(self) -> Dialogue:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
