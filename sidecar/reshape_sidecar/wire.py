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
from dataclasses import dataclass
from enum import StrEnum

WIRE_VERSION = 1
WIRE_LEVEL = 7
"""Level of the newest fields. A peer of an earlier release refuses fields that it does not know,
so each side sends the fields of a level only to a peer that has named that level."""
LEVEL_ABILITIES = 2
"""Level of what a program can do, of its exceptions and of the judgement of its target."""
LEVEL_STARTS = 3
"""Level of how a process was started, and of what is prepared for the next start."""
LEVEL_EVALUATIONS = 4
"""Level of the evaluations of every job that evaluates."""
LEVEL_REACHED = 5
"""Level of the last step of an earlier attempt, and of refusals by Reshape itself."""
LEVEL_ENDS = 6
"""Level of how a container ends: given up by the controller, or told from outside."""
LEVEL_TIMES = 6
"""Level of the silence of a start, and of the times of evaluations and ends of epochs."""
LEVEL_DEVICES = 6
"""Level of the number of devices that a program uses."""
LEVEL_PINS = 6
"""Level of SideCars that pin the coordinator's key: beyond loopback they speak TLS."""
LEVEL_PROOFS = 7
"""Level of what the first step after a restart shows."""
LEVEL_HEADER = "Reshape-Wire-Level"
"""Header of each report and of each answer: the level that its sender knows. A coordinator of level
1, and a SideCar of level 1 or 2, sends none."""

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


class StartKind(StrEnum):
    """How a training process was started; members stand from the slowest to the fastest."""

    COLD = "cold"
    """A new interpreter: imports, builds and traces."""
    ZYGOTE = "zygote"
    """A fork of a process that has imported the framework and touched no device."""
    SUCCESSOR = "successor"
    """A process that was prepared for these devices while its predecessor trained."""


class Shortcut(StrEnum):
    """Whether a start may be faster than a cold one."""

    AUTO = "auto"
    """Wherever this version does it."""
    OFF = "off"


class Processes(StrEnum):
    """How many training processes the SideCar starts in a container."""

    ONE = "one"
    PER_GPU = "per-gpu"
    """One for each GPU, with the variables by which PyTorch finds the others."""


class StandbyState(StrEnum):
    """State of the process that forks training processes (the zygote)."""

    NONE = "none"
    """There is none, and none is coming up."""
    STARTING = "starting"
    READY = "ready"
    OFF = "off"
    """There will be none in this container; the reason says why."""


class PrepareStage(StrEnum):
    """How far a successor has come; members stand in this order, except ``FAILED``."""

    IMPORTING = "importing"
    SCRIPT = "script"
    DEVICE_BARRIER = "device-barrier"
    """It waits before it lists devices."""
    EFFECT_BARRIER = "effect-barrier"
    """It waits before its first effect outside itself, such as a file that it writes."""
    READY = "ready"
    """It waits before its first step."""
    FAILED = "failed"


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
    prepare: tuple[str, ...] | None = None
    """Devices for which a successor shall be prepared; None: for none. It may change within a
    generation. Level 3."""
    failed: bool = False
    """True if the container ends because the job has failed for good: the cluster shall see it.
    The controller's effects set it; it is in no log. Level 6."""


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
    says_saved: bool = False
    """The program left with EXIT_SAVED, and said by itself which step it had saved, so it lost
    none. Level 5."""


class ProofResult(StrEnum):
    """What the comparison of a first step says; ``Proof`` holds it as text."""

    AGREES = "agrees"
    DIFFERS = "differs"
    NONE = "none"
    """There was nothing to compare with; the figures say why."""


FIRST_STEP = "its first step at "
"""Begins the reason that a process adds to its verdict if its first step differs."""
PROOF_DIFFERS = "ProofDiffers"
"""Name of the exception with which a process ends before its second step, if its record says so."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What the first step of a process shows beside the same step of the process before.

    The process before made that step after its last save, and left in it: of the step only figures
    are kept. Level 7.
    """

    result: str
    """Value of a ``ProofResult``, as text: a peer may know other words."""
    step: int
    """Step of the checkpoint, after which both made one step."""
    before: int
    """Number of GPUs of the process before; 0: not known."""
    now: int
    """Number of GPUs of this process."""
    figures: str
    """The figures in words: ``loss 0.5013, 4e-8`` if it agrees, what differs if it differs, and why
    there is no proof."""
    hint: str = ""
    """Where to look for what differs."""


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


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Value of a metric in an evaluation after a number of steps."""

    metric: str
    step: int
    value: float


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
    evaluations: tuple[Evaluation, ...] = ()
    """The newest of this process, oldest first. Level 4."""
    evaluation_s: float | None = None
    """Mean seconds of the newest evaluations. Level 6."""
    epoch_end_s: float | None = None
    """Mean seconds from an epoch's last step to the next epoch, its evaluation included. Level 6.
    """
    apart_s_per_step: float | None = None
    """What evaluations and ends of epochs take for each step, beside ``seconds_per_step``, which is
    then a median of the last minute; None: a mean of the last steps alone. Level 6."""
    proof: Proof | None = None
    """Of this process's first step; None: it has made none, or went on from no checkpoint. Level 7.
    """


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
    how: StartKind | None = None
    """How the process was started; None from a SideCar that does not say. Level 3."""
    fallback: str | None = None
    """Why the start was slower than the settings allow; None if it was not. Level 3."""
    position_s: float | None = None
    """To reach the position in the data; part of no other phase. Level 3."""
    prepare_s: float | None = None
    """To prepare the successor, while its predecessor trained. Level 3."""


@dataclass(frozen=True, slots=True)
class Standby:
    """The zygote of an attempt."""

    state: StandbyState
    reason: str = ""
    """Why it is off, or why there is none."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The successor of an attempt."""

    devices: tuple[str, ...]
    stage: PrepareStage
    reason: str = ""
    """Why it failed, or what it waits before."""
    ready_after_s: float | None = None
    """Seconds of preparation until it could be used as far as it can come; None before that."""


@dataclass(frozen=True, slots=True)
class GpuUse:
    """One reading of one GPU by NVML; absent without NVML."""

    uuid: str
    memory_used_bytes: int
    memory_total_bytes: int
    utilization_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Reached:
    """The last step that a training process of an attempt has written down."""

    attempt: int
    step: int


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
    standby: Standby | None = None
    """None from a SideCar without a zygote. Level 3."""
    can_prepare: bool = False
    """True if ``Desired.prepare`` has an effect in this attempt. Level 3."""
    prepare: tuple[str, ...] | None = None
    """Devices to prepare for in its newest desired state. Level 3."""
    prepared: Prepared | None = None
    """None while there is no successor. Level 3."""
    reached: Reached | None = None
    """How far the newest process came that ended without a report of it; None if it left no word
    where this SideCar reads. Level 5."""
    refused: bool = False
    """True if Reshape itself refused to train the program that ended with ``exception``. Level 5.
    """
    ending: bool = False
    """True if init ends the container in order because of a signal from outside. Level 6."""
    silent_s: float | None = None
    """Seconds for which the start under way, or a program that reports no steps, has been silent
    (``agent.silence``), in steps, so that work is no change of the report; None: it does not
    matter. Level 6."""
    devices_used: int | None = None
    """How many of ``devices`` its training process uses; None: not known. Level 6."""


def signal_of(exit_code: int | None) -> str | None:
    """Return the name of the signal that ended a process of this exit code (128 + N, as shells say
    it); None if no signal did."""
    number = (exit_code or 0) - SIGNAL_BASE
    return signal.Signals(number).name if number in set(signal.Signals) else None
