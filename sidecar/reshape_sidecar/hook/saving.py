"""Saves the training state: on request, and periodically at an interval learned from the cost.

Does: publishes a state that the caller captures, learns what a save costs, reports to the agent and
ends the process after a save on request. A full disk does not fail the script: the save is tried
again.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from reshape_sidecar.claims import CheckpointError, StaleAttempt
from reshape_sidecar.contract import HookPhase
from reshape_sidecar.device_truth import Pacer
from reshape_sidecar.hook.checkpoint import CheckpointStore, ResumePoint
from reshape_sidecar.hook.log import complain
from reshape_sidecar.hook.progress import ProgressReporter
from reshape_sidecar.hook.stop import Stop, flush_files
from reshape_sidecar.hook.values import Writer
from reshape_sidecar.proof.first_steps import FirstSteps

SAVE_RATIO_MAX = 0.02
SAVE_RATIO_AIM = 0.015
"""Share of time for saves; below the maximum, so that a slower save does not exceed that."""
INTERVAL_MIN_S = 5.0
COST_WEIGHT = 0.5
COST_FLOOR_S = 0.05
FIRST_COST_BYTES_PER_S = 100e6
"""Assumed speed of a disk before the first save was measured."""


class SaveInterval:
    """When the next periodic save is due."""

    def __init__(self, now_s: float) -> None:
        self._last_s = now_s
        self._cost_s: float | None = None

    def expect(self, state_bytes: int) -> None:
        """Estimate the cost from the size of the state until a save is measured."""
        if self._cost_s is None:
            self._cost_s = max(COST_FLOOR_S, state_bytes / FIRST_COST_BYTES_PER_S)

    def interval_s(self) -> float:
        """Return the seconds from the end of one save to the start of the next."""
        return max(INTERVAL_MIN_S, (self._cost_s or COST_FLOOR_S) / SAVE_RATIO_AIM)

    def due(self, now_s: float) -> bool:
        """Return whether a periodic save is due."""
        return now_s - self._last_s >= self.interval_s()

    def affordable(self, now_s: float) -> bool:
        """Return whether a save now keeps within the ratio."""
        return now_s - self._last_s >= (self._cost_s or COST_FLOOR_S) / SAVE_RATIO_AIM

    def save_ended(self, now_s: float, took_s: float) -> None:
        """Learn from a save that took ``took_s``: a slower one fully, a faster one by weight."""
        known = self._cost_s
        if known is None or took_s > known:
            self._cost_s = took_s
        else:
            self._cost_s = known + COST_WEIGHT * (took_s - known)
        self._last_s = now_s

    def save_failed(self, now_s: float) -> None:
        """Wait a whole interval after a save that failed."""
        self._last_s = now_s


SAVE_AGAIN_AFTER_S = 5.0
"""Pause before a requested save that failed (a full disk) is tried again."""
EXIT_FENCED = 1

Capture = Callable[[Writer], dict[str, Any]]


class Saver:
    """Saves at step boundaries, and the request to leave."""

    def __init__(
        self,
        stop: Stop,
        store: CheckpointStore,
        reporter: ProgressReporter,
        pacer: Pacer | None,
        first_steps: FirstSteps,
    ) -> None:
        self.stop = stop
        self.store = store
        self.first_steps = first_steps
        self._reporter = reporter
        self._pacer = pacer
        self._interval: SaveInterval | None = None
        self._retry_at_s = 0.0

    def training_begins(self, state_bytes: int) -> None:
        """Start the clock of periodic saves; ``state_bytes`` predicts the first one's cost."""
        if self._interval is None:
            self._interval = SaveInterval(time.monotonic())
            self._interval.expect(state_bytes)

    def due(self, now_s: float) -> bool:
        """Return whether a periodic save is due."""
        return self.store.enabled and self._interval is not None and self._interval.due(now_s)

    def affordable(self, now_s: float) -> bool:
        """Return whether a save now keeps within the ratio, whatever the interval."""
        return self._interval is None or self._interval.affordable(now_s)

    def stop_due(self, now_s: float) -> bool:
        """Return whether to save and leave now."""
        return self.stop.requested() and now_s >= self._retry_at_s

    def save_and_leave(self, resume_point: ResumePoint, capture: Capture) -> None:
        """Save and end the process; returns if the save failed, or for a step in which the process
        leaves."""
        if not self.store.enabled or self.save(resume_point, capture):
            flush_files()
            self.first_steps.leave(self.store.newest(), self._leave)
            return
        self._retry_at_s = time.monotonic() + SAVE_AGAIN_AFTER_S

    def save(self, resume_point: ResumePoint, capture: Capture, *, complete: bool = False) -> bool:
        """Publish what ``capture`` returns; True if it is on the disk."""
        began_s = time.monotonic()
        self._reporter.phase(HookPhase.SAVING)
        writer = Writer()
        try:
            self.store.publish(resume_point, capture(writer), writer, complete=complete)
        except StaleAttempt as error:
            self._give_up(error)
        except CheckpointError as error:
            complain(str(error))
            if self._interval is not None:
                self._interval.save_failed(time.monotonic())
            self._reporter.phase(HookPhase.TRAINING)
            return False
        took_s = time.monotonic() - began_s
        if self._interval is not None:
            self._interval.save_ended(time.monotonic(), took_s)
        if self._pacer is not None:
            self._pacer.pause(took_s)
        self._reporter.update(
            step=resume_point.step, epoch=resume_point.epoch, checkpoint_step=resume_point.step
        )
        self._reporter.save_ended(took_s)
        if not self.stop.requested():
            self._reporter.phase(HookPhase.TRAINING)
        return True

    def complete(self, resume_point: ResumePoint) -> None:
        """Publish the newest checkpoint as the end of training."""
        try:
            self.store.publish_complete(resume_point)
        except StaleAttempt as error:
            self._give_up(error)
        except CheckpointError as error:
            complain(str(error))

    def _leave(self) -> NoReturn:
        """End the process as saved; the script's files are flushed."""
        self._reporter.phase(HookPhase.SAVED)
        self._reporter.flush()
        self.stop.leave(is_flushed=True)

    def _give_up(self, error: StaleAttempt) -> NoReturn:
        complain(str(error))
        self._reporter.flush()
        sys.stdout.flush()
        os._exit(EXIT_FENCED)
