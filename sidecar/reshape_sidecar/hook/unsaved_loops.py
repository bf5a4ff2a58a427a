"""Training loops that nothing saves: their steps, and what a stop would do to them.

Does: counts the steps of a script that calls neither ``fit`` nor a session, by the iterations of
its Keras optimizers, and reports them from a thread of its own until a ``fit`` begins.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

from reshape_sidecar.hook.progress import ProgressReporter
from reshape_sidecar.hook.report import LAST_REPORT_WAIT_S, PROGRESS_EVERY_S
from reshape_sidecar.hook.training import Training
from reshape_sidecar.wire import Saves

OPTIMIZER_MODULE = "keras.src.optimizers.base_optimizer"


def saves(training: Training) -> Saves:
    """Return when this process saves, as far as it is known now."""
    stop = training.saver.stop
    if stop.is_replaced():
        return Saves.SIGTERM
    fits = training.has_fit and training.saver.store.enabled
    return Saves.BOUNDARY if fits or stop.is_a_sessions() else Saves.NEVER


class UnsavedLoops:
    """The steps of a script's own loops; a ``fit`` or a session ends the count."""

    def __init__(self, training: Training, reporter: ProgressReporter) -> None:
        self._training, self._reporter = training, reporter
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.before_step: Callable[[], None] | None = None
        """Called before an optimizer outside of a ``fit`` changes variables."""
        self._due = threading.Event()
        self._reported = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="reshape-loops")

    def start(self) -> None:
        """Begin to report."""
        self._thread.start()
        self._training.saver.stop.before_loss = self.report_now

    def patch(self, module: Any) -> None:
        """Note each optimizer that the script makes."""
        optimizer, noted = module.BaseOptimizer, self._optimizers
        original = optimizer.__init__

        @functools.wraps(original)
        def __init__(own: Any, *args: Any, **kwargs: Any) -> None:
            original(own, *args, **kwargs)
            with contextlib.suppress(TypeError):  # a class of the script may allow no reference
                noted.add(own)

        optimizer.__init__ = __init__
        if self.before_step is not None:
            self._patch_apply(optimizer, self.before_step)

    def _patch_apply(self, optimizer: Any, before_step: Callable[[], None]) -> None:
        original = optimizer.apply

        @functools.wraps(original)
        def apply(*args: Any, **kwargs: Any) -> Any:
            if self._training.fit is None:
                before_step()
            return original(*args, **kwargs)

        optimizer.apply = apply

    def report_now(self) -> None:
        """Report the newest step before the process ends unsaved; called by the signal handler.

        The thread reads it: the interrupted code may hold a lock that a read needs.
        """
        self._reported.clear()
        self._due.set()
        self._reported.wait(LAST_REPORT_WAIT_S)
        self._reporter.flush()

    def _run(self) -> None:
        while not self._training.has_fit and not self._training.saver.stop.is_a_sessions():
            self._reporter.report_loop(self._step(), lambda: not self._training.has_fit)
            self._reported.set()
            self._due.wait(PROGRESS_EVERY_S)
            self._due.clear()

    def _step(self) -> int:
        """Return the most iterations of an optimizer; 0 if that is not known."""
        step = 0
        for optimizer in list(self._optimizers):
            with contextlib.suppress(Exception):  # it is being made, or of another backend
                step = max(step, int(optimizer.iterations.numpy()))
        return step
