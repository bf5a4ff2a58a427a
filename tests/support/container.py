"""A container of the tests' world: its SideCar and its training process, as values.

Does: takes up what it shall be as far as its knobs let it, and says how it stands. Never: knows the
engine or other containers; the world (``world``) tells it and listens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from reshape_controller.core.model import HostId, JobId
from reshape_sidecar.wire import (
    Desired,
    Mode,
    Observed,
    OnSaveTimeout,
    Outcome,
    OutcomeKind,
    Phase,
    PhaseTimes,
    Prepared,
    PrepareStage,
    Progress,
    Proof,
    Reached,
    Saves,
    Standby,
    TargetProgress,
)


class Knobs(TypedDict, total=False):
    """How a container differs from one that does at once what it is told."""

    slow_init: bool
    crashes: bool
    hangs: bool
    program: Saves
    exception: str
    code: int
    standby: Standby
    can_prepare: bool
    slow_prepare: bool
    refused: bool
    reached: Reached | None
    uses: int | None


@dataclass
class Container:
    """One attempt's container with its SideCar and at most one training process."""

    job: JobId
    attempt: int
    host: HostId
    generation: int = 0
    epoch: int = 0
    sequence: int = 0
    phase: Phase = Phase.INITIALIZING
    running: tuple[str, ...] = ()
    running_generation: int = 0
    wanted: Desired | None = None
    outcome: Outcome | None = None
    stopped_generation: int = 0
    step: int = 0
    saved_step: int | None = None
    exit_code: int | None = None
    error: str | None = None
    reachable: bool = True
    """False: neither Desired nor reports get through."""
    mute: bool = False
    """True: it acts on what it is told, and its reports are late."""
    slow_init: bool = False
    saves: bool = True
    """False: a request to save is not answered by training; the deadline decides."""
    crashes: bool = False
    """True: every start ends at once with exit code ``code``."""
    code: int = 1
    hangs: bool = False
    """True: no start makes a first step."""
    deadline_passed: bool = False
    trajectory: str | None = None
    seconds_per_step: float | None = None
    trajectory_reason: str | None = None
    proof: Proof | None = None
    """What the first step of its process shows; a new process shows it anew."""
    target: TargetProgress | None = None
    program: Saves | None = None
    """When its program saves; None: a SideCar of level 1. NEVER: a stop loses its steps."""
    exception: str | None = None
    times: PhaseTimes = PhaseTimes(save_s=0.1)
    standby: Standby | None = None
    can_prepare: bool = False
    slow_prepare: bool = False
    """True: what it prepares does not become ready."""
    prepare: tuple[str, ...] | None = None
    prepared: Prepared | None = None
    refused: bool = False
    """True: Reshape itself refuses its program."""
    reached: Reached | None = None
    silent_s: float | None = None
    """For how long its start has been silent; None: its SideCar does not measure."""
    uses: int | None = None
    """GPUs that its program can use; None: its SideCar does not know."""
    says_saved: bool = False
    """True: it leaves with word of a save of its own."""

    def converge(self, desired: Desired | None) -> bool:
        """Take up what it shall be, as far as it can; True: it is to leave."""
        leaves = False
        if self.phase is Phase.INITIALIZING and not self.slow_init:
            self.phase = Phase.INITIALIZED
        if desired is not None:
            late = (desired.epoch, desired.generation) < (self.epoch, self.generation)
            leaves = not late and self._take_up(desired)
        if self.phase is Phase.STARTING and not self.hangs:
            if self.crashes:
                self.phase, self.exit_code = Phase.CRASHED, self.code
                self.error = f"exit code {self.code}"
                self.running = ()
            else:
                self.phase = Phase.RUNNING
        return leaves

    def _take_up(self, desired: Desired) -> bool:
        fresh = desired.generation > self.generation
        self.epoch, self.generation = desired.epoch, desired.generation
        self._prepare(desired.prepare)
        if self.phase is Phase.INITIALIZING or (
            self.phase is Phase.UNFIT and desired.mode is Mode.RUN
        ):
            return False
        same = desired.mode is Mode.RUN and tuple(desired.devices) == self.running
        if same:
            if fresh and self.phase is not Phase.STARTING:
                self.outcome = Outcome(desired.generation, OutcomeKind.REFUSED)
                self.phase = Phase.RUNNING
            return False
        if self.outcome == Outcome(desired.generation, OutcomeKind.REFUSED):
            return False
        if self.running and not self._stop(desired):
            return False
        if self.outcome is None or self.outcome.generation != desired.generation:
            self.outcome = Outcome(desired.generation, OutcomeKind.STOPPING, self.saved_step)
        self.stopped_generation = desired.generation
        if desired.mode is Mode.RUN and self.phase is not Phase.FINISHED:
            self.running, self.running_generation = tuple(desired.devices), desired.generation
            self.phase, self.proof = Phase.STARTING, None
        elif desired.mode is Mode.EXIT:
            return True
        elif self.phase is not Phase.FINISHED:
            self.phase = Phase.INITIALIZED
        return False

    def _prepare(self, devices: tuple[str, ...] | None) -> None:
        """Prepare a successor for these devices, or drop what is prepared for others."""
        self.prepare = devices
        if devices is None or not self.can_prepare:
            self.prepared = None
        elif self.prepared is None or self.prepared.devices != devices:
            stage = PrepareStage.SCRIPT if self.slow_prepare else PrepareStage.READY
            self.prepared = Prepared(devices, stage)

    def _stop(self, desired: Desired) -> bool:
        """Ask training to save; True once nothing runs."""
        if self.program is Saves.NEVER:
            lost = max(0, self.step - (self.saved_step or 0))
            said = self.says_saved
            kind, saved = OutcomeKind.STOPPING, self.saved_step
            self.outcome = Outcome(desired.generation, kind, saved, lost, says_saved=said)
            self.step = min(self.step, self.saved_step or 0)
        elif self.saves:
            self.saved_step = self.step
            self.outcome = Outcome(desired.generation, OutcomeKind.STOPPING, self.step)
        elif not self.deadline_passed:
            self.phase = Phase.SAVING
            return False
        elif desired.on_save_timeout is OnSaveTimeout.REFUSE:
            self.outcome = Outcome(desired.generation, OutcomeKind.REFUSED)
            self.phase = Phase.RUNNING
            return False
        else:
            lost = max(0, self.step - (self.saved_step or 0))
            self.outcome = Outcome(desired.generation, OutcomeKind.STOPPING, self.saved_step, lost)
        self.running = ()
        return True

    def observed(self) -> Observed:
        return Observed(
            self.job,
            self.attempt,
            self.generation,
            self.sequence,
            self.phase,
            epoch=self.epoch,
            devices=self.running,
            progress=Progress(
                step=self.step,
                total_steps=1000,
                checkpoint_step=self.saved_step,
                seconds_per_step=self.seconds_per_step,
                trajectory=self.trajectory,
                trajectory_reason=self.trajectory_reason,
                proof=self.proof,
                target=self.target,
            ),
            outcome=self.outcome,
            stopped_generation=self.stopped_generation,
            exit_code=self.exit_code,
            error=self.error,
            times=self.times,
            saves=self.program if self.phase is Phase.RUNNING else None,
            exception=self.exception if self.phase is Phase.CRASHED else None,
            exception_message="no such loader" if self.refused else None,
            refused=self.refused and self.phase is Phase.CRASHED,
            reached=self.reached,
            standby=self.standby,
            can_prepare=self.can_prepare,
            prepare=self.prepare,
            prepared=self.prepared,
            silent_s=self.silent_s,
            devices_used=self._devices_used(),
        )

    def _devices_used(self) -> int | None:
        if self.uses is None or self.phase is not Phase.RUNNING:
            return None
        return min(self.uses, len(self.running))
