"""The values that the GPU Coordinator and a SideCar exchange; standard library only.

Does: names what a SideCar is asked to be (``Desired``) and what it says it is (``Observed``).
Never: opens a socket, keeps state, or decides. Both sides repeat these values freely: they are
states, not orders, so a duplicate, a loss and a restart are one case (rule R3).

The SideCar dials out: ``POST /v1/sidecar/JOB/ATTEMPT`` with an ``Observed`` as body and the
attempt's token as bearer; the answer is the newest ``Desired``, held back (long poll) while it is
the one that the SideCar already knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

WIRE_VERSION = 1

EXIT_SAVED = 75
"""Exit code of a training process that saved because it was asked to, and can go on later."""


class Mode(StrEnum):
    """What the SideCar shall do with the training process."""

    RUN = "run"
    """One training process on exactly ``devices``; another set means save, stop, start again."""
    SAVE_AND_STOP = "save-and-stop"
    """No training process; the container stays (also: a newcomer that waits for GPUs)."""
    EXIT = "exit"
    """Save, stop, and end the container with its init."""


class OnSaveTimeout(StrEnum):
    """What the SideCar does when training has not saved by the deadline."""

    REFUSE = "refuse"
    KILL = "kill"


class Phase(StrEnum):
    """What the SideCar sees of its training process."""

    INITIALIZING = "initializing"
    INITIALIZED = "initialized"
    """The self-check passed; there is no training process (never started, or stopped on request)"""
    STARTING = "starting"
    RUNNING = "running"
    SAVING = "saving"
    STOPPING = "stopping"
    FINISHED = "finished"
    """The training process ended by itself with exit code 0 (or the record's length is reached)."""
    CRASHED = "crashed"
    """The training process ended by itself with another code; ``error`` and ``exit_code`` say."""
    UNFIT = "unfit"
    """The self-check failed; ``error`` names the cause and the remedy."""


class OutcomeKind(StrEnum):
    """The one answer to a request to save and stop, per generation (rule R2)."""

    STOPPING = "stopping"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Meeting:
    """The step after which all workers of a job save together; of the processes of one start."""

    generation: int
    step: int


@dataclass(frozen=True, slots=True)
class Desired:
    """What the coordinator wants an attempt to be.

    ``epoch`` and ``generation`` fence: the SideCar persists the highest pair and refuses lower.
    ``devices`` are GPU UUIDs in the order of their ledger. ``save_deadline_s`` and
    ``kill_after_s`` count from the moment at which the SideCar learns of the generation.
    """

    epoch: int
    job: str
    attempt: int
    generation: int
    mode: Mode
    devices: tuple[str, ...] = ()
    on_save_timeout: OnSaveTimeout = OnSaveTimeout.REFUSE
    save_deadline_s: float = 120.0
    kill_after_s: float = 30.0
    version: int = WIRE_VERSION
    peers: tuple[str, ...] = ()
    """Addresses of all workers, by number, for the start of this generation (several workers)."""
    meeting: Meeting | None = None
    """To the first worker: all others know of the meeting that it asked for. To another: it is."""
    fresh: bool = False
    """What runs ends and starts anew, even on the same devices: its peers do the same."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request to save and stop ended; persisted by the SideCar before it acts or reports."""

    generation: int
    kind: OutcomeKind
    saved_step: int | None = None
    """Step of the verified checkpoint; None when nothing could be verified."""
    lost_steps: int = 0
    """Steps executed that no checkpoint holds."""
    complete: bool = False
    """The checkpoint says that the last step or the target was reached (rule R7)."""


# What a report consists of has no slots: a replay makes millions of changed copies of it, and a
# dictionary is copied faster than some twenty fields are set.


@dataclass(frozen=True)
class Progress:
    """Where training is. Steps count global optimizer steps since the job's very first one."""

    step: int = 0
    epoch: int = 0
    total_steps: int | None = None
    steps_per_epoch: int | None = None
    loss: float | None = None
    accuracy: float | None = None
    seconds_per_step: float | None = None
    checkpoint_step: int | None = None
    late_steps: int = 0
    trajectory: str | None = None
    """``exact`` or ``steps-only``, as the hook judges it; None: not said (level 0)."""
    trajectory_reason: str | None = None


@dataclass(frozen=True)
class PhaseTimes:
    """Seconds of the newest start or reshape of this attempt, by phase; None: not reached yet."""

    save_s: float | None = None
    stop_s: float | None = None
    sidecar_s: float | None = None
    """Everything that the SideCar added by itself between the phases."""
    import_s: float | None = None
    build_s: float | None = None
    restore_s: float | None = None
    first_step_s: float | None = None


@dataclass(frozen=True, slots=True)
class GpuUse:
    """One reading of one GPU by NVML; absent where there is no NVML (nothing is invented)."""

    uuid: str
    memory_used_bytes: int
    memory_total_bytes: int
    utilization_ratio: float | None = None


@dataclass(frozen=True)
class Observed:
    """What an attempt is, as its SideCar sees it. Sent at each change and as a heartbeat.

    ``generation`` is the newest one that the SideCar has taken up. ``sequence`` only grows,
    also over restarts of the agent: a report with a lower one is late and is ignored.
    ``stopped_generation`` is the newest generation whose stop is complete: the whole process
    tree of earlier ones is gone.
    """

    job: str
    attempt: int
    generation: int
    sequence: int
    phase: Phase
    epoch: int = 0
    devices: tuple[str, ...] = ()
    pid: int | None = None
    start_time: int | None = None
    """Start time of ``pid`` in clock ticks since boot (field 22 of /proc/PID/stat)."""
    progress: Progress = Progress()
    outcome: Outcome | None = None
    stopped_generation: int = 0
    exit_code: int | None = None
    error: str | None = None
    times: PhaseTimes = PhaseTimes()
    gpu_use: tuple[GpuUse, ...] = ()
    process_restarts: int = 0
    version: int = WIRE_VERSION
    worker: int = 0
    """Which worker of its job says this; the rest is said where there are several."""
    address: str | None = None
    """Where its next training process can be reached."""
    peers: tuple[str, ...] = ()
    """The addresses that its newest desired state has."""
    meeting: Meeting | None = None
    """The meeting that it was told of."""
    asks: Meeting | None = None
    """The meeting that its training process asks for."""
