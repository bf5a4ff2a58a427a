"""Step 7: the driver's own pause and resume of a process (cuda-checkpoint), measured only.

Does: pauses a process that trains on the GPU, reads what the GPU still holds, resumes it, and lets
it train on. By the program ``cuda-checkpoint`` if it is there, else by the driver's functions.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from typing import Any

from gpu.memory import used
from gpu.step import DRIVER, MIB, Dialogue, Step, StepFailed, StepRefused

from reshape_sidecar.gpu import FREE_MEMORY_BYTES

MEMORY_BYTES = 1 << 30
REPEATS = 3
COMMAND_S = 30.0
WAIT_S = 40.0
SETTLE_S = 0.3
FUNCTIONS = {
    "pause": ("cuCheckpointProcessLock", "cuCheckpointProcessCheckpoint"),
    "resume": ("cuCheckpointProcessRestore", "cuCheckpointProcessUnlock"),
}
NOT_INITIALIZED, NOT_SUPPORTED = 3, 801
Switch = Callable[[str, int], None]
"""Pauses or resumes a process; raises StepFailed."""


def run(step: Step) -> None:
    """Pause and resume a process some times. Raises StepRefused where the driver cannot."""
    way, switch = _way()
    step.put(way=way)
    rows: list[dict[str, Any]] = []
    with Dialogue(step, "paused", "hold.py", "--memory", str(MEMORY_BYTES), "--train") as process:
        process.hear(WAIT_S)
        process.go_on()
        process.hear(WAIT_S)
        pid = process.process.pid
        for _ in range(REPEATS):
            held = used(step.uuid)
            paused_s = _timed(switch, "pause", pid)
            time.sleep(SETTLE_S)
            left = used(step.uuid)
            resumed_s = _timed(switch, "resume", pid)
            began_s = time.monotonic()
            process.go_on()
            said = process.hear(WAIT_S)
            rows.append(
                {
                    "pause_s": paused_s,
                    "resume_s": resumed_s,
                    "next_step_s": round(time.monotonic() - began_s, 4),
                    "held_mib": held // MIB,
                    "held_while_paused_mib": left // MIB,
                }
            )
            step.put(pauses=rows)
            step.check("it trains on after the pause", said.startswith("round"), said)
            free = left <= FREE_MEMORY_BYTES
            step.check("a paused process holds no memory", free, f"{left // MIB} MiB")


def _timed(switch: Switch, what: str, pid: int) -> float:
    began_s = time.monotonic()
    switch(what, pid)
    return round(time.monotonic() - began_s, 4)


def _way() -> tuple[str, Switch]:
    """Return how this machine pauses a process. Raises StepRefused."""
    program = shutil.which(
        "cuda-checkpoint", path=f"{os.environ.get('PATH', '')}:/usr/local/cuda/bin"
    )
    if program is not None and DRIVER not in os.environ:
        return program, lambda _, pid: _by_program(program, pid)
    try:
        driver = ctypes.CDLL(os.environ.get(DRIVER, "libcuda.so.1"))
        missing = [n for names in FUNCTIONS.values() for n in names if not hasattr(driver, n)]
    except OSError as error:
        raise StepRefused(f"there is no cuda-checkpoint and no driver library: {error}") from None
    if missing:
        raise StepRefused(f"there is no cuda-checkpoint, and the driver lacks {missing[0]}")
    return "the driver's cuCheckpointProcess functions", lambda w, pid: _by_driver(driver, w, pid)


def _by_program(program: str, pid: int) -> None:
    done = subprocess.run(
        [program, "--toggle", "--pid", str(pid)],
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    if done.returncode != 0:
        raise StepFailed(f"{program} ended with {done.returncode}: {done.stderr.strip()[-200:]}")


def _by_driver(driver: Any, what: str, pid: int) -> None:
    """Call the driver; it holds no context in this process."""
    for name in FUNCTIONS[what]:
        code = getattr(driver, name)(pid, None)
        if code == NOT_INITIALIZED and driver.cuInit(0) == 0:
            code = getattr(driver, name)(pid, None)
        if code == NOT_SUPPORTED:
            raise StepRefused(f"{name} says that this driver or GPU does not support it")
        if code != 0:
            raise StepFailed(f"{name} says {code}")
