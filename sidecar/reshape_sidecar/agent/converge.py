"""Decides the next action from the desired state, the running process and the persisted memory.

Does: the SideCar's part of rule R2: exactly one outcome per generation, which ``actions`` persists
before it acts or reports. Pure: clock, files and processes are arguments. Actions are idempotent,
so after a crash the same decision follows from the persisted memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_sidecar.agent.memory import Memory
from reshape_sidecar.init.values import InitStatus, SuccessorProcess, TrainingProcess
from reshape_sidecar.limits import LEFTOVER_GRACE_S
from reshape_sidecar.wire import (
    EXIT_SAVED,
    Desired,
    Mode,
    OnSaveTimeout,
    Outcome,
    OutcomeKind,
    Phase,
    PrepareStage,
)

EXIT_TERMINATED = 143
SAVED_CODES = (EXIT_SAVED, 0, EXIT_TERMINATED)
"""Exit codes of a process that saved and left on request."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Do nothing before ``until_s`` (monotonic; None: before the state changes)."""

    until_s: float | None = None


@dataclass(frozen=True, slots=True)
class RecordExit:
    """Read checkpoint and log of a training process that ended, and persist its exit."""

    training: TrainingProcess


@dataclass(frozen=True, slots=True)
class PersistOutcome:
    """Persist this outcome."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class PersistKillOutcome:
    """Persist ``stopping`` with the lost steps: the save deadline passed, the record says kill."""

    generation: int


@dataclass(frozen=True, slots=True)
class RequestSave:
    """Send SIGTERM once for this generation: save and leave."""

    generation: int


@dataclass(frozen=True, slots=True)
class WithdrawRequest:
    """Withdraw a SIGTERM that training has not served: the request is refused or withdrawn."""

    generation: int


@dataclass(frozen=True, slots=True)
class StopProcessTree:
    """End every process of generations before this one."""

    generation: int
    kill_after_s: float
    spare: int | None = None
    """Preparation whose successor this generation will adopt."""


@dataclass(frozen=True, slots=True)
class ConfirmStopped:
    """Persist that every earlier process tree is gone."""

    generation: int


@dataclass(frozen=True, slots=True)
class Start:
    """Start training on the desired devices as this generation."""

    generation: int


@dataclass(frozen=True, slots=True)
class PrepareSuccessor:
    """Start a process that prepares for the devices of ``Desired.prepare``."""

    number: int


@dataclass(frozen=True, slots=True)
class AdoptSuccessor:
    """Make the successor of preparation ``number`` the training process of ``generation``."""

    generation: int
    number: int


@dataclass(frozen=True, slots=True)
class DropSuccessor:
    """End the successor of preparation ``number``."""

    number: int


@dataclass(frozen=True, slots=True)
class EndContainer:
    """Report, then have init end the container."""


Action = (
    Idle
    | RecordExit
    | PersistOutcome
    | PersistKillOutcome
    | RequestSave
    | WithdrawRequest
    | StopProcessTree
    | ConfirmStopped
    | Start
    | PrepareSuccessor
    | AdoptSuccessor
    | DropSuccessor
    | EndContainer
)


def decide(
    memory: Memory, status: InitStatus, *, saving: bool, ready: bool, now_s: float
) -> Action:
    """Return the next action.

    ``saving``: the hook has reported the begin of a save. ``ready``: the self-check passed, and
    the addresses of all workers (if there are several) are known.
    """
    training = status.training
    if training is not None and not training.running and not _recorded(memory, training):
        return RecordExit(training)
    desired = memory.desired
    if status.ending or desired is None:
        return Idle()
    if status.prepared is not None and not _may_serve(desired, status.prepared):
        return DropSuccessor(status.prepared.number)
    if not memory.answered:
        return _toward_outcome(memory, desired, status, saving, now_s)
    assert memory.outcome is not None
    if memory.outcome.kind is OutcomeKind.REFUSED:
        return _after_refusal(memory, desired, status, ready)
    return _after_stop(memory, desired, status, ready)


def phase(memory: Memory, status: InitStatus, *, checked: bool) -> Phase:
    """Return the phase of the SideCar and its training process."""
    training = status.training
    stopping = (
        memory.outcome is not None
        and memory.outcome.generation == memory.generation
        and memory.outcome.kind is OutcomeKind.STOPPING
    )
    if training is not None and training.running:
        return _phase_of_running(memory, status, training, stopping)
    if memory.finished:
        return Phase.FINISHED
    if not checked:
        return Phase.INITIALIZING
    if status.ending or (training is not None and not _recorded(memory, training)):
        return Phase.STOPPING  # it ended; its exit is about to be recorded
    if training is not None and not _left_in_order(memory, training, stopping):
        return Phase.CRASHED
    if memory.unfit is not None:
        return Phase.UNFIT
    if memory.generation > memory.stopped_generation and training is not None:
        refused = memory.answered and not stopping
        return Phase.INITIALIZED if refused else Phase.STOPPING
    starts = memory.generation > 0 and memory.started_generation >= memory.generation
    return Phase.STARTING if starts else Phase.INITIALIZED


def is_under_way(memory: Memory, status: InitStatus) -> bool:
    """Return whether a start is asked for, and no process has made its first step since."""
    desired, training = memory.desired, status.training
    if desired is None or desired.mode is not Mode.RUN or memory.finished:
        return False
    trains = training is not None and memory.trained_generation >= training.generation
    return not (trains and training is not None and training.running)


def already_runs(memory: Memory, desired: Desired) -> bool:
    """Return whether the newest start is on the desired devices."""
    same = set(desired.devices) == set(memory.devices) and not desired.fresh
    return desired.mode is Mode.RUN and same


def lost_steps(step: int, saved_step: int | None) -> int:
    """Return how many executed steps no checkpoint holds."""
    return max(0, step - (saved_step or 0))


def _toward_outcome(
    memory: Memory, desired: Desired, status: InitStatus, saving: bool, now_s: float
) -> Action:
    training = status.training
    if training is None or not training.running:
        return PersistOutcome(_outcome_of_ended(memory, desired.generation))
    if training.generation >= desired.generation:
        # It was started for this generation, so the outcome existed: the memory of it is lost.
        return PersistOutcome(Outcome(desired.generation, OutcomeKind.STOPPING))
    earlier = memory.outcome
    if (
        earlier is not None
        and earlier.kind is OutcomeKind.STOPPING
        and training.generation < earlier.generation
    ):
        # An earlier request has its outcome: that process is being stopped.
        return StopProcessTree(earlier.generation, 0.0)
    deadline_s = memory.learned_at_s + desired.save_deadline_s
    if already_runs(memory, desired):
        if saving and _outstanding(training, status) and now_s < deadline_s:
            return Idle(deadline_s)
        return PersistOutcome(Outcome(desired.generation, OutcomeKind.REFUSED))
    if not _outstanding(training, status):
        return RequestSave(desired.generation)
    if now_s < deadline_s:
        return Idle(deadline_s)
    if desired.on_save_timeout is OnSaveTimeout.KILL:
        return PersistKillOutcome(desired.generation)
    return PersistOutcome(Outcome(desired.generation, OutcomeKind.REFUSED))


def _after_refusal(memory: Memory, desired: Desired, status: InitStatus, ready: bool) -> Action:
    training = status.training
    if training is None:
        return Idle()
    if training.running and _outstanding(training, status):
        return WithdrawRequest(desired.generation)
    if training.running:
        return _preparation(desired, status)
    if _saved(memory) and already_runs(memory, desired):
        # It saved and left after all, and the same devices are desired: it goes on there.
        return _after_stop(memory, desired, status, ready)
    return _clean_up(training, status)


def _after_stop(memory: Memory, desired: Desired, status: InitStatus, ready: bool) -> Action:
    training = status.training
    started = training is not None and training.generation >= desired.generation
    fitting = _fitting(desired, status)
    if training is not None and training.running:
        if started:
            return _preparation(desired, status)
        return StopProcessTree(desired.generation, 0.0, fitting)
    if memory.stopped_generation < desired.generation:
        if status.swept < desired.generation:
            return StopProcessTree(desired.generation, desired.kill_after_s, fitting)
        return ConfirmStopped(desired.generation)
    if desired.mode is Mode.EXIT:
        return EndContainer()
    if desired.mode is Mode.RUN and not memory.finished and not started:
        if not ready or memory.unfit is not None:
            return Idle()
        if fitting is not None:
            return AdoptSuccessor(desired.generation, fitting)
        if status.prepared is not None:
            return DropSuccessor(status.prepared.number)
        return Start(desired.generation)
    return Idle() if training is None else _clean_up(training, status)


def _preparation(desired: Desired, status: InitStatus) -> Action:
    """Return what brings a successor about while training runs, if it is desired."""
    newest = status.prepare_number
    if desired.prepare and status.prepared is None and newest is not None:
        return PrepareSuccessor(newest + 1)
    return Idle()


def _may_serve(desired: Desired, prepared: SuccessorProcess) -> bool:
    """Return whether a successor is what is to be prepared, or what this generation starts on."""
    return _is_for_start(desired, prepared) or prepared.devices == desired.prepare


def _is_for_start(desired: Desired, prepared: SuccessorProcess) -> bool:
    return desired.mode is Mode.RUN and prepared.devices == desired.devices


def _fitting(desired: Desired, status: InitStatus) -> int | None:
    """Return the preparation that this generation can adopt; None if there is none."""
    prepared = status.prepared
    if prepared is None or not prepared.running or prepared.stage is PrepareStage.FAILED:
        return None
    return prepared.number if _is_for_start(desired, prepared) else None


def _clean_up(training: TrainingProcess, status: InitStatus) -> Action:
    """Stop the processes that a training process left when it ended by itself."""
    if status.swept <= training.generation:
        return StopProcessTree(training.generation + 1, LEFTOVER_GRACE_S)
    return Idle()


def _outcome_of_ended(memory: Memory, generation: int) -> Outcome:
    """Return the outcome if no process runs: it saved and left, crashed, or never started."""
    ended = memory.ended
    if ended is None:
        return Outcome(generation, OutcomeKind.STOPPING)
    earlier = memory.outcome
    counted = (
        earlier is not None
        and earlier.kind is OutcomeKind.STOPPING
        and earlier.generation > ended.generation
    )
    lost = 0 if counted else lost_steps(ended.step, ended.saved_step)
    complete = ended.complete or memory.finished
    said, saved = ended.says_saved, ended.saved_step
    return Outcome(generation, OutcomeKind.STOPPING, saved, lost, complete, said)


def _recorded(memory: Memory, training: TrainingProcess) -> bool:
    return memory.ended is not None and memory.ended.generation >= training.generation


def _outstanding(training: TrainingProcess, status: InitStatus) -> bool:
    """Return whether this process was sent a SIGTERM that is not withdrawn."""
    return status.rung > max(training.generation, status.withdrawn)


def _saved(memory: Memory) -> bool:
    ended = memory.ended
    if ended is None or not ended.asked:
        return False
    return ended.left_saved or ended.exit_code in SAVED_CODES


def _phase_of_running(
    memory: Memory, status: InitStatus, training: TrainingProcess, stopping: bool
) -> Phase:
    if stopping and training.generation < memory.generation:
        return Phase.STOPPING
    if (_outstanding(training, status) and not memory.answered) or status.ending:
        return Phase.SAVING
    if memory.trained_generation >= training.generation:
        return Phase.RUNNING
    return Phase.STARTING


def _left_in_order(memory: Memory, training: TrainingProcess, stopping: bool) -> bool:
    """Return whether the end of the newest process is no crash, or one that is answered."""
    if training.generation >= memory.generation:
        return False
    if stopping or not memory.answered:
        return True
    return _saved(memory)
