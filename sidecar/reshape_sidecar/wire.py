"""The values that the GPU Coordinator and a SideCar exchange; standard library only.

``Desired`` is the state that the coordinator wants, ``Observed`` the one that the SideCar reports.
Both sides may repeat them: they are states and not commands, so a duplicate, a loss and a restart
are one case (rule R3).

The SideCar dials out: ``POST /v1/sidecar/JOB/ATTEMPT`` with an ``Observed`` as body and the
attempt's token as bearer; the answer is the newest ``Desired``, held back (long poll) while it is
the one that the SideCar already knows.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from enum import StrEnum

WIRE_VERSION = 1
WIRE_LEVEL = 2
"""Level of the fields of a report. A peer of an earlier release refuses fields that it does not
know, so the SideCar sends those of a level once an answer has named that level."""
LEVEL_HEADER = "Reshape-Wire-Level"
"""Header of the coordinator's answers: the level that it knows. Level 1 has no header."""

SIGNAL_BASE = 128
"""A process ended by signal N has exit code 128 + N, as shells say it."""
EXIT_SAVED = 75
"""Exit code of a training process that saved on request and can go on later."""


class Mode(StrEnum):
    """Desired state of the training process."""

    RUN = "run"
    """One training process on exactly ``devices``; another set means save, stop, start again."""
    SAVE_AND_STOP = "save-and-stop"
    """No training process; the container stays (also: a newcomer that waits for GPUs)."""
    EXIT = "exit"
    """Save, stop, and end the container with its init."""


class OnSaveTimeout(StrEnum):
    """Action of the SideCar if training has not saved by the deadline."""

    REFUSE = "refuse"
    KILL = "kill"


class Phase(StrEnum):
    """Observed phase of the training process."""

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


class Saves(StrEnum):
    """When a training process saves its state on request."""

    BOUNDARY = "boundary"
    """At the next step boundary: a `fit` under the hook, or a session."""
    SIGTERM = "sigterm"
    """It has a SIGTERM handler of its own, which may save."""
    NEVER = "never"
    """It does not save, or is not known to."""


class OutcomeKind(StrEnum):
    """The one answer to a request to save and stop, per generation (rule R2)."""

    STOPPING = "stopping"
    REFUSED = "refused"


class Trajectory(StrEnum):
    """Verdict on a reshape's effect on training; members stand from the best to the worst."""

    EXACT = "exact"
    """The same numbers but for the rounding of sums over another number of devices."""
    STEPS_ONLY = "steps-only"
    """No step is lost or repeated, but the numbers differ."""
    UNKNOWN = "unknown"
    """The script has state that no checkpoint holds, or there is no verdict yet."""

    @classmethod
    def of(cls, word: str | None) -> Trajectory:
        """Return the verdict in a report; ``unknown`` without a word or for a word not known."""
        return _TRAJECTORIES.get(word or "", cls.UNKNOWN)

    def meets(self, least: Trajectory) -> bool:
        """Return whether this verdict is ``least`` or better."""
        return _RANKS[self] <= _RANKS[least]


_TRAJECTORIES = {one.value: one for one in Trajectory}
_RANKS = {one: rank for rank, one in enumerate(Trajectory)}


@dataclass(frozen=True, slots=True)
class Meeting:
    """The save barrier of a job's workers: the step of one start after which all save."""

    generation: int
    step: int


@dataclass(frozen=True, slots=True)
class Desired:
    """The state that the coordinator wants of an attempt.

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
    """The save barrier. To the first worker, which requested it: all others know of it."""
    fresh: bool = False
    """True if training shall start again even on the same devices, as its peers do."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a request to save and stop, persisted before the SideCar acts or reports."""

    generation: int
    kind: OutcomeKind
    saved_step: int | None = None
    """Step of the verified checkpoint; None if there is none."""
    lost_steps: int = 0
    """Executed steps that no checkpoint holds."""
    complete: bool = False
    """The checkpoint says that the last step or the target was reached (rule R7)."""


# The parts of a report have no slots: a replay makes millions of changed copies of them, and a copy
# of a dictionary is faster than setting some twenty fields.


@dataclass(frozen=True, slots=True)
class TargetProgress:
    """Judgement of a job's target accuracy; a SideCar reports it only if its job has a target."""

    metric: str = ""
    """Metric that is judged; empty before the first evaluation."""
    in_a_row: int = 0
    """Newest evaluations, one after the other, that reach the target."""
    reached: bool = False
    """True if training ended, or ends, because the target was reached."""
    epoch: int = 0
    """Epochs done at the newest evaluation."""
    evaluations: tuple[tuple[int, float], ...] = ()
    """Step and value of the newest evaluations, oldest first."""
    note: str = ""
    """Which metric stands in, or why none is judged, with the remedy."""


@dataclass(frozen=True)
class Progress:
    """Progress of training. Steps are global optimizer steps since the job's very first one."""

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
    """Value of a ``Trajectory``, the hook's verdict; None without a verdict (level 0).

    It is text so that a peer that does not know the word can still read the report.
    """
    trajectory_reason: str | None = None
    target: TargetProgress | None = None
    """None without a target accuracy, and from a SideCar of a version without it."""


@dataclass(frozen=True)
class PhaseTimes:
    """Seconds of the newest start or reshape of this attempt, by phase; None: not reached yet."""

    save_s: float | None = None
    stop_s: float | None = None
    sidecar_s: float | None = None
    """The SideCar's own time between the phases."""
    import_s: float | None = None
    build_s: float | None = None
    restore_s: float | None = None
    first_step_s: float | None = None


@dataclass(frozen=True, slots=True)
class GpuUse:
    """One reading of one GPU by NVML; absent without NVML."""

    uuid: str
    memory_used_bytes: int
    memory_total_bytes: int
    utilization_ratio: float | None = None


@dataclass(frozen=True)
class Observed:
    """The state of an attempt that its SideCar observes, sent at each change and as a heartbeat.

    ``generation`` is the newest one that the SideCar has accepted. ``sequence`` only grows, also
    over restarts of the agent: a report with a lower one is late and is ignored.
    ``stopped_generation`` is the newest generation whose stop is complete: the whole process tree
    of earlier ones is gone.
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
    """Number of the worker; the fields below are set if a job has several."""
    address: str | None = None
    """Address at which the peers reach its next training process."""
    peers: tuple[str, ...] = ()
    """Addresses in its newest desired state."""
    meeting: Meeting | None = None
    """Save barrier in its newest desired state."""
    asks: Meeting | None = None
    """Save barrier that its training process requests."""
    saves: Saves | None = None
    """When the process that trains saves; None before its first step, and at level 1. Level 2."""
    exception: str | None = None
    """Type of the Python exception that ended the process of ``exit_code``. Level 2."""
    exception_message: str | None = None
    """Its message, shortened. Level 2."""


def at_level(observed: Observed, level: int) -> Observed:
    """Return the report without the fields that a peer of ``level`` does not know."""
    if level >= WIRE_LEVEL:
        return observed
    progress = replace(observed.progress, target=None)
    return replace(observed, progress=progress, saves=None, exception=None, exception_message=None)


def signal_of(exit_code: int | None) -> str | None:
    """Return the name of the signal that ended a process of this exit code (128 + N, as shells say
    it); None if no signal did."""
    number = (exit_code or 0) - SIGNAL_BASE
    return signal.Signals(number).name if number in set(signal.Signals) else None
