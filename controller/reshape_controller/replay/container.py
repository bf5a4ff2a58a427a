"""One attempt in the replayed world: where its training is, and what its SideCar says.

Does: counts steps between two moments, and writes reports. Never: knows what comes next (that is
``world``), or sees the engine. State: fields of this one attempt; what outlives it is ``Life``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from reshape_controller.core.model import HostId, JobId
from reshape_controller.core.replacing import replace
from reshape_controller.replay.ground_truth import JobTruth
from reshape_sidecar.wire import Desired, Observed, Outcome, Phase, PhaseTimes

_EPSILON = 1e-6
"""Of a step: what rounding may take from it."""
_NO_TIMES = PhaseTimes()
_RUNNING, _FINISHED = Phase.RUNNING, Phase.FINISHED
"""Asked for every report, and an enum finds its members slowly."""


class ContainerEvent(StrEnum):
    """What can happen to a container."""

    READY = "ready"
    FIRST_STEP = "first step"
    REPORT = "report"
    EVALUATED = "evaluated"
    LAST_STEP = "last step"
    FINISHED = "finished"
    SAVED = "saved"
    STOPPED = "stopped"
    GONE = "gone"


@dataclass(slots=True)
class Life:
    """What is kept of a job from one attempt to the next."""

    truth: JobTruth
    saved_step: int = 0
    save_asked_s: float | None = None
    accuracy: float | None = None


@dataclass(slots=True)
class Container:
    """An attempt with its SideCar and at most one training process."""

    job: JobId
    attempt: int
    host: HostId
    gpu_type: str
    life: Life
    epoch: int = 0
    generation: int = 0
    sequence: int = 0
    phase: Phase = Phase.INITIALIZING
    wanted: Desired | None = None
    devices: tuple[str, ...] = ()
    turn: int = 0
    """What was put on the agenda for an earlier turn is void."""
    leaving: bool = False
    """Its end is on the agenda."""
    over: bool = False
    """The last step is done; the last checkpoint is being written."""
    step: int = 0
    """Steps done at ``at_s``; between two moments they are computed, not counted."""
    at_s: float = 0.0
    step_s: float = 1.0
    outcome: Outcome | None = None
    stopped_generation: int = 0
    times: PhaseTimes = _NO_TIMES
    said: Observed | None = None
    """Its newest report."""

    def steps_at(self, now_s: float) -> int:
        """Whole steps done at ``now_s``."""
        if self.phase is not _RUNNING or self.over:
            return self.step
        done = self.step + math.floor((now_s - self.at_s) / self.step_s + _EPSILON)
        return min(done, self.life.truth.total_steps)

    def boundary_at(self, now_s: float) -> int:
        """Steps done when the step under way at ``now_s`` has ended."""
        done = self.step + math.ceil((now_s - self.at_s) / self.step_s - _EPSILON)
        return min(done, self.life.truth.total_steps)

    def report(self, step: int) -> Observed:
        """What its SideCar says now; ``step`` steps are done."""
        self.sequence += 1
        truth, life = self.life.truth, self.life
        trains = self.phase is _RUNNING
        said = self.said or Observed(self.job, self.attempt, 0, 0, self.phase)
        progress = replace(
            said.progress,
            step=step,
            total_steps=truth.known_total if step or trains else None,
            steps_per_epoch=truth.steps_per_epoch,
            accuracy=life.accuracy,
            seconds_per_step=self.step_s if trains else None,
            checkpoint_step=life.saved_step or None,
        )
        self.said = replace(
            said,
            generation=self.generation,
            sequence=self.sequence,
            phase=self.phase,
            epoch=self.epoch,
            devices=self.devices,
            progress=progress,
            outcome=self.outcome,
            stopped_generation=self.stopped_generation,
            exit_code=0 if self.phase is _FINISHED else None,
            times=self.times,
        )
        return self.said
