"""What init is asked and what it says, one JSON line each on its Unix socket.

Does: names the requests and the status. Never: carries an order that cannot be repeated: each
request names a generation, and doing it twice is doing it once. Init answers every request, and
every change, with its whole ``InitStatus`` to all who are connected: a state, not a reply.
"""

from __future__ import annotations

from dataclasses import dataclass

SOCKET_NAME = "init.sock"
INIT_FILE = "init.json"
TRAINING_FILE = "training.json"
EXIT_FILE = "exit.json"
LOCK_FILE = "init.lock"
KEEP_RUNNING_FILE = "keep-running"
TRAINING_LOG = "training.log"
AGENT_LOG = "agent.log"
INIT_LOG = "init.log"
NOT_EXECUTABLE = 127
"""Exit code of a training process that could not even be executed."""
SIGNAL_BASE = 128
"""A process ended by signal N has exit code 128 + N, as shells say it."""


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start the training process of ``generation``, unless it or a later one was started."""

    generation: int
    command: tuple[str, ...]
    folder: str
    env: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SendSigterm:
    """SIGTERM to the training process, once for the request ``generation``: save and leave."""

    generation: int


@dataclass(frozen=True, slots=True)
class WithdrawSigterm:
    """Take back the SIGTERM of earlier requests, if it was not served yet."""

    generation: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """End what is left of every earlier start: TERM, ``kill_after_s``, KILL, until none is left."""

    generation: int
    kill_after_s: float


@dataclass(frozen=True, slots=True)
class End:
    """Save, stop everything within ``grace_s``, and end the container."""

    grace_s: float


@dataclass(frozen=True, slots=True)
class GetStatus:
    """Nothing but the status."""


Request = Spawn | SendSigterm | WithdrawSigterm | Sweep | End | GetStatus


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
    """Where its own lines begin in the log file."""
    rung: bool = False
    """It was sent SIGTERM by a request, so its end was asked for."""


@dataclass(frozen=True, slots=True)
class InitStatus:
    """All that init knows."""

    pid: int
    start_time: int
    training: TrainingProcess | None = None
    rung: int = 0
    """Newest request generation for which SIGTERM was sent."""
    withdrawn: int = 0
    swept: int = 0
    """Newest generation whose sweep is complete: nothing of earlier starts is alive."""
    swept_at_s: float | None = None
    ending: bool = False


@dataclass(frozen=True, slots=True)
class InitFile:
    """``init.json``: which process init is. Valid only under the same boot of the machine."""

    pid: int
    start_time: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class ExitFile:
    """``exit.json``: init ended in order, and nothing of its container was left then."""

    exit_code: int
    reason: str
