"""An attempt in the replayed world: its progress and the reports of its SideCar.

Does: count steps between two moments, and write reports. ``world`` decides what comes next. State:
the fields of this attempt; ``Life`` holds what outlives it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from reshape_controller.core.fast_replace import replace
from reshape_controller.core.model import HostId, JobId
from reshape_controller.replay.ground_truth import JobTruth
from reshape_sidecar.wire import Desired, Observed, Outcome, Phase, PhaseTimes, Standby

_EPSILON = 1e-6
"""Part of a step that rounding may lose."""
_NO_TIMES = PhaseTimes()
_NO_REPORT = Observed("", 0, 0, 0, Phase.INITIALIZING)
_RUNNING, _FINISHED = Phase.RUNNING, Phase.FINISHED
"""For ``report``: Python 3.11 takes long to find a member of an enum."""


class ContainerEvent(StrEnum):
    """An event in the life of a container."""

    READY = "ready"
    IMPORTED = "imported"
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
    """The part of a job that outlives its attempts."""

    truth: JobTruth
    saved_step: int = 0
    save_request_s: float | None = None
    accuracy: float | None = None


@dataclass(slots=True)
class Container:
    """An attempt with its SideCar and at most one training process."""

    job: JobId
    attempt: int
    host: HostId
    gpu_type: str
    life: Life
    hosts: tuple[HostId, ...] = ()
    """The hosts of a gang, each once; empty for one host."""
    epoch: int = 0
    generation: int = 0
    sequence: int = 0
    phase: Phase = Phase.INITIALIZING
    desired: Desired | None = None
    devices: tuple[str, ...] = ()
    turn: int = 0
    """Number of the current phase; entries of the event queue for an earlier one are void."""
    removing: bool = False
    """True once its end is in the event queue."""
    steps_done: bool = False
    """True once the last step is done; the last checkpoint follows."""
    step: int = 0
    """Steps done at ``at_s``; ``steps_at`` computes later ones."""
    at_s: float = 0.0
    step_s: float = 1.0
    outcome: Outcome | None = None
    stopped_generation: int = 0
    times: PhaseTimes = _NO_TIMES
    imported_at_s: float | None = None
    """End of its zygote's imports; None: it reports none."""
    standby: Standby | None = None
    last_report: Observed | None = None
    """The SideCar's newest report."""

    def is_on(self, host: HostId) -> bool:
        """Return whether a part of the attempt is on the host."""
        return self.host == host or host in self.hosts

    def steps_at(self, now_s: float) -> int:
        """Return the whole steps done at ``now_s``."""
        if self.phase is not _RUNNING or self.steps_done:
            return self.step
        done = self.step + math.floor((now_s - self.at_s) / self.step_s + _EPSILON)
        return min(done, self.life.truth.total_steps)

    def boundary_at(self, now_s: float) -> int:
        """Return the steps done at the end of the step under way at ``now_s``."""
        done = self.step + math.ceil((now_s - self.at_s) / self.step_s - _EPSILON)
        return min(done, self.life.truth.total_steps)

    def report(self, step: int) -> Observed:
        """Return the SideCar's next report after ``step`` steps."""
        self.sequence += 1
        truth, life = self.life.truth, self.life
        trains = self.phase is _RUNNING
        report = self.last_report or replace(_NO_REPORT, job=self.job, attempt=self.attempt)
        progress = replace(
            report.progress,
            step=step,
            total_steps=truth.known_total if step or trains else None,
            steps_per_epoch=truth.steps_per_epoch,
            accuracy=life.accuracy,
            seconds_per_step=self.step_s if trains else None,
            checkpoint_step=life.saved_step or None,
        )
        self.last_report = replace(
            report,
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
            standby=self.standby,
        )
        return self.last_report
