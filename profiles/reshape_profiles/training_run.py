"""A training process on some devices, observed for a few iterations until it saves and stops.

Does: start the script as a SideCar does, receive its reports on a Unix socket, and measure the save
and the stop. It leaves neither checkpoints nor processes behind. State: a temporary folder during
the run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import IO

from reshape_profiles.hook_reports import listening
from reshape_sidecar.agent import environment, library, worker_address
from reshape_sidecar.agent.spec import AttemptSpec, DeviceMode
from reshape_sidecar.contract import ENV_GENERATION, HookPhase, HookReport
from reshape_sidecar.init.processes import Marker
from reshape_sidecar.init.values import KEEP_RUNNING_FILE
from reshape_sidecar.wire import Processes

SOCKET = "s"
"""Name of the socket; short, because a temporary folder may have a long path."""
POLL_S = 0.02
KILL_AFTER_S = 30.0
"""Time from the request to save to SIGKILL."""
LOG_TAIL_BYTES = 2000


BY_ITSELF = "run the script by itself and correct its error"
TRAIN = "train with Keras's `fit`, or use the session API and give the framework"
PER_GPU = "write `processes: per-gpu` in the record"
TRAIN_PYTORCH = (
    f"{PER_GPU} if a Trainer or a process group trains, or use the session's job.batches"
)


class RunFailed(Exception):
    """A run gave no values. The text has the reason and the end of the script's output."""

    def __init__(self, what: str, remedy: str = BY_ITSELF) -> None:
        super().__init__(what)
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Script:
    """The program to run, and the time limit of a run."""

    command: tuple[str, ...]
    """Command as in a job record; a script alone runs with this Python."""
    folder: Path
    job_type: str
    global_batch: int | None = None
    simulated: bool = False
    device_truth: Path | None = None
    steps: int = 30
    """Number of iterations to observe."""
    timeout_s: float = 600.0
    framework: str = "keras"
    """As in a job record: a Keras script runs under the hook, others use the session API."""
    env: tuple[tuple[str, str], ...] = ()
    length_steps: int | None = None
    """Step at which training ends; None: as the script says."""
    seed: int | None = None
    processes: Processes = Processes.ONE
    """As in a job record."""


@dataclass(frozen=True, slots=True)
class RunFigures:
    """The values of a run in seconds; None if the script did not report one."""

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
        with listening(folder / SOCKET) as reports, (folder / "log").open("wb") as log:
            process = started(script, devices, folder, log)
            with terminated(process):
                return _watched(script, process, reports, folder / "log")


def started(
    script: Script,
    devices: Sequence[str],
    folder: Path,
    log: IO[bytes],
    *,
    code: Path | None = None,
    extra: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.Popen[bytes]:
    """Start the script on ``devices`` as a SideCar does. Raises RunFailed.

    ``folder`` has the socket of reports and gets the checkpoints. ``code``: the folder to run in;
    None: the script's. ``extra``: more variables of its environment.
    """
    spec = _spec(script, folder, code or script.folder)
    try:
        return subprocess.Popen(
            environment.command(spec),
            cwd=spec.code,
            env={**_environment(spec, devices, folder), **extra},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise RunFailed(
            f"{spec.command[0]} cannot be started: {error.strerror}", "correct the command"
        ) from None


@contextlib.contextmanager
def terminated(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill the process group at the end of the context."""
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _spec(script: Script, folder: Path, code: Path) -> AttemptSpec:
    """Return the spec that a SideCar gets for a job of this script."""
    words = script.command
    if not words or (len(words) == 1 and Path(words[0]).name.startswith("python")):
        raise RunFailed("no script is given", "give a script with its arguments")
    if words[0].endswith(".py"):
        words = ("python", *words)
    return AttemptSpec(
        job=f"profile-{script.job_type}",
        attempt=1,
        name=script.job_type,
        command=words,
        code=str(code),
        checkpoints=str(folder / "checkpoints"),
        coordinator_url="",
        epoch=0,
        device_mode=DeviceMode.SIMULATED if script.simulated else DeviceMode.POOL,
        env=script.env,
        framework=script.framework,
        length_steps=script.length_steps,
        global_batch=script.global_batch,
        seed=script.seed,
        device_truth=None if script.device_truth is None else str(script.device_truth),
        job_type=script.job_type,
        python=sys.executable,
        processes=script.processes,
    )


def python_of(script: Script) -> str | None:
    """Return the interpreter that runs the script; None if its command shows none."""
    words = environment.command(_spec(replace(script, processes=Processes.ONE), Path(), Path()))
    return words[0] if Path(words[0]).name.startswith("python") else None


def _environment(spec: AttemptSpec, devices: Sequence[str], folder: Path) -> dict[str, str]:
    marker = Marker(spec.job, spec.attempt, str(folder / SOCKET))
    env = environment.variables(
        spec,
        tuple(devices),
        os.environ,
        socket=folder / SOCKET,
        keep_running=folder / KEEP_RUNNING_FILE,
        now_s=time.monotonic(),
        free_port=worker_address.free_port(),
        library=library.install(folder),
    )
    return {**env, **marker.environment(), ENV_GENERATION: "1"}


def remedy(script: Script, reports: Sequence[HookReport]) -> str:
    """Return the remedy for a script that reports no step."""
    if any(report.phase is HookPhase.NOTICED for report in reports):
        return PER_GPU  # a trainer trains in a single process
    is_pytorch = script.framework == environment.PYTORCH
    return TRAIN_PYTORCH if is_pytorch and script.processes is Processes.ONE else TRAIN


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
                f"the script made {seen} of {script.steps} iterations within "
                f"{script.timeout_s:g} s.{tail(log)}",
                "give a longer --timeout-s or fewer --steps",
            )
        time.sleep(POLL_S)
    running = [r for r in list(reports) if r.progress.seconds_per_step is not None]
    if not running:
        raise RunFailed(
            f"the script reported no iteration (exit code {process.poll()}).{tail(log)}",
            remedy(script, reports),
        )
    ended = process.poll()
    if ended:
        raise RunFailed(
            f"the script failed after {_steps(reports)} of {script.steps} iterations "
            f"(exit code {ended}).{tail(log)}"
        )
    asked = time.monotonic()
    if ended is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(KILL_AFTER_S + script.timeout_s)
    except subprocess.TimeoutExpired:
        raise RunFailed(
            f"the script did not stop after the request to save.{tail(log)}",
            "have its loop check for a stop more often: each step calls `step_done`",
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


def tail(log: Path) -> str:
    """Return the end of a log as a clause of an error."""
    text = log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()
    return f" The end of its output:\n{text}" if text else " The script wrote no output."
