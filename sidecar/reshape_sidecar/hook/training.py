"""The ``fit`` calls of a script in their order: run, skipped because they are over, or resumed.

Does: counts steps and epochs over all calls, ends a call at the record's length, gives a finished
call's History back without training, marks the end. Never: looks inside a running call (``fit``
does). State: one Training per process; steps and epochs count from the job's very first start.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from reshape_sidecar.contract import HookPhase
from reshape_sidecar.device_truth import Pacer
from reshape_sidecar.hook import building, callback_state, models, position, randomness, variables
from reshape_sidecar.hook.checkpoint import FinishedFit, Mark, Restored
from reshape_sidecar.hook.exactness import EXACT, Verdict
from reshape_sidecar.hook.fit import Fit
from reshape_sidecar.hook.log import complain
from reshape_sidecar.hook.progress import Telling
from reshape_sidecar.hook.saving import Saver
from reshape_sidecar.hook.settings import Settings
from reshape_sidecar.hook.shuffles import JobShuffles
from reshape_sidecar.hook.values import Writer


class Training:
    """All fit calls of this process."""

    def __init__(
        self,
        settings: Settings,
        saver: Saver,
        telling: Telling,
        pacer: Pacer | None,
        shuffles: JobShuffles,
    ) -> None:
        self.settings = settings
        self.saver = saver
        self.telling = telling
        self._pacer = pacer
        self._shuffles = shuffles
        self.fit: Fit | None = None
        self.models = models.Models()
        self.ended_callbacks = callback_state.EndedCallbacks()
        self.finished: list[FinishedFit] = []
        self.step = 0
        self.verdict_before = Verdict(EXACT)
        """What was said when the job was stopped in the middle of a fit."""
        self.exit_code = 0
        """The code with which the script ends."""
        self._drawn: Any = None
        self._calls = 0
        self._steps_here = 0
        self._began = False
        self._unsaved: Any = None
        """The model of the last fit, while no checkpoint holds its end."""

    # -- a fit call -------------------------------------------------------------------------

    def run(self, model: Any, fit: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Run, skip or resume one ``fit`` call; ``arguments`` are those of Keras, complete."""
        restored = self.saver.shelf.restored()
        if restored is not None:
            self.verdict_before = restored.verdict
        number, self._calls = self._calls, self._calls + 1
        if restored is not None and number < len(restored.mark.finished):
            if restored.mark.finished[number].raised:
                return self._raise_again(model, fit, arguments, restored, number)
            return self._skip(model, arguments, restored, number)
        resumed = None
        if restored is not None and number == len(restored.mark.finished):
            resumed = restored if restored.mark.position is not None else None
        if resumed is not None:  # as at first: a script may look into its files how far it is
            done = resumed.mark.epoch - self.epochs_before
            arguments["initial_epoch"] = resumed.mark.fit_epoch - done
        epochs = self._epochs(arguments)
        if epochs <= 0 and self.settings.epochs is not None:
            return _history(model)
        arguments["epochs"] = arguments["initial_epoch"] + epochs
        self.models.use(model)
        first, validation = int(arguments["initial_epoch"]), arguments["validation_data"]
        running = Fit(self, model, first, validation, resumed)
        self.fit = running
        self.saver.stop.answered_by_loop = True
        try:
            history = fit(model, **arguments)
        except BaseException:
            self.saver.stop.answered_by_loop = self._unsaved is not None
            self._finish(running, None, arguments)
            raise
        finally:
            self.fit = None
        self._finish(running, history, arguments)
        self._fit_ended(running)
        return history

    def _epochs(self, arguments: dict[str, Any]) -> int:
        """Epochs that a call may train; never more than the record's length leaves."""
        epochs = int(arguments["epochs"]) - int(arguments["initial_epoch"])
        if self.settings.epochs is None:
            return epochs
        return min(epochs, self.settings.epochs - self.epochs_before)

    def _finish(self, fit: Fit, history: Any, arguments: dict[str, Any]) -> None:
        """A call is over; without a history it ended by an exception."""
        self.ended_callbacks.fit_ended(arguments["callbacks"])
        self.finished.append(
            FinishedFit(
                model=self.models.number(fit.model),
                epochs=fit.epochs_done,
                epoch=list(getattr(history, "epoch", None) or []),
                history={
                    name: list(values)
                    for name, values in (getattr(history, "history", None) or {}).items()
                },
                params=dict(getattr(history, "params", None) or {}),
                random={**randomness.capture(), "shuffles": self._shuffles.count},
                training=fit.position.training.counts() if fit.position is not None else (0, 0),
                validation=fit.position.validation.counts() if fit.position is not None else (0, 0),
                raised=history is None,
            )
        )

    def _fit_ended(self, fit: Fit) -> None:
        self._unsaved = fit.model
        now_s = time.monotonic()
        if self.saver.stop.requested():
            self.saver.save_and_leave(self._mark(), self._capture)
        elif self.saver.shelf.enabled and self.saver.affordable(now_s):
            self._save_end(complete=False)

    def save_last_end(self) -> None:
        """Save the end of the last fit, if no checkpoint holds it yet."""
        if self._unsaved is not None and self.saver.shelf.enabled:
            self._save_end(complete=False)

    def _save_end(self, *, complete: bool) -> None:
        if self.saver.save(self._mark(), self._capture, complete=complete):
            self._all_is_saved()

    def _all_is_saved(self) -> None:
        self._unsaved = None
        self.saver.stop.nothing_to_save = True
        self.saver.stop.answered_by_loop = False

    def _mark(self) -> Mark:
        return Mark(step=self.step, epoch=self.epochs_before, finished=tuple(self.finished))

    def _capture(self, writer: Writer) -> dict[str, Any]:
        states = variables.capture(self._unsaved)
        self.models.ended(self._unsaved, states)
        return {
            "variables": variables.encode(states, writer),
            "others": self.models.encode(writer, without=self._unsaved),
            "callbacks": [],
            "ended_callbacks": self.ended_callbacks.encode(writer),
            "random": randomness.capture(),
            "logs": {},
            "verdict": dataclasses.astuple(self.verdict_before),
        }

    # -- a fit call that is over --------------------------------------------------------------

    def _skip(self, model: Any, arguments: dict[str, Any], restored: Restored, number: int) -> Any:
        done = restored.mark.finished[number]
        self.finished.append(done)
        self.step = restored.mark.step
        callbacks = arguments["callbacks"]
        callback_state.restore_ended(
            callbacks, restored.ended_callbacks, number, model, restored.reader
        )
        self.ended_callbacks.fit_ended(callbacks)
        self.models.skipped(model)
        iterator = building.build_for(model, arguments)
        self.models.give_back(model, done.model, restored, self._calls)
        if restored.mark.position is None and self._calls == len(restored.mark.finished):
            self.restored_is_used()
        validation = arguments["validation_data"]
        position.pass_over(iterator, done.training, done.epochs, validation, done.validation)
        randomness.restore(done.random)
        self._shuffles.count = done.random["shuffles"]
        self._all_is_saved()
        history = _history(model)
        history.epoch = list(done.epoch)
        history.history = {name: list(values) for name, values in done.history.items()}
        history.params = dict(done.params)
        return history

    def _raise_again(
        self,
        model: Any,
        fit: Callable[..., Any],
        arguments: dict[str, Any],
        restored: Restored,
        number: int,
    ) -> Any:
        """Run a call that ended by an exception once more: the script waits for that exception."""
        complain(f"`fit` number {number + 1} had ended with an exception: it runs again, unsaved")
        done = restored.mark.finished[number]
        self.finished.append(done)
        self.step = restored.mark.step
        self.ended_callbacks.fit_ended(arguments["callbacks"])
        self.models.use(model)
        self._all_is_saved()
        try:
            return fit(model, **arguments)
        finally:
            randomness.restore(done.random)
            self._shuffles.count = done.random["shuffles"]

    # -- called by the running fit --------------------------------------------------------------

    @property
    def epochs_before(self) -> int:
        """Epochs of all finished fit calls."""
        return sum(fit.epochs for fit in self.finished)

    def first_boundary(self, model: Any) -> None:
        """Before the first step of this process."""
        if not self._began:
            self._began = True
            self.telling.phase_ended("build_s")
            self.telling.update(step=self.step)
            self.saver.training_begins(variables.size_bytes(model))

    def steps_done(self, steps: int) -> bool:
        """Count steps and pace them; whether they are the first of this process."""
        first = self._steps_here == 0
        self.step += steps
        self._steps_here += steps
        if self._pacer is not None:
            self._pacer.step_ended(steps)
        return first

    def last_step_done(self) -> bool:
        """Whether the record's number of steps is reached."""
        return self.settings.steps is not None and self.step >= self.settings.steps

    def no_step_for(self, seconds: float) -> None:
        """Time passed that was no step: the pacer must not make up for it."""
        if self._pacer is not None:
            self._pacer.pause(seconds)

    def late_steps(self) -> int:
        """Steps that ended too late for the device truth."""
        return self._pacer.late_steps if self._pacer is not None else 0

    def restored_is_used(self) -> None:
        """The checkpoint that was found is not needed any more: free its memory."""
        restored = self.saver.shelf.restored()
        if restored is not None:
            restored.reader.release()

    # -- outside of a fit ---------------------------------------------------------------------

    def other_boundary(self) -> None:
        """Between two batches of an evaluation or prediction."""
        if self.fit is not None:
            self.fit.evaluation_boundary()
        elif self._unsaved is not None and self.saver.asked(time.monotonic()):
            self.saver.save_and_leave(self._mark(), self._capture)

    def other_iterator(self, iterator: Any) -> None:
        """An iterator is made by Keras over data that is not that of a fit's training."""
        if self.fit is not None:
            self.fit.other_iterator(iterator)

    def other_drawn(self, iterator: Any, source: Any) -> None:
        """Such an iterator, ``source``, is drawn from."""
        counts = self.fit.validated_by(iterator) if self.fit is not None else None
        if counts is not None:
            counts.begun += source is not self._drawn
            self._drawn = source

    def script_ended(self) -> None:
        """The script ended by itself, well: the newest state is the complete one."""
        if not self._calls:
            return  # It trained by itself, or with the session API, which speaks for itself.
        if self.fit is not None:
            return  # A thread of the script trains on; Python waits for it.
        if self.finished and self.finished[-1].raised:
            return  # It left a fit in the middle, at a SIGTERM perhaps: its exit code tells.
        if self._unsaved is not None and self.saver.shelf.enabled:
            self._save_end(complete=True)
        elif self.saver.shelf.newest_step() is not None:
            self.saver.complete(self._mark())
        self.telling.update(step=self.step, epoch=self.epochs_before)
        self.telling.phase(HookPhase.FINISHED)
        self.telling.flush()


def _history(model: Any) -> Any:
    import keras

    history = keras.callbacks.History()
    history.set_model(model)
    history.epoch = []
    model.history = history
    return history
