"""What things may be: the states, stages and kinds that ``core.model`` is made of. Values only.

Never: behaviour beyond reading. A new state goes through the checklist in CONTRIBUTING.
"""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """The paper's states (Table III), and those that a system in use needs beside them."""

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
        """Whether nothing will happen to the job any more."""
        return self in _TERMINAL


_TERMINAL = (JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.REJECTED)


class GpuState(StrEnum):
    """The paper's states (Table II), and what a GPU is while nobody may count on it."""

    IDLE = "idle"
    RESERVED = "reserved"
    """Empty, and kept for its owner, which does not train on it yet."""
    IN_USE = "in use"
    RELEASING = "releasing"
    """Its owner said that it is free; nobody has checked yet (rule R4)."""
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


class Mechanism(StrEnum):
    """How a running job's GPUs change. The second axis beside the policy."""

    SIDECAR = "sidecar"
    """Inside the living container."""
    TERMINATE = "terminate"
    """Save, end the container, launch another."""
    NONE = "none"
    """Never."""


class Stage(StrEnum):
    """Where a job's container is; finer than JobState, and what the machine switches on."""

    NONE = "none"
    """No container."""
    LAUNCHING = "launching"
    """Launch asked for; its SideCar has not said ``initialized``."""
    READY = "ready"
    """Initialised, no training process: waits for GPUs."""
    STARTING = "starting"
    """Told to train on its GPUs; no first step yet."""
    TRAINING = "training"
    SAVING = "saving"
    """Asked to save and stop; the one outcome is not known yet."""
    STOPPING = "stopping"
    """Outcome ``stopping``; its process tree is not gone yet."""
    ENDING = "ending"
    """Told to exit, or being removed; the container is not gone yet."""

    @property
    def has_gpus(self) -> bool:
        """Whether the job has GPUs, to train on or still."""
        return self in (Stage.STARTING, Stage.TRAINING, Stage.SAVING, Stage.STOPPING)


class ChangeKind(StrEnum):
    """Why a running job is asked to save and stop."""

    SHRINK = "shrink"
    GROW = "grow"
    RELAUNCH = "relaunch"
    """End the container and launch another (mechanism ``terminate``, or another host)."""
    LEAVE = "leave"
    """End the container; ``Job.state`` or the queue says what comes then (halt, drain)."""


class DeadlineKind(StrEnum):
    """The named waits of a job: figures in ``core.limits``, consequences in ``core.deadlines``."""

    EARLY_INIT = "early_init"
    SAVE_ANSWER = "save_answer"
    STOP = "stop"
    FIRST_STEP = "first_step"
    INITIALIZED_HOLD = "initialized_hold"
    END = "end"
    REMOVE = "remove"
    RETRY = "retry"
