"""The states, stages and kinds of jobs, GPUs, changes and deadlines, as enums.

A new state goes through the checklist in CONTRIBUTING.
"""

from __future__ import annotations

from enum import StrEnum

from reshape_sidecar.wire import Trajectory


class JobState(StrEnum):
    """States of a job: the paper's (Table III), and further states that a system in use needs."""

    SUBMITTED = "submitted"
    INITIALIZED = "initialized"
    RUNNING = "running"
    ADJUSTING = "adjusting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REJECTED = "rejected"
    HALTED = "halted"

    @property
    def terminal(self) -> bool:
        """Whether the job is over."""
        return self in _TERMINAL


_TERMINAL = (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.REJECTED)


class GpuState(StrEnum):
    """States of a GPU: the paper's (Table II), and three in which no plan may use the GPU."""

    IDLE = "idle"
    RESERVED = "reserved"
    """Empty, and reserved for its owner, which does not train on it yet."""
    IN_USE = "in use"
    RELEASING = "releasing"
    """Its owner reported that it left the GPU; the release is not verified yet (rule R4)."""
    QUARANTINED = "quarantined"
    LOST = "lost"


class LengthUnit(StrEnum):
    EPOCHS = "epochs"
    STEPS = "steps"
    TARGET_ACCURACY = "target_accuracy"


class Framework(StrEnum):
    KERAS = "keras"
    TENSORFLOW = "tensorflow"
    PYTORCH = "pytorch"
    OTHER = "other"


class ReshapeIf(StrEnum):
    """The least verdict on a job's trajectory at which a plan may reshape the job."""

    EXACT = "exact"
    STEPS_ONLY = "steps-only"
    ANY = "any"

    def allows(self, verdict: Trajectory) -> bool:
        """Return whether a job with ``verdict`` may be reshaped."""
        return self is ReshapeIf.ANY or verdict.meets(Trajectory(self.value))


class ProofUse(StrEnum):
    """Whether a restart is proved: the first step after it is compared with the one that the
    process before made after its last save (docs/training.md)."""

    AUTO = "auto"
    """Wherever its front end can."""
    OFF = "off"


class OnDifference(StrEnum):
    """What becomes of a process whose first step differs from that of the process before."""

    REPORT = "report"
    """It trains on; the verdict on its trajectory is unknown from then on."""
    STOP = "stop"
    """It ends before its second step."""


class Spans(StrEnum):
    """When the workers of a job may be on several hosts."""

    NEVER = "never"
    IF_NEEDED = "if-needed"
    """While no single host has room for all of them."""
    ANY = "any"


class Placement(StrEnum):
    """How the workers of a job that may span are preferred to be placed."""

    PACK = "pack"
    """On as few hosts as possible."""
    SPREAD = "spread"
    """On as many hosts as possible."""


class Batch(StrEnum):
    """How the samples of a step are given to the GPUs of a job."""

    DIVIDED = "divided"
    """Each GPU has its part of them."""
    MICRO = "micro"
    """In micro-batches, one for each GPU of the largest size; fewer GPUs train several each."""


class Mechanism(StrEnum):
    """How a running job gets another number of GPUs. The mechanism and the policy are chosen
    independently."""

    SIDECAR = "sidecar"
    """The container stays; training saves and starts again in it."""
    TERMINATE = "terminate"
    """Training saves, the container ends, another container is launched."""
    NONE = "none"
    """A running job's GPUs do not change."""


class Stage(StrEnum):
    """Stage of a job's container: finer than JobState, and the state that the engine acts on."""

    NONE = "none"
    """No container."""
    LAUNCHING = "launching"
    """The launch is commanded; its SideCar has not reported ``initialized``."""
    READY = "ready"
    """Initialised without a training process; it waits for GPUs."""
    STARTING = "starting"
    """Its SideCar is to train on its GPUs; no first step yet."""
    TRAINING = "training"
    SAVING = "saving"
    """Its SideCar is asked to save and stop; the outcome is not known yet."""
    STOPPING = "stopping"
    """The outcome is ``stopping``; its process tree is not gone yet."""
    ENDING = "ending"
    """Its SideCar is to exit, or the launcher to remove it; the container is not gone yet."""

    @property
    def has_gpus(self) -> bool:
        """Whether the job has GPUs: it trains on them, starts, or has not left them yet."""
        return self in _WITH_GPUS


_WITH_GPUS = (Stage.STARTING, Stage.TRAINING, Stage.SAVING, Stage.STOPPING)


class OnMaxRun(StrEnum):
    """What becomes of a job that has had GPUs for its ``max_run_s``; it is saved first."""

    PAUSE = "pause"
    FAIL = "fail"


class ChangeKind(StrEnum):
    """Purpose of a request to save and stop."""

    SHRINK = "shrink"
    GROW = "grow"
    RELAUNCH = "relaunch"
    """End the container and launch another (mechanism ``terminate``, or another host)."""
    LEAVE = "leave"
    """End the container (halt, drain); ``Job.after_end`` is the state that follows."""


class PreemptionReason(StrEnum):
    """Why a queued job may preempt running jobs."""

    PRIORITY = "priority"
    """Its priority is higher than theirs."""
    OVERDUE = "overdue"
    """It has waited too long for its length."""
    RATIO = "ratio"
    """Its wait is many times the time that it needs."""


class DeadlineKind(StrEnum):
    """The named waits of a job: figures in ``core.limits``, consequences in ``core.deadlines``."""

    EARLY_INIT = "early_init"
    SAVE_ANSWER = "save_answer"
    STOP = "stop"
    FIRST_STEP = "first_step"
    INITIALIZED_HOLD = "initialized_hold"
    END = "end"
    REMOVE = "remove"
    UNSAVED = "unsaved_wait"
    PREPARE = "prepare"
    IMPORTS = "imports"
    RETRY = "retry"
