"""The nouns: jobs, GPUs, hosts. Values only; no behaviour beyond reading.

Never: a dict, a clock, a mutable field. State lives in ``core.state``; these are its values, and
``core.states`` has what they may be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

from reshape_controller.core.knowledge import Curve, Measured, Trend
from reshape_controller.core.states import (
    ChangeKind,
    DeadlineKind,
    Framework,
    GpuState,
    JobState,
    LengthUnit,
    Mechanism,
    Stage,
)
from reshape_sidecar.wire import Mode, Observed, OnSaveTimeout, Progress

__all__ = [
    "AccuracySeen",
    "Change",
    "ChangeKind",
    "Deadline",
    "DeadlineKind",
    "Donation",
    "FieldError",
    "Framework",
    "Gpu",
    "GpuId",
    "GpuState",
    "HandOver",
    "Host",
    "HostId",
    "Job",
    "JobId",
    "JobSpec",
    "JobState",
    "Length",
    "LengthUnit",
    "Mechanism",
    "Stage",
]

_SETTLED = (Stage.NONE, Stage.READY, Stage.TRAINING)

JobId = NewType("JobId", str)
GpuId = NewType("GpuId", str)
HostId = NewType("HostId", str)


@dataclass(frozen=True, slots=True)
class Length:
    """How long a job trains: a number of epochs, of steps, or until an accuracy is reached."""

    unit: LengthUnit
    value: float


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A validated job record. Every field but the first three has a default (docs/jobs.md)."""

    name: str
    command: tuple[str, ...]
    optional_gpus: tuple[int, ...]
    """Optional numbers of GPUs (paper, Table III), ascending, without repetition."""
    length: Length | None = None
    image: str | None = None
    job_type: str | None = None
    framework: Framework = Framework.KERAS
    global_batch: int | None = None
    workers: int = 1
    code: str | None = None
    dataset: str | None = None
    checkpoints: str | None = None
    cpus: float | None = None
    memory_bytes: int | None = None
    env: tuple[tuple[str, str], ...] = ()
    retries: int = 3
    user: str = ""
    priority: int = 0
    max_wait_s: float | None = None
    on_save_timeout: OnSaveTimeout = OnSaveTimeout.REFUSE
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing that is wrong with a record: where, what, and what to do about it."""

    path: str
    message: str
    hint: str = ""

    @property
    def told(self) -> str:
        """Where and what; a record as a whole has no path."""
        return f"{self.path}: {self.message}" if self.path else self.message


@dataclass(frozen=True, slots=True)
class Change:
    """A request to a running job that is under way, from the append that asked for it."""

    kind: ChangeKind
    size_before: int
    gpus_after: tuple[GpuId, ...]
    for_job: JobId | None = None
    """The newcomer that gets what is taken; None for a job's own sake."""
    asked_at_s: float = 0.0
    withdrawn: bool = False


@dataclass(frozen=True, slots=True)
class Donation:
    """A running job's part in a hand-over before it is asked to shrink (R1: it is frozen)."""

    to: JobId
    keeps: tuple[GpuId, ...]


@dataclass(frozen=True, slots=True)
class HandOver:
    """The GPUs that a job is to run on next, and from whom (docs/architecture.md, the hand-over).

    Granted as a whole once the job is READY and every GPU is reserved for it.
    """

    gpus: tuple[GpuId, ...]
    donors: tuple[JobId, ...] = ()
    shrink_asked: bool = False
    """Past the point of no return (R2)."""
    size_before: int = 0
    """GPUs that a job had which is launched again for this; 0: it had none."""


@dataclass(frozen=True, slots=True)
class Deadline:
    kind: DeadlineKind
    at_s: float
    length_s: float


@dataclass(frozen=True, slots=True)
class AccuracySeen:
    """Validation accuracy that a job reported at a step."""

    step: int
    accuracy: float


@dataclass(frozen=True)
class Job:
    """An accepted job. ``gpus`` are those it trains on or is told to train on (GPU state in use);
    ``place`` is its place in the queue, kept for life."""

    id: JobId
    spec: JobSpec
    place: int
    submitted_at_s: float
    state: JobState = JobState.SUBMITTED
    stage: Stage = Stage.NONE
    reason: str = ""
    """Why it is where it is, for people; always set while it waits."""
    host: HostId | None = None
    attempt: int = 0
    generation: int = 0
    mode: Mode = Mode.SAVE_AND_STOP
    devices: tuple[GpuId, ...] = ()
    """What the newest generation tells the SideCar to train on; ``gpus`` follow its answer."""
    force: bool = False
    """The newest generation kills when the save deadline passes, whatever the record says."""
    gpus: tuple[GpuId, ...] = ()
    hand_over: HandOver | None = None
    donation: Donation | None = None
    change: Change | None = None
    deadline: Deadline | None = None
    watched: bool = True
    """A controller was there all the time since its launch or the request to change."""
    after_end: JobState = JobState.SUBMITTED
    """What it is once its container has ended: submitted (queued again) or halted."""
    halt_wanted: bool = False
    """A halt that came while it was a party to a hand-over; done as soon as it trains again."""
    answered: bool = True
    """False from a controller restart until its SideCar's first word or ``SideCarFellSilent``."""
    reachable: bool = True
    sequence: int = -1
    observed: Observed | None = None
    progress: Progress = Progress()
    struck: tuple[int, ...] = ()
    """Sizes at which it failed to start twice (R5)."""
    start_failures: tuple[int, ...] = ()
    """The size of each failed start since the last good one."""
    failures: int = 0
    failed_attempt: int = 0
    """The attempt that failed and has not trained since; what else of it ends is the same failure.
    0: none."""
    initialized_at_s: float | None = None
    started_at_s: float | None = None
    """First grant of GPUs."""
    finished_at_s: float | None = None
    refused_until_s: float = 0.0
    reshaped_at_s: float | None = None
    reshape_ups: int = 0
    reshape_downs: int = 0
    steps_lost: int = 0
    process_restarts: int = 0
    container_restarts: int = 0
    longest_save_s: float = 0.0
    only_host: HostId | None = None
    """The one host from which its files can be reached; None: any."""
    only_host_because: str = ""
    unfit_on: tuple[HostId, ...] = ()
    """Hosts on which it could not start: it comes there only if no other can hold it."""
    pinned: int | None = None
    """The only size that it may get from now on, on somebody's wish."""
    progress_at_s: float | None = None
    """When ``progress.step`` was last seen to move in the process that trains now."""
    measured: tuple[Measured, ...] = ()
    """Seconds per step at the sizes that it has trained on."""
    trend: Trend | None = None
    """The newest report that told something new, in the process that trains now."""
    straggling: bool = False
    """Its steps take far longer than its profile says."""
    reshape_cost_s: float | None = None
    """Seconds of its last reshape, from the request until it trained again; None: not known."""
    accuracies: tuple[AccuracySeen, ...] = ()
    """Points of its accuracy curve, where its length is a target accuracy."""
    curve: Curve | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """Optional numbers of GPUs that are not struck; the pinned one alone, if any."""
        if not self.struck and self.pinned is None:
            return self.spec.optional_gpus
        return tuple(
            size
            for size in self.spec.optional_gpus
            if size not in self.struck and self.pinned in (None, size)
        )

    @property
    def frozen(self) -> bool:
        """Whether no plan may name it (R1): a party to a hand-over, or not settled."""
        return (
            self.hand_over is not None
            or self.donation is not None
            or self.change is not None
            or self.stage not in _SETTLED
            or not self.answered
        )


@dataclass(frozen=True)
class Gpu:
    """One GPU. A single ``owner``: two owners cannot be written down."""

    id: GpuId
    host: HostId
    index: int
    state: GpuState = GpuState.IDLE
    owner: JobId | None = None
    promised_to: JobId | None = None
    """The newcomer that gets it next; while this is set it is nobody else's option (R1)."""
    attempt: int = 0
    """While releasing: the attempt whose processes must be gone, up to ``generation``."""
    generation: int = 0
    verify_by_s: float | None = None
    reason: str = ""
    unseen: str = ""
    """Why nobody gets it next: its host does not show it. Empty while it does."""


@dataclass(frozen=True, slots=True)
class Host:
    """A machine with GPUs of one type."""

    id: HostId
    gpu_type: str
    gpus: tuple[GpuId, ...]
    drained: bool = False
    present: bool = True
    """False while it is silent or gone."""
    drained_by: str = ""
    """Who drained it last, for it takes the same to take that back unasked; empty if not drained"""
