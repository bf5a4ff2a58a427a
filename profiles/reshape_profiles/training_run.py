"""One training process on some devices, watched for a few iterations, then asked to save.

Does: starts the script under the hook with the environment of the contract, takes its reports on a
Unix socket, and times the save and the stop. Never: keeps its checkpoints, or leaves a process
behind. State: a temporary folder, for as long as the run lasts.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import reshape_sidecar
from reshape_profiles.hook_reports import listening
from reshape_sidecar import contract
from reshape_sidecar.contract import HookReport

POLL_S = 0.02
KILL_AFTER_S = 30.0
"""SIGKILL so long after the process was asked to save."""
LOG_TAIL_BYTES = 2000


class RunFailed(Exception):
    """A run gave no figures. The text says why, with the end of what the script wrote."""


@dataclass(frozen=True, slots=True)
class Script:
    """What is run: the words after the interpreter, and how long one run may take."""

    command: tuple[str, ...]
    """Script and arguments; a first word ``python`` is left out."""
    folder: Path
    job_type: str
    global_batch: int | None = None
    simulated: bool = False
    device_truth: Path | None = None
    steps: int = 30
    """Iterations that are watched."""
    timeout_s: float = 600.0
    hooked: bool = True
    """Run under the hook; without it the script sends reports by itself."""


@dataclass(frozen=True, slots=True)
class RunFigures:
    """What one run showed, in seconds; None where the script did not say."""

    seconds_per_step: float
    steps: int
    steps_per_epoch: int | None
    process_init_s: float | None
    checkpoint_s: float | None
    process_stop_s: float | None


def run(script: Script, devices: Sequence[str]) -> RunFigures:
    """Run the script on ``devices`` and stop it. Raises RunFailed."""
    with tempfile.TemporaryDirectory(prefix="reshape-profile-") as name:
        folder = Path(name)
        with listening(folder / "s") as reports, (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                _command(script),
                cwd=script.folder,
                env=_environment(script, devices, folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                return _watched(script, process, reports, folder / "log")
            finally:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _command(script: Script) -> list[str]:
    words = list(script.command)
    if words and Path(words[0]).name.startswith("python"):
        words = words[1:]
    if not words:
        raise RunFailed("there is no script to run; give a script with its arguments")
    hook = Path(reshape_sidecar.__file__).parent / "hook" / "run.py"
    return [sys.executable, *([str(hook)] if script.hooked else []), *words]


def _environment(script: Script, devices: Sequence[str], folder: Path) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("RESHAPE_")}
    shown = "" if script.simulated else ",".join(devices)
    told: dict[str, object] = {
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": shown,
        contract.ENV_JOB: f"profile-{script.job_type}",
        contract.ENV_ATTEMPT: 1,
        contract.ENV_GENERATION: 1,
        contract.ENV_DEVICES: ",".join(devices),
        contract.ENV_DEVICE_MODE: "simulated" if script.simulated else "pool",
        contract.ENV_CHECKPOINTS: folder / "checkpoints",
        contract.ENV_SOCKET: folder / "s",
        contract.ENV_KEEP_RUNNING: folder / "keep-running",
        contract.ENV_SPAWNED_AT_S: repr(time.monotonic()),
        contract.ENV_JOB_TYPE: script.job_type,
        contract.ENV_GLOBAL_BATCH: script.global_batch,
        contract.ENV_DEVICE_TRUTH: script.device_truth,
    }
    return {**kept, **{name: str(value) for name, value in told.items() if value is not None}}


def _watched(
    script: Script, process: subprocess.Popen[bytes], reports: list[HookReport], log: Path
) -> RunFigures:
    deadline = time.monotonic() + script.timeout_s
    while not _enough(script, reports):
        if process.poll() is not None:
            break
        if time.monotonic() > deadline:
            seen = _steps(reports)
            raise RunFailed(
                f"{seen} of {script.steps} iterations within {script.timeout_s:g} s; give more "
                f"time or fewer iterations.{_tail(log)}"
            )
        time.sleep(POLL_S)
    running = [r for r in list(reports) if r.progress.seconds_per_step is not None]
    if not running:
        raise RunFailed(
            f"the script reported no iteration (exit code {process.poll()}); it has to train with "
            f"Keras, or to use the session of the hook.{_tail(log)}"
        )
    ended = process.poll()
    if ended:
        raise RunFailed(
            f"the script failed after {_steps(reports)} of {script.steps} iterations "
            f"(exit code {ended}).{_tail(log)}"
        )
    asked = time.monotonic()
    if ended is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(KILL_AFTER_S + script.timeout_s)
    except subprocess.TimeoutExpired:
        raise RunFailed(
            f"the script did not leave after it was asked to save.{_tail(log)}"
        ) from None
    stopped_s = time.monotonic() - asked
    last = reports[-1]
    parts = (last.import_s, last.build_s, last.restore_s, last.first_step_s)
    return RunFigures(
        seconds_per_step=running[-1].progress.seconds_per_step or 0.0,
        steps=_steps(reports),
        steps_per_epoch=last.progress.steps_per_epoch,
        process_init_s=sum(p for p in parts if p is not None) if any(parts) else None,
        checkpoint_s=last.save_s,
        process_stop_s=max(0.0, stopped_s - (last.save_s or 0.0)) if ended is None else None,
    )


def _enough(script: Script, reports: list[HookReport]) -> bool:
    return _steps(reports) >= script.steps and reports[-1].progress.seconds_per_step is not None


def _steps(reports: list[HookReport]) -> int:
    return max((report.progress.step for report in list(reports)), default=0)


def _tail(log: Path) -> str:
    text = log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()
    return f" The script's last words:\n{text}" if text else " The script wrote nothing."
