"""Steps of ``train_on_batch`` after a fit: no checkpoint holds them, and the log says so.

Does: has the end of that fit saved before the first of them, counts them, tells at a stop that they
are done again. Never: saves them; where a script is in a loop of its own nobody knows. State: the
number of them since the last fit.
"""

from __future__ import annotations

import contextlib
import functools
import os
from typing import Any

from reshape_sidecar.contract import HookPhase
from reshape_sidecar.hook.training import Training

DONE_AGAIN = (
    "reshape: asked to save and leave, but no `fit` is under way: steps of `train_on_batch` since "
    "the last one ({}) are not saved, the next process does them again\n"
)


class Outside:
    """What is trained outside of the fit calls."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._steps = 0
        training.saver.stop.before_leaving = self._leaving

    def patch(self, trainer: Any) -> None:
        """Wrap ``train_on_batch`` of Keras's trainer."""
        original = trainer.train_on_batch

        @functools.wraps(original)
        def train_on_batch(model: Any, *args: Any, **kwargs: Any) -> Any:
            if self._training.fit is None:
                if not self._steps:
                    self._training.save_last_end()
                self._steps += 1
            return original(model, *args, **kwargs)

        trainer.train_on_batch = train_on_batch

    def fit_begins(self) -> None:
        """What it saves holds the steps before it."""
        self._steps = 0

    def _leaving(self) -> None:
        """In the signal's handler: say how many steps are lost, in the log and to the agent."""
        if not self._steps:
            return
        with contextlib.suppress(OSError):
            os.write(2, DONE_AGAIN.format(self._steps).encode())
        telling = self._training.telling
        telling.update(step=self._training.step + self._steps)
        telling.phase(HookPhase.SAVED)
        telling.flush()
