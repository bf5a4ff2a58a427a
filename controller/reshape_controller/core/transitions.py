"""The legal changes of a job's stage and state and of a GPU's state, as tables.

docs/architecture.md shows them. ``Transaction`` makes every change of a job, and the GPU ledger
every change of a GPU's state; both raise InvalidTransition for a change that is not here.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.core.errors import ReshapeError
from reshape_controller.core.record import HistoryEntry
from reshape_controller.core.states import GpuState, JobState, Stage


class InvalidTransition(ReshapeError):
    """The engine is about to change a job or GPU in a way that no table has: a defect."""

    def __init__(
        self,
        subject: str,
        before: Stage | JobState | GpuState,
        after: Stage | JobState | GpuState,
        history: tuple[HistoryEntry, ...],
    ) -> None:
        """``subject``: the job or GPU; ``history``: the last entries of the job, or of the job that
        has the GPU, at most ten."""
        what = "stage" if isinstance(before, Stage) else "state"
        last = "; ".join(map(_line, history)) or "none since the start of the controller"
        super().__init__(
            f"{subject}: {what} {before.value} must not become {after.value}; last history: {last}"
        )
        self.subject, self.before, self.after, self.history = subject, before, after, history

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the arguments, not the text: replays run in processes of their own."""
        return InvalidTransition, (self.subject, self.before, self.after, self.history)


def _line(entry: HistoryEntry) -> str:
    where = f"attempt {entry.attempt}, generation {entry.generation}"
    return f"{entry.at_s:.3f} {entry.kind} ({where}): {entry.text}"


@dataclass(frozen=True, slots=True)
class JobPhase:
    """A pair of state and stage in which a job may be between two events."""

    state: JobState
    stage: Stage
    meaning: str


@dataclass(frozen=True, slots=True)
class StageChange:
    """A way out of the stages ``before``; ``code`` is the function that takes it."""

    before: tuple[Stage, ...]
    after: Stage
    event: str
    code: str


ANY = tuple(stage for stage in Stage if stage is not Stage.NONE)
"""Every stage with a container."""
ANY_BUT_ENDING = tuple(stage for stage in ANY if stage is not Stage.ENDING)
WITH_GPUS = tuple(stage for stage in Stage if stage.has_gpus)

JOB_PHASES = (
    JobPhase(
        JobState.SUBMITTED, Stage.NONE, "queued; after a failure it waits for its back-off first"
    ),
    JobPhase(
        JobState.SUBMITTED,
        Stage.LAUNCHING,
        "its container starts, without GPUs (early initialisation)",
    ),
    JobPhase(
        JobState.SUBMITTED,
        Stage.ENDING,
        "its container failed to start, or has to end; then the job is queued again",
    ),
    JobPhase(
        JobState.INITIALIZED,
        Stage.READY,
        "its SideCar is up; it waits for its GPUs or, for a while, for a new plan (R9)",
    ),
    JobPhase(
        JobState.INITIALIZED,
        Stage.ENDING,
        "it waited too long, or was paused; its container is removed",
    ),
    JobPhase(
        JobState.RUNNING,
        Stage.STARTING,
        "it has its GPUs and starts to train; no first step yet",
    ),
    JobPhase(JobState.RUNNING, Stage.TRAINING, "trains"),
    JobPhase(
        JobState.RUNNING,
        Stage.ENDING,
        "its start failed; its container ends, and it is queued again or paused",
    ),
    JobPhase(
        JobState.ADJUSTING,
        Stage.SAVING,
        "asked to save and stop; neither `stopping` nor `refused` is known yet",
    ),
    JobPhase(
        JobState.ADJUSTING,
        Stage.STOPPING,
        "outcome `stopping`; its process tree is not gone yet",
    ),
    JobPhase(JobState.ADJUSTING, Stage.STARTING, "starts again with its new GPUs"),
    JobPhase(
        JobState.ADJUSTING,
        Stage.ENDING,
        "saved; its container ends (mechanism `terminate`, other host, pause, drain)",
    ),
    JobPhase(JobState.HALTED, Stage.NONE, "paused: saved, without container; waits for a resume"),
    JobPhase(JobState.COMPLETED, Stage.ENDING, "over; its container ends"),
    JobPhase(JobState.FAILED, Stage.ENDING, "over; its container ends"),
    JobPhase(JobState.CANCELLED, Stage.ENDING, "over; its container ends"),
)

STAGE_CHANGES = (
    StageChange(
        (Stage.NONE,),
        Stage.LAUNCHING,
        "a plan named it (`sidecar`: at once; `terminate`: once its GPUs are free)",
        "handover.advance",
    ),
    StageChange(
        (Stage.NONE,), Stage.NONE, "it was cancelled without a container", "job_exit.cancel"
    ),
    StageChange(
        (Stage.LAUNCHING,),
        Stage.READY,
        "the SideCar reported `initialized`",
        "reports.on_initialized",
    ),
    StageChange(
        (Stage.LAUNCHING,),
        Stage.ENDING,
        "not initialised in time, launch failed",
        "job_exit.on_launch_failed",
    ),
    StageChange(
        (Stage.LAUNCHING,),
        Stage.ENDING,
        "its self-check failed: queued again for another host; over where none is left",
        "job_exit.on_unfit",
    ),
    StageChange(
        (Stage.LAUNCHING,),
        Stage.ENDING,
        "its files cannot be reached from that host; not a failure",
        "job_exit.on_files_found",
    ),
    StageChange(
        (Stage.READY,),
        Stage.STARTING,
        "every GPU of its hand-over is reserved for it: the grant",
        "handover.advance",
    ),
    StageChange(
        (Stage.READY,),
        Stage.ENDING,
        "it waited `initialized_hold_s` without GPUs",
        "deadlines.expire",
    ),
    StageChange(
        (Stage.LAUNCHING, Stage.READY, Stage.STARTING),
        Stage.ENDING,
        "it was paused, or its host is drained",
        "job_exit.leave",
    ),
    StageChange((Stage.STARTING,), Stage.TRAINING, "first step reported", "reports.on_first_step"),
    StageChange(
        (Stage.STARTING,),
        Stage.STARTING,
        "the start failed once at this size",
        "failures.on_start_failed",
    ),
    StageChange(
        (Stage.STARTING,),
        Stage.ENDING,
        "it failed twice at this size",
        "failures.exclude_size",
    ),
    StageChange(
        (Stage.STARTING,),
        Stage.ENDING,
        "it was silent for `start_timeout_s`, or its `start_limit_s` is over: queued again, or "
        "over without a retry left",
        "failures.on_start_hung",
    ),
    StageChange(
        (Stage.STARTING,),
        Stage.ENDING,
        "its process died (a signal, no memory): queued again with a back-off; or it failed with "
        "no retry left, or in the same way at a second size: over, or paused with its checkpoint",
        "failures.on_start_failed",
    ),
    StageChange(
        (Stage.READY, Stage.STARTING),
        Stage.ENDING,
        "its SideCar must not train there (another attempt has the checkpoints): over",
        "job_exit.on_unfit",
    ),
    StageChange(
        (Stage.TRAINING,),
        Stage.ENDING,
        "it made no further step for its `progress_timeout_s`: queued again, or without a retry "
        "left over, or paused with its checkpoint",
        "failures.on_no_progress",
    ),
    StageChange(
        (Stage.TRAINING,),
        Stage.SAVING,
        "shrink, grow, relaunch or leave was asked",
        "handover.grow`, `handover.shrink`, `handover.leave",
    ),
    StageChange(
        (Stage.TRAINING,),
        Stage.STARTING,
        "the training process crashed; it is started again in its container",
        "failures.on_crash",
    ),
    StageChange(
        (Stage.TRAINING,),
        Stage.ENDING,
        "the training process crashed, and no retry is left: over, or paused with its checkpoint; "
        "or it died a second time in this attempt: queued again with a back-off; or it reports no "
        "steps and failed soon at a new size: queued again for the size before; or Reshape itself "
        "refused it: over, or paused with its checkpoint",
        "failures.on_crash",
    ),
    StageChange((Stage.SAVING,), Stage.STOPPING, "outcome `stopping`", "handover.on_answer"),
    StageChange(
        (Stage.SAVING,),
        Stage.TRAINING,
        "outcome `refused`: nothing was stopped",
        "handover.on_answer",
    ),
    StageChange(
        (Stage.STOPPING,),
        Stage.STARTING,
        "process tree gone; starts with its new GPUs",
        "handover.on_stopped",
    ),
    StageChange(
        (Stage.STOPPING,),
        Stage.ENDING,
        "process tree gone; the container has to end",
        "handover.on_stopped",
    ),
    StageChange(
        (Stage.STOPPING,),
        Stage.ENDING,
        "its process tree was not gone in time: the launcher removes the container",
        "deadlines.expire",
    ),
    StageChange(
        (Stage.ENDING,),
        Stage.ENDING,
        "its container was not gone in time: the launcher removes it",
        "deadlines.expire",
    ),
    StageChange(
        (Stage.ENDING,),
        Stage.NONE,
        "the launcher saw that the container is gone",
        "attempts.without_container",
    ),
    StageChange(
        (Stage.READY, *WITH_GPUS),
        Stage.LAUNCHING,
        "another controller suspended its container, which has no process any more; the job "
        "starts again once that controller resumes it",
        "suspension.on_suspended",
    ),
    StageChange(
        (Stage.READY, *WITH_GPUS),
        Stage.ENDING,
        "the same, and it was about to leave its container",
        "suspension.on_suspended",
    ),
    StageChange(ANY, Stage.NONE, "its host is silent or was cleaned", "job_exit.on_host_silent"),
    StageChange(
        ANY,
        Stage.ENDING,
        "one of its several hosts is silent or was cleaned: its containers on the others end",
        "job_exit.on_host_silent",
    ),
    StageChange(
        ANY_BUT_ENDING,
        Stage.NONE,
        "its container ended by itself: one failure, unless it trained and ended in order "
        "(its pod was deleted or evicted, say)",
        "job_exit.on_container_gone",
    ),
    StageChange(WITH_GPUS, Stage.ENDING, "it completed", "job_exit.complete"),
    StageChange(ANY_BUT_ENDING, Stage.ENDING, "it was cancelled", "job_exit.cancel"),
)

LEGAL = frozenset((before, change.after) for change in STAGE_CHANGES for before in change.before)
"""The legal changes of a stage, as pairs."""

_ENDS = (JobState.SUBMITTED, JobState.HALTED, JobState.FAILED, JobState.CANCELLED)

STATE_CHANGES: dict[JobState, tuple[JobState, ...]] = {
    JobState.SUBMITTED: (JobState.INITIALIZED, *_ENDS[1:]),
    JobState.INITIALIZED: (JobState.RUNNING, *_ENDS),
    JobState.RUNNING: (JobState.ADJUSTING, JobState.COMPLETED, *_ENDS),
    JobState.ADJUSTING: (JobState.RUNNING, JobState.COMPLETED, *_ENDS),
    JobState.HALTED: (JobState.SUBMITTED, JobState.CANCELLED),
    JobState.COMPLETED: (),
    JobState.FAILED: (),
    JobState.CANCELLED: (),
    JobState.REJECTED: (),
}
"""The states that may follow a state; a job may also stay in its state."""


@dataclass(frozen=True, slots=True)
class GpuChange:
    """A way of a GPU from the states ``before``; ``code`` is the function that takes it."""

    before: tuple[GpuState, ...]
    after: GpuState
    event: str
    code: str


GPU_CHANGES = (
    GpuChange((GpuState.IDLE,), GpuState.RESERVED, "a plan gives it to a job", "reserve"),
    GpuChange(
        (GpuState.RESERVED,),
        GpuState.IN_USE,
        "the grant, or a job that grew starts on it",
        "use",
    ),
    GpuChange(
        (GpuState.IN_USE,),
        GpuState.RELEASING,
        "the job stopped, ended or crashed for good",
        "release",
    ),
    GpuChange((GpuState.RESERVED,), GpuState.IDLE, "the hand-over was aborted", "free"),
    GpuChange(
        (GpuState.RELEASING,),
        GpuState.RESERVED,
        "verified empty; goes to the job that it was promised to",
        "free",
    ),
    GpuChange((GpuState.RELEASING,), GpuState.IDLE, "verified empty; not promised", "free"),
    GpuChange(
        tuple(GpuState),
        GpuState.IDLE,
        "its host was cleaned (rebooted, replaced, an operator's word)",
        "free",
    ),
    GpuChange((GpuState.QUARANTINED,), GpuState.IDLE, "an operator cleared it", "free"),
    GpuChange((GpuState.LOST,), GpuState.IDLE, "its host shows it again", "free"),
    GpuChange(
        (GpuState.RELEASING,),
        GpuState.QUARANTINED,
        "not verified within `verify_s`",
        "quarantine",
    ),
    GpuChange(tuple(GpuState), GpuState.LOST, "its host fell silent", "lose"),
    GpuChange((GpuState.IDLE,), GpuState.LOST, "its host no longer shows it", "mark_unseen"),
    GpuChange(
        (GpuState.RESERVED, GpuState.RELEASING, GpuState.QUARANTINED),
        GpuState.LOST,
        "its owner left it or it was cleared, and its host no longer shows it",
        "free",
    ),
)

GPU_LEGAL = frozenset((before, change.after) for change in GPU_CHANGES for before in change.before)
"""The legal changes of a GPU's state, as pairs."""
