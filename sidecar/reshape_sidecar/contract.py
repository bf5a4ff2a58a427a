"""The contract between the agent and a training process: environment, files, reports.

Names and values only; standard library only. The whole contract for a program that knows nothing of
Reshape (level 0): SIGTERM means save and leave with exit code 75 (0 and 143 are understood as
well); at start, resume from the newest checkpoint. Everything else here is what the hook (level 1)
and the session API (level 2) add.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from reshape_sidecar.wire import PrepareStage, Progress, Saves

RESERVED_PREFIXES = ("RESHAPE_", "CUDA_", "NVIDIA_", "LD_", "PYTHON", "TF_CONFIG")
"""Prefixes that a job record's variables may not have: Reshape sets them, or they load code."""

ENV_JOB = "RESHAPE_JOB"
ENV_NAME = "RESHAPE_JOB_NAME"
"""The name in the job record; the id in RESHAPE_JOB is this name and a suffix."""
ENV_ATTEMPT = "RESHAPE_ATTEMPT"
ENV_GENERATION = "RESHAPE_GENERATION"
"""Generation of the start; with job and attempt the marker of its processes in /proc."""
WAITING_GENERATION = "w_________"
"""Generation of a successor before its release, which is no training process yet: no number, and as
wide as every number, which then replaces it in /proc/PID/environ."""
ENV_DEVICES = "RESHAPE_DEVICES"
"""Comma-separated GPU UUIDs of this start."""
ENV_DEVICE_MODE = "RESHAPE_DEVICE_MODE"
"""``pool`` or ``simulated`` (one TensorFlow logical CPU device per entry of RESHAPE_DEVICES)."""
ENV_DEVICE_TRUTH = "RESHAPE_DEVICE_TRUTH"
ENV_JOB_TYPE = "RESHAPE_JOB_TYPE"
ENV_CHECKPOINTS = "RESHAPE_CHECKPOINTS"
ENV_SOCKET = "RESHAPE_SOCKET"
"""Path of the agent's Unix socket. It may exceed the kernel's 107 bytes: then open its folder and
connect to ``/proc/self/fd/N/NAME``."""
ENV_KEEP_RUNNING = "RESHAPE_KEEP_RUNNING"
"""Path of a file. While it exists, a SIGTERM was withdrawn: do not save and leave."""
ENV_EPOCHS = "RESHAPE_EPOCHS"
ENV_STEPS = "RESHAPE_STEPS"
ENV_TARGET_ACCURACY = "RESHAPE_TARGET_ACCURACY"
ENV_METRIC = "RESHAPE_METRIC"
"""Metric that the target accuracy is judged on; not set: the hook chooses."""
ENV_EPOCHS_IN_A_ROW = "RESHAPE_EPOCHS_IN_A_ROW"
ENV_GLOBAL_BATCH = "RESHAPE_GLOBAL_BATCH"
ENV_SEED = "RESHAPE_SEED"
ENV_WORKER = "RESHAPE_WORKER"
"""Number of this worker, from 0 (the chief); set where a job has several."""
ENV_WORKERS = "RESHAPE_WORKERS"
ENV_PEERS = "RESHAPE_PEERS"
"""Comma-separated addresses of all workers of this start, by number."""
ENV_RANK = "RESHAPE_RANK"
"""Number of this process among those of one container; set with ``processes: per-gpu``."""
ENV_RANKS = "RESHAPE_RANKS"
ENV_RANK_PAGE = "RESHAPE_RANK_PAGE"
"""Path of the page that the ranks share (``ranks.page``)."""
ENV_MEETING = "RESHAPE_MEETING"
"""Path of a file with a generation and a step: all workers of that start save after the step."""
ENV_RENDEZVOUS_FD = "RESHAPE_RENDEZVOUS_FD"
"""Descriptor of the socket at which the ranks meet, for rank 0 alone; not set: it opens its own."""
ENV_REPORT_LEVEL = "RESHAPE_REPORT_LEVEL"
"""Level of the reports that the agent knows (``wire.WIRE_LEVEL``); not set means level 1."""
ENV_ZYGOTE_SOCKET = "RESHAPE_ZYGOTE_SOCKET"
"""Descriptor of the zygote's connection to init."""
ZYGOTE_GO = b"go\n"
"""Init's word to a fork of the zygote that it may run the script."""
ENV_ZYGOTE_ROOM = "RESHAPE_ZYGOTE_ROOM"
"""Bytes in the zygote's environment in which its forks show theirs."""
ENV_RECORDING = "RESHAPE_RECORDING"
"""Path of a file to which the hook or session appends each step, for ``reshape verify``."""
ENV_STOP_AFTER = "RESHAPE_STOP_AFTER"
"""Step after which a recorded process saves and leaves by itself."""
ENV_FIRST_GPUS = "RESHAPE_FIRST_GPUS"
"""GPUs of the first start of a job, as whose later start a recorded process makes its batches."""
ENV_SIZES = "RESHAPE_SIZES"
"""Comma-separated numbers of GPUs on which the job may be; not set: they are not known."""
ENV_MICRO_BATCHES = "RESHAPE_MICRO_BATCHES"
"""Micro-batches of a step, of a record with ``batch: micro``; not set: as many as processes."""
ENV_PROOF = "RESHAPE_PROOF"
"""``off``: a process makes no step after its last save for the next one to compare its first step
with. ``stop``: it ends before its second step if its first one differs. Not set: it says so."""
ENV_SAVE_DEADLINE_S = "RESHAPE_SAVE_DEADLINE_S"
"""Seconds that a request to save and leave gives; not set: not known."""
ENV_HASHED_GENERATION = "RESHAPE_HASHED_GENERATION"
"""Generation of the process before this one in the same container: it has hashed and synced what it
published, since the machine's boot. Not set: every file is hashed before it is loaded."""
ENV_SPAWNED_AT_S = "RESHAPE_SPAWNED_AT_S"
"""When the process was started, by the machine's monotonic clock (the wall clock may be set
meanwhile); its import phase begins then."""
ENV_STANDBY_FD = "RESHAPE_STANDBY_FD"
"""Descriptor on which init releases a successor, by one line with a ``Release``. Its end without
that line means that the successor is dropped."""
ENV_PREPARED_IN_VAIN = "RESHAPE_PREPARED_IN_VAIN"
"""Why the successor that this process was until its ``execve`` could not go on."""

CLAIM_FILE = "claim.json"
MANIFEST_FILE = "manifest.json"
CHECKPOINTS_KEPT = 2


class HookPhase(StrEnum):
    """Phase of a training process with a hook or session; each report names the newest."""

    IMPORTING = "importing"
    BUILDING = "building"
    RESTORING = "restoring"
    TRAINING = "training"
    SAVING = "saving"
    SAVED = "saved"
    FINISHED = "finished"
    NOTICED = "noticed"
    """No phase: the one report of a program without hook and session (``alone.notice``), whose
    trajectory says what its record lacks."""


@dataclass(frozen=True, slots=True)
class HookReport:
    """Body of ``POST /training`` on the agent's socket.

    A report may be lost: the next one says more, and the manifest on disk proves a save.
    """

    generation: int
    phase: HookPhase
    progress: Progress = Progress()
    import_s: float | None = None
    build_s: float | None = None
    restore_s: float | None = None
    first_step_s: float | None = None
    save_s: float | None = None
    asks_step: int | None = None
    """Step after which all workers shall save; set by the first of several workers."""
    saves: Saves | None = None
    """When this process saves; None if it is not known yet. Level 2."""
    exception: str | None = None
    """Type of the exception that ends the process. Level 2."""
    exception_message: str | None = None
    """Its message, shortened. Level 2."""
    devices_used: int | None = None
    """How many of its devices this process uses; None: not known. Level 6."""


@dataclass(frozen=True, slots=True)
class Release:
    """Init's one message to a successor: from now on it is the training process."""

    generation: int
    spawned_at_s: float
    """When its predecessor was gone, by the machine's monotonic clock."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables of this start that were not known when the successor was started."""


@dataclass(frozen=True, slots=True)
class StandbyReport:
    """A successor's message to init: how far it has come."""

    stage: PrepareStage
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a checkpoint, relative to its folder."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """``manifest.json`` of a published checkpoint folder ``step-SSSSSSSSSS-aN``.

    A checkpoint is published complete (temporary folder, fsync, rename, fsync of the parent) or
    not at all. ``complete`` says that training reached its end with this checkpoint.
    """

    step: int
    epoch: int
    attempt: int
    generation: int
    files: tuple[FileEntry, ...]
    complete: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """``claim.json`` of a checkpoint folder: the attempt that may publish there.

    A new attempt writes its claim before it reads; ``base`` names the newest checkpoint at that
    time. An attempt may not publish under a higher claim, and readers accept only ``base`` and
    checkpoints of the claiming attempt. So a copy that still runs on a host that was cut off can
    write, but its checkpoints are not read.
    """

    attempt: int
    base: str | None = None
    job: str = ""
    """Job of the attempt, since each job counts its attempts from 1."""
    shuffle_seed: int | None = None
    """Seed of the job's unseeded shuffles: drawn with the job's first claim, and passed on."""
