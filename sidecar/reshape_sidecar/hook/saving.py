"""Saves a training state when somebody says so, and knows when nobody needs to.

Does: publishes, learns what a save costs, tells the agent, ends the process after a save that was
asked for. Never: takes the state out of a model (the caller does), or fails the script because a
disk is full. State: the learned interval, and when a failed save may be tried again.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from reshape_sidecar.claims import CheckpointError, Fenced
from reshape_sidecar.contract import HookPhase
from reshape_sidecar.device_truth import Pacer
from reshape_sidecar.hook.checkpoint import Mark, Shelf
from reshape_sidecar.hook.interval import SaveInterval
from reshape_sidecar.hook.log import complain
from reshape_sidecar.hook.progress import Telling
from reshape_sidecar.hook.stop import Stop
from reshape_sidecar.hook.values import Writer

SAVE_AGAIN_AFTER_S = 5.0
"""Pause before a save that was asked for and failed (a full disk) is tried again."""
EXIT_FENCED = 1

Capture = Callable[[Writer], dict[str, Any]]


class Saver:
    """Everything that a step boundary needs to know about saving."""

    def __init__(self, stop: Stop, shelf: Shelf, telling: Telling, pacer: Pacer | None) -> None:
        self.stop = stop
        self.shelf = shelf
        self._telling = telling
        self._pacer = pacer
        self._interval: SaveInterval | None = None
        self._retry_at_s = 0.0

    def training_begins(self, state_bytes: int) -> None:
        """Start the clock of periodic saves; ``state_bytes`` predicts the first one's cost."""
        if self._interval is None:
            self._interval = SaveInterval(time.monotonic())
            self._interval.expect(state_bytes)

    def due(self, now_s: float) -> bool:
        """Whether a periodic save is due."""
        return self.shelf.enabled and self._interval is not None and self._interval.due(now_s)

    def affordable(self, now_s: float) -> bool:
        """Whether a save costs little enough now, however short ago the last one was."""
        return self._interval is None or self._interval.affordable(now_s)

    def asked(self, now_s: float) -> bool:
        """Whether to save and leave now."""
        return self.stop.requested() and now_s >= self._retry_at_s

    def save_and_leave(self, mark: Mark, capture: Capture) -> None:
        """Answer a stop: save and end the process. Returns only if the save failed."""
        if not self.shelf.enabled or self.save(mark, capture):
            self.leave()
        self._retry_at_s = time.monotonic() + SAVE_AGAIN_AFTER_S

    def save(self, mark: Mark, capture: Capture, *, complete: bool = False) -> bool:
        """Publish what ``capture`` takes; whether that went well."""
        began_s = time.monotonic()
        self._telling.phase(HookPhase.SAVING)
        writer = Writer()
        try:
            self.shelf.publish(mark, capture(writer), writer, complete=complete)
        except Fenced as error:
            self._give_up(error)
        except CheckpointError as error:
            complain(str(error))
            if self._interval is not None:
                self._interval.failed(time.monotonic())
            self._telling.phase(HookPhase.TRAINING)
            return False
        took_s = time.monotonic() - began_s
        if self._interval is not None:
            self._interval.saved(time.monotonic(), took_s)
        if self._pacer is not None:
            self._pacer.pause(took_s)
        self._telling.update(step=mark.step, epoch=mark.epoch, checkpoint_step=mark.step)
        self._telling.saved(took_s)
        if not self.stop.requested():
            self._telling.phase(HookPhase.TRAINING)
        return True

    def complete(self, mark: Mark) -> None:
        """The newest checkpoint is the end of training."""
        try:
            self.shelf.publish_complete(mark)
        except Fenced as error:
            self._give_up(error)
        except CheckpointError as error:
            complain(str(error))

    def leave(self) -> NoReturn:
        """End the process as saved."""
        self._telling.phase(HookPhase.SAVED)
        self._telling.flush()
        self.stop.leave()

    def _give_up(self, error: Fenced) -> NoReturn:
        complain(str(error))
        self._telling.flush()
        sys.stdout.flush()
        os._exit(EXIT_FENCED)
