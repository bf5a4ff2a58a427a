"""The life of a job's ``fit`` calls: where each stands, when it saves, how it goes on.

Does: counts steps, answers a stop at a step boundary, saves now and then, skips finished fits and
takes a resumed one to its place. Never: patches Keras (``keras_patch`` calls in here), or knows
files (``checkpoint`` does). State: one Training per process, one Fit while a fit runs.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from reshape_sidecar.checkpoints import CheckpointError, Fenced
from reshape_sidecar.contract import HookPhase
from reshape_sidecar.device_truth import Pacer
from reshape_sidecar.hook import building, callback_state, judge, randomness, variables
from reshape_sidecar.hook.checkpoint import FinishedFit, Mark, Restored, Shelf
from reshape_sidecar.hook.interval import SaveInterval
from reshape_sidecar.hook.position import Position
from reshape_sidecar.hook.progress import Telling, numbers_of
from reshape_sidecar.hook.settings import Settings
from reshape_sidecar.hook.stop import Stop
from reshape_sidecar.hook.values import Writer

SAVE_AGAIN_AFTER_S = 5.0
"""Pause before a save that was asked for and failed (a full disk) is tried again."""
EXIT_FENCED = 1


@dataclasses.dataclass
class Fit:
    """One ``fit`` call while it runs."""

    model: Any
    resumed: Restored | None
    callbacks: Any = None
    position: Position | None = None
    epoch: int = 0
    batch: int = 0
    initial_epoch: int = 0
    epochs_done: int = 0
    """Epochs that this call has finished, in all processes together."""
    last_logs: Any = None
    in_epoch: bool = False
    step_began_s: float = 0.0
    pause_began_s: float | None = None


class Training:
    """All fit calls of this process."""

    def __init__(
        self, settings: Settings, stop: Stop, shelf: Shelf, telling: Telling, pacer: Pacer | None
    ) -> None:
        self._settings = settings
        self._stop = stop
        self._shelf = shelf
        self.telling = telling
        self._pacer = pacer
        self._interval: SaveInterval | None = None
        self.fit: Fit | None = None
        self._calls = 0
        self._step = 0
        self._steps_here = 0
        self._began = False
        self._finished: list[FinishedFit] = []
        self._unsaved_model: Any = None
        self._retry_at_s = 0.0

    # -- a fit call -------------------------------------------------------------------------

    def run(self, model: Any, fit: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Run (or skip, or resume) one ``fit`` call; ``arguments`` are those of Keras, complete."""
        restored = self._shelf.restored()
        number = self._calls
        self._calls += 1
        if restored is not None and number < len(restored.mark.finished):
            return self._skip(model, arguments, restored, number)
        epochs = self._epochs(arguments)
        if epochs <= arguments["initial_epoch"] and self._settings.epochs is not None:
            return self._empty_history(model)
        arguments["epochs"] = epochs
        resumes = restored is not None and number == len(restored.mark.finished)
        in_middle = resumes and restored is not None and restored.mark.position is not None
        if number == 0 or resumes:
            self._step = restored.mark.step if restored else 0
        self.fit = Fit(model, restored if in_middle else None)
        self.fit.initial_epoch = int(arguments["initial_epoch"])
        self._stop.answered_by_loop = True
        try:
            history = fit(model, **arguments)
            self._fit_ended(self.fit)
        finally:
            self.fit = None
        return history

    def _epochs(self, arguments: dict[str, Any]) -> int:
        epochs = int(arguments["epochs"])
        if self._settings.epochs is None:
            return epochs
        left = self._settings.epochs - sum(fit.epochs for fit in self._finished)
        return min(epochs, int(arguments["initial_epoch"]) + max(0, left))

    def _skip(self, model: Any, arguments: dict[str, Any], restored: Restored, number: int) -> Any:
        done = restored.mark.finished[number]
        self._finished.append(done)
        self._step = restored.mark.step
        self._stop.nothing_to_save = True
        last = number == len(restored.mark.finished) - 1
        if last and restored.mark.position is None and restored.variables:
            building.build_for(model, arguments)
            variables.restore(model, restored.variables, restored.reader)
            randomness.restore(restored.random, restored.reader)
        history = self._empty_history(model)
        history.epoch, history.history = list(done.epoch), dict(done.history)
        history.params = dict(done.params)
        return history

    def _empty_history(self, model: Any) -> Any:
        import keras

        history = keras.callbacks.History()
        history.set_model(model)
        history.epoch = []
        model.history = history
        return history

    def _fit_ended(self, fit: Fit) -> None:
        history = fit.model.history
        self._finished.append(
            FinishedFit(
                epochs=fit.epochs_done,
                epoch=list(history.epoch),
                history={name: list(values) for name, values in history.history.items()},
                params=dict(history.params or {}),
            )
        )
        self._unsaved_model = fit.model
        asked = self._stop.requested()
        if asked or (self._interval is not None and self._interval.due(time.monotonic())):
            self._save_between(complete=False)
        if asked and self._unsaved_model is None:
            self._leave()

    # -- called from inside a fit ---------------------------------------------------------------

    def train_begins(self, fit: Fit, callbacks: Any) -> None:
        """After the callbacks' ``on_train_begin``: the model is built, no step was done."""
        fit.callbacks = callbacks
        if fit.resumed is not None:
            fit.model._initial_epoch = fit.resumed.mark.fit_epoch or None
            fit.epochs_done = fit.resumed.mark.fit_epoch - fit.initial_epoch
            fit.last_logs = fit.resumed.logs
            assert fit.position is not None
            building.build(fit.model, fit.position.iterator)
        if self._interval is None:
            self._interval = SaveInterval(time.monotonic())
        verdict = judge.judge(fit.model, fit.position, self._settings)
        self.telling.update(trajectory=verdict.kind, trajectory_reason=verdict.reason)

    def epoch_begins(self, fit: Fit, epoch: int) -> None:
        """After the callbacks' ``on_epoch_begin``: a resumed fit is put in its place here.

        The saved state holds what the callbacks did at the start of this epoch (a learning rate),
        so it comes after them.
        """
        fit.epoch, fit.batch = epoch, 0
        resumed, fit.resumed = fit.resumed, None
        if resumed is not None:
            self._resume(fit, resumed)
        fit.in_epoch = True
        fit.step_began_s = time.monotonic()

    def _resume(self, fit: Fit, restored: Restored) -> None:
        began_s = time.monotonic()
        self.telling.phase_ended("build_s")
        self.telling.phase(HookPhase.RESTORING)
        position = restored.mark.position
        assert position is not None
        assert fit.position is not None
        fit.position.go_to(position, restored.mark.fit_epoch)
        variables.restore(fit.model, restored.variables, restored.reader)
        unmatched = callback_state.restore(
            fit.callbacks.callbacks, restored.callbacks, restored.reader
        )
        if unmatched:
            complain(f"callbacks whose state was not found: {', '.join(unmatched)}")
        randomness.restore(restored.random, restored.reader)
        fit.batch = position.batch
        self._step = restored.mark.step
        self.telling.phase_ended("restore_s")
        fit.pause_began_s = began_s

    def boundary(self, fit: Fit) -> None:
        """Between two steps: everything of the last one is done. Saves, and may not return."""
        if not fit.in_epoch:
            return
        now_s = time.monotonic()
        if fit.pause_began_s is not None:
            if self._pacer is not None:
                self._pacer.pause(now_s - fit.pause_began_s)
            fit.pause_began_s = None
        if not self._began:
            self._began = True
            self._first_boundary(fit)
        if self._stop.requested():
            self._answer_stop(fit, now_s)
        elif self._interval is not None and self._interval.due(now_s):
            self._save_in_fit(fit)
        fit.step_began_s = time.monotonic()

    def _first_boundary(self, fit: Fit) -> None:
        self.telling.phase_ended("build_s")
        assert self._interval is not None
        self._interval.expect(variables.size_bytes(fit.model))
        self.telling.update(step=self._step)

    def step_ended(self, fit: Fit, end: int, logs: Any) -> None:
        """After the callbacks' ``on_train_batch_end``."""
        done = end + 1
        total = fit.position.epoch_length() if fit.position is not None else None
        if total:
            done = min(done, total)
        steps = max(1, done - fit.batch)
        fit.batch = done
        fit.last_logs = logs
        self._step += steps
        first = self._steps_here == 0
        self._steps_here += steps
        if self._pacer is not None:
            self._pacer.step_ended(steps)
        now_s = time.monotonic()
        if self._settings.steps is not None and self._step >= self._settings.steps:
            fit.model.stop_training = True
        if first:
            self.telling.phase_ended("first_step_s")
        else:
            self.telling.step_took((now_s - fit.step_began_s) / steps)
        if first or self.telling.due(now_s):
            self._tell(fit, logs, first)

    def _tell(self, fit: Fit, logs: Any, first: bool) -> None:
        length = fit.position.epoch_length() if fit.position is not None else None
        self.telling.update(
            step=self._step,
            epoch=self._global_epoch(fit),
            steps_per_epoch=length,
            total_steps=self._total_steps(fit, length),
            checkpoint_step=self._shelf.newest_step(),
            late_steps=self._pacer.late_steps if self._pacer else 0,
        )
        if first:
            self.telling.phase(HookPhase.TRAINING)
        self.telling.tell(logs)

    def epoch_ended(self, fit: Fit) -> None:
        """After the callbacks' ``on_epoch_end``: validation is over, the next epoch not begun."""
        fit.in_epoch = False
        fit.epochs_done += 1
        fit.pause_began_s = fit.pause_began_s or time.monotonic()

    # -- saving -----------------------------------------------------------------------------

    def _answer_stop(self, fit: Fit, now_s: float) -> None:
        if now_s < self._retry_at_s:
            return
        if self._save_in_fit(fit):
            self._leave()
        self._retry_at_s = time.monotonic() + SAVE_AGAIN_AFTER_S

    def _save_in_fit(self, fit: Fit) -> bool:
        assert fit.position is not None
        if not self._shelf.enabled:
            return True
        flush = getattr(fit.callbacks, "_flush_futures", None)
        if flush is not None:
            flush()
        mark = Mark(
            step=self._step,
            epoch=self._global_epoch(fit),
            finished=tuple(self._finished),
            fit_epoch=fit.epoch,
            position=fit.position.saved(fit.batch),
        )
        callbacks = fit.callbacks.callbacks
        return self._save(mark, fit.model, callbacks, logs=fit.last_logs)

    def _save_between(self, *, complete: bool) -> bool:
        """Save the model of the last fit, which is over."""
        if self._unsaved_model is None or not self._shelf.enabled:
            self._unsaved_model = None
            return True
        saved = self._save(self._mark_between(), self._unsaved_model, [], complete=complete)
        if saved:
            self._unsaved_model = None
            self._stop.nothing_to_save = True
            self._stop.answered_by_loop = False
        return saved

    def _mark_between(self) -> Mark:
        epochs = sum(fit.epochs for fit in self._finished)
        return Mark(step=self._step, epoch=epochs, finished=tuple(self._finished))

    def _save(
        self,
        mark: Mark,
        model: Any,
        callbacks: list[Any],
        *,
        logs: Any = None,
        complete: bool = False,
    ) -> bool:
        began_s = time.monotonic()
        back = HookPhase.TRAINING
        self.telling.phase(HookPhase.SAVING)
        writer = Writer()
        try:
            parts = {
                "variables": variables.capture(model, writer),
                "callbacks": callback_state.capture(callbacks, writer),
                "random": randomness.capture(writer),
                "logs": numbers_of(logs),
            }
            self._shelf.publish(mark, parts, writer, complete=complete)
        except Fenced as error:
            complain(str(error))
            self.telling.flush()
            sys.stdout.flush()
            os._exit(EXIT_FENCED)
        except CheckpointError as error:
            complain(str(error))
            if self._interval is not None:
                self._interval.failed(time.monotonic())
            self.telling.phase(back)
            return False
        took_s = time.monotonic() - began_s
        if self._interval is not None:
            self._interval.saved(time.monotonic(), took_s)
        if self._pacer is not None:
            self._pacer.pause(took_s)
        self.telling.update(step=mark.step, checkpoint_step=mark.step)
        self.telling.saved(took_s)
        if not self._stop.requested():
            self.telling.phase(back)
        return True

    def _leave(self) -> None:
        self.telling.phase(HookPhase.SAVED)
        self.telling.flush()
        self._stop.leave()

    # -- the end of the script --------------------------------------------------------------

    def finished(self) -> None:
        """The script ended by itself, well: the newest state is the complete one."""
        if self._calls and self._shelf.enabled:
            restored = self._shelf.restored()
            if self._unsaved_model is not None:
                self._save_between(complete=True)
            elif self._shelf.newest_step() is not None and not (
                restored is not None and restored.complete and self._steps_here == 0
            ):
                try:
                    self._shelf.publish_complete(self._mark_between())
                except CheckpointError as error:
                    complain(str(error))
        self.telling.phase(HookPhase.FINISHED)
        self.telling.flush()

    def _global_epoch(self, fit: Fit) -> int:
        return sum(done.epochs for done in self._finished) + fit.epochs_done

    def _total_steps(self, fit: Fit, length: int | None) -> int | None:
        epochs = (fit.callbacks.params or {}).get("epochs")
        if self._settings.steps is not None and (length is None or epochs is None):
            return self._settings.steps
        if length is None or epochs is None:
            return None
        left = int(epochs) * length - (fit.epoch * length + fit.batch)
        total = self._step + max(0, left)
        return total if self._settings.steps is None else min(total, self._settings.steps)


def complain(message: str) -> None:
    """One line on standard error, so that the job's log says what the hook could not do."""
    print(f"reshape: {message}", file=sys.stderr, flush=True)
