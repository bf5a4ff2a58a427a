"""The spec of an attempt (``spec.json``, written by the launcher) and the layout of its folder.

The spec does not change after the launch; the desired state carries what changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from reshape_sidecar import codec, foreign, state_files
from reshape_sidecar.wire import Processes, Shortcut

SPEC_FILE = "spec.json"
TOKEN_FILE = "token"
AGENT_SOCKET = "agent.sock"


class DeviceMode(StrEnum):
    """Whether the GPUs of this attempt are real."""

    POOL = "pool"
    """Real GPUs, identified by NVML UUID (the paper's mode)."""
    SIMULATED = "simulated"
    """One TensorFlow logical CPU device per GPU: real training, paced by the device truth."""


@dataclass(frozen=True, slots=True)
class AttemptSpec:
    """One attempt of a job. Paths are absolute; ``command`` never goes through a shell.

    ``python`` is the interpreter that a command's bare ``python`` stands for; None: as the
    container's PATH says.
    """

    job: str
    attempt: int
    name: str
    command: tuple[str, ...]
    code: str
    checkpoints: str
    coordinator_url: str
    epoch: int
    device_mode: DeviceMode
    host_devices: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    dataset: str | None = None
    framework: str = "keras"
    length_epochs: int | None = None
    length_steps: int | None = None
    global_batch: int | None = None
    seed: int | None = None
    device_truth: str | None = None
    """Path of the device truth file that paces simulated devices; None: not paced."""
    job_type: str | None = None
    python: str | None = None
    worker: int = 0
    """Number of the worker that this SideCar runs; 0 is the chief."""
    workers: int = 1
    target_accuracy: float | None = None
    metric: str | None = None
    """Metric that the target accuracy is judged on; None: the hook chooses."""
    epochs_in_a_row: int = 1
    standby: Shortcut = Shortcut.AUTO
    """Whether a zygote may start training processes."""
    overlap: Shortcut = Shortcut.AUTO
    """Whether a successor may be prepared while its predecessor trains."""
    processes: Processes = Processes.ONE
    controller_key: str | None = None
    """SHA-256 of the public key that the controller proves with TLS; None: none is pinned, as in
    specs of earlier versions."""
    work: str | None = None
    """Folder of the job's own in which training runs if it cannot write in ``code``; None: it runs
    in ``code`` (``workplace``)."""

    @property
    def checkpoint_folder(self) -> Path:
        """The folder of the checkpoints. A launcher of before could write ``s3://bucket``, which is
        a path from the program's own folder on: all that look for its files look there."""
        return Path(self.code, self.checkpoints)

    @property
    def may_overlap(self) -> bool:
        """Whether a successor may be prepared: for one worker, and on simulated devices."""
        simulated = self.device_mode is DeviceMode.SIMULATED
        return self.overlap is Shortcut.AUTO and simulated and self.workers == 1


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder of one attempt: spec.json, token, run/ (sockets and state), logs/."""

    path: Path

    @property
    def run(self) -> Path:
        return self.path / "run"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def socket(self) -> Path:
        return self.run / AGENT_SOCKET

    def spec(self) -> AttemptSpec:
        """Read the attempt's spec. Raises OSError, and CodecError for a torn file: the controller
        writes it again."""
        spec = state_files.read(AttemptSpec, self.path / SPEC_FILE)
        if isinstance(spec, AttemptSpec):
            return spec
        missing = f"{self.path / SPEC_FILE} is missing"
        raise codec.CodecError("", f"{spec or missing}; the controller writes it again")

    def token(self) -> str:
        """Read the attempt's bearer token; raises OSError."""
        return foreign.read_text(self.path / TOKEN_FILE, foreign.SECRET_BYTES_MAX).strip()
