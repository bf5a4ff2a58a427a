"""Requests to init and its status, one JSON line each on its Unix socket; and init's files.

Requests are idempotent: each names a generation. Init answers every request with its whole
``InitStatus``, and sends it to every client at each change.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from reshape_sidecar.wire import PrepareStage, StandbyState, StartKind

SOCKET_NAME = "init.sock"
INIT_FILE = "init.json"
TRAINING_FILE = "training.json"
EXIT_FILE = "exit.json"
LOCK_FILE = "init.lock"
KEEP_RUNNING_FILE = "keep-running"
TRAINING_LOG = "training.log"
AGENT_LOG = "agent.log"
ZYGOTE_LOG = "zygote.log"
INIT_LOG = "init.log"
ENDING_FILE = "ending"
"""The agent's word on the job, by which init chooses its exit code: an ``Ending``."""
FAILED_FOR_GOOD = 70
"""Exit code of an init that ended in order after the last try of a job that has failed."""
UNFINISHED = 76
"""Exit code of an init that ended in order because of a signal from outside, as at an eviction,
before the job was complete."""
NOT_EXECUTABLE = 127
"""Exit code of a training process that could not be executed."""


class Ending(StrEnum):
    """What the agent knows of the job when its container ends."""

    COMPLETE = "complete"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start the training process of ``generation`` unless it or a later one was started."""

    generation: int
    command: tuple[str, ...]
    folder: str
    env: tuple[tuple[str, str], ...]
    key: str | None = None
    """Key of the zygote that may serve this start; None: it is cold."""
    doubt: str | None = None
    """Why it shall be cold although it has a key."""


@dataclass(frozen=True, slots=True)
class UseZygote:
    """Keep a process with the framework imported, and start training as its fork.

    ``key`` names the interpreter and the environment that its import depends on.
    """

    key: str
    command: tuple[str, ...]
    folder: str
    env: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SendSigterm:
    """Send SIGTERM (save and leave) to the training process, once for ``generation``."""

    generation: int


@dataclass(frozen=True, slots=True)
class WithdrawSigterm:
    """Withdraw the SIGTERM of earlier requests if training has not served it."""

    generation: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """End the processes of every earlier start: SIGTERM, after ``kill_after_s`` SIGKILL.

    ``spare``: the preparation whose successor this generation will adopt; no other is spared.
    """

    generation: int
    kill_after_s: float
    spare: int | None = None


@dataclass(frozen=True, slots=True)
class Prepare:
    """Start a successor for ``devices``, unless this preparation or a later one was started."""

    number: int
    devices: tuple[str, ...]
    command: tuple[str, ...]
    folder: str
    env: tuple[tuple[str, str], ...]
    key: str | None = None
    """Key of the zygote that may fork it; None: it imports the framework itself."""


@dataclass(frozen=True, slots=True)
class Adopt:
    """Make the successor of preparation ``number`` the training process of ``generation``.

    Does nothing if it is not alive: the status says so. ``env``: variables of this start.
    """

    generation: int
    number: int
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Drop:
    """End the successor of preparation ``number`` or of an earlier one."""

    number: int


@dataclass(frozen=True, slots=True)
class End:
    """Save, stop every process within ``grace_s``, and end the container."""

    grace_s: float


@dataclass(frozen=True, slots=True)
class GetStatus:
    """Answer with the status, and do nothing else."""


Request = (
    Spawn
    | UseZygote
    | Prepare
    | Adopt
    | Drop
    | SendSigterm
    | WithdrawSigterm
    | Sweep
    | End
    | GetStatus
)


@dataclass(frozen=True, slots=True)
class TrainingProcess:
    """The newest training process. Times are seconds of the machine's monotonic clock."""

    generation: int
    pid: int
    start_time: int
    spawned_at_s: float
    running: bool = True
    exit_code: int | None = None
    ended_at_s: float | None = None
    error: str | None = None
    """Why it could not be executed."""
    log_offset_bytes: int = 0
    """Offset in the log file at which its own lines begin."""
    rung: bool = False
    """True if a request sent it SIGTERM, so that its end is expected."""
    how: StartKind = StartKind.COLD
    fallback: str | None = None
    """Why it is slower than a start that was allowed."""


@dataclass(frozen=True, slots=True)
class ZygoteProcess:
    """The zygote of the container; ``pid`` 0: there is none."""

    state: StandbyState
    reason: str = ""
    """Why it is off, or why there is none."""
    pid: int = 0
    start_time: int = 0
    started_at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SuccessorProcess:
    """The successor of the newest preparation."""

    number: int
    devices: tuple[str, ...]
    pid: int
    """0 while it waits for the zygote to fork it."""
    start_time: int
    started_at_s: float
    stage: PrepareStage = PrepareStage.IMPORTING
    reason: str = ""
    """Why it failed, or what it waits before."""
    ready_at_s: float | None = None
    """When it could first be adopted with most of its work done."""
    running: bool = True


@dataclass(frozen=True, slots=True)
class InitStatus:
    """The state of init."""

    pid: int
    start_time: int
    training: TrainingProcess | None = None
    rung: int = 0
    """Newest generation for which SIGTERM was sent."""
    withdrawn: int = 0
    """Newest generation up to which SIGTERM is withdrawn."""
    swept: int = 0
    """Newest generation whose sweep is complete: no process of earlier starts is alive."""
    swept_at_s: float | None = None
    ending: bool = False
    zygote: ZygoteProcess | None = None
    """None from an init of a release without zygotes."""
    prepared: SuccessorProcess | None = None
    prepare_number: int | None = None
    """Number of the newest preparation; None from an init that prepares nothing."""


@dataclass(frozen=True, slots=True)
class InitFile:
    """``init.json``: the process of init; valid only within the same boot of the machine."""

    pid: int
    start_time: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class ExitFile:
    """``exit.json``: init ended in order, with no other process left in its container."""

    exit_code: int
    reason: str
