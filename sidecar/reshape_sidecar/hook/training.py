"""The ``fit`` calls of a script in their order: run, skipped because they are over, or resumed.

Does: counts steps and epochs over all calls from the job's first start, ends a call at the record's
length, returns the History of a finished call without training, and publishes the end of training.
``fit`` holds what happens inside a running call.
"""

from __future__ import annotations

import dataclasses
import gc
import os
import time
from collections.abc import Callable
from typing import Any

from reshape_sidecar.contract import HookPhase
from reshape_sidecar.device_truth import Pacer
from reshape_sidecar.hook import (
    building,
    callback_state,
    data_state,
    end_states,
    models,
    position,
    randomness,
    recording,
    variables,
)
from reshape_sidecar.hook import settings as hook_settings
from reshape_sidecar.hook.checkpoint import FinishedFit, ResumePoint, SavedState
from reshape_sidecar.hook.data_state import SavedData
from reshape_sidecar.hook.end_states import EndStates
from reshape_sidecar.hook.evaluations import EvaluationLog
from reshape_sidecar.hook.exactness import EXACT, Verdict
from reshape_sidecar.hook.fit import Fit
from reshape_sidecar.hook.garbage import CollectionPause
from reshape_sidecar.hook.log import complain
from reshape_sidecar.hook.progress import ProgressReporter
from reshape_sidecar.hook.saving import Saver
from reshape_sidecar.hook.script_state import ScriptState
from reshape_sidecar.hook.settings import HookSettings
from reshape_sidecar.hook.shuffles import JobShuffles
from reshape_sidecar.hook.standby import Standby
from reshape_sidecar.hook.target import TargetJudge
from reshape_sidecar.hook.used_devices import UsedDevices
from reshape_sidecar.hook.values import Writer
from reshape_sidecar.wire import Trajectory


class Training:
    """All fit calls of this process; there is one object per process."""

    def __init__(
        self,
        settings: HookSettings,
        saver: Saver,
        reporter: ProgressReporter,
        pacer: Pacer | None,
        shuffles: JobShuffles,
        script_state: ScriptState,
        standby: Standby | None = None,
    ) -> None:
        self.settings = settings
        self.saver = saver
        self.reporter = reporter
        self.standby = standby
        """The wait of a successor; None in any other process."""
        self.recording = recording.from_environment(saver.stop)
        self._pacer = pacer
        self._shuffles = shuffles
        self.target = TargetJudge(settings.target, reporter.report_target)
        self.evaluations = EvaluationLog(reporter.report_evaluations)
        self._used_devices = UsedDevices(len(settings.devices))
        self.fit: Fit | None = None
        self.models = models.Models()
        self.ended_callbacks = callback_state.EndedCallbacks()
        self.finished: list[FinishedFit] = []
        self.step = 0
        self.verdict_before = Verdict(EXACT)
        """Verdict of the checkpoint: that of an earlier process, stopped in the middle of a fit;
        and what was named of the script's state since."""
        self.script_state = script_state
        self.collections = CollectionPause()
        self.exit_code = 0
        """Code with which the script ends."""
        self._end_states = EndStates(settings)
        self._optimizers_saved: set[int] = set()
        """Calls after which the script saved an optimizer, perhaps that of the call's model."""
        self._last_source: Any = None
        self._calls = 0
        self._steps_here = 0
        self._has_begun = False
        self._unsaved: Any = None
        """Model of the last fit while no checkpoint holds its final state."""

    # -- a fit call -------------------------------------------------------------------------

    def run(self, model: Any, fit: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Run, skip or resume one ``fit`` call; ``arguments`` include Keras's defaults."""
        prepares = self._prepares()
        saved_state = None if prepares else self.saver.store.saved_state()
        if saved_state is not None:
            self._continue_verdict(saved_state)
        number, self._calls = self._calls, self._calls + 1
        if saved_state is not None and number < len(saved_state.resume_point.finished):
            if saved_state.resume_point.finished[number].raised:
                return self._raise_again(model, fit, arguments, saved_state, number)
            return self._skip(model, arguments, saved_state, number)
        resumed = None
        if saved_state is not None and number == len(saved_state.resume_point.finished):
            resumed = saved_state if saved_state.resume_point.position is not None else None
        if resumed is None and not prepares:
            self.target.fit_begins()
        elif resumed is not None:  # as in the first process: a script may compute it from its files
            done = resumed.resume_point.epoch - self.epochs_before
            arguments["initial_epoch"] = resumed.resume_point.fit_epoch - done
        epochs = self._epochs(arguments)
        if epochs <= 0 and self.settings.epochs is not None:
            return _history(model)
        arguments["epochs"] = arguments["initial_epoch"] + epochs
        self._keep_end_state(model)
        self.models.begin_fit(model)
        first, validation = int(arguments["initial_epoch"]), arguments["validation_data"]
        validates = validation is not None or bool(arguments["validation_split"])
        running = Fit(self, model, first, validation, resumed, validates=validates)
        running.prepares = prepares
        self.fit = running
        self.saver.stop.answered_by_loop = True
        try:
            history = fit(model, **arguments)
        except BaseException:
            self.saver.first_steps.leave_here()
            running.in_epoch = False
            self.saver.stop.answered_by_loop = self._unsaved is not None
            self._finish(running, None, arguments)
            raise
        finally:
            self.fit = None
            self.collections.end()
        self._finish(running, history, arguments)
        self._fit_ended(running)
        return history

    def _continue_verdict(self, saved_state: SavedState) -> None:
        self.verdict_before = self.verdict_before.after(saved_state.verdict)
        if not self.finished:
            self.target.restore(saved_state.target)

    # -- a successor --------------------------------------------------------------------------

    def release(self) -> None:
        """Become the training process of a generation; called by a thread of its own."""
        self.settings = hook_settings.from_environment(os.environ) or self.settings
        self.saver.store.release(self.settings)
        self._end_states = EndStates(self.settings)
        self.reporter.release(self.settings.generation, self.settings.spawned_at_s)

    def _prepares(self) -> bool:
        """Return whether the call that begins is to be prepared before the release.

        A later call than the first needs the states of the calls before it, which the release
        brings.
        """
        standby = self.standby
        if standby is None:
            return False
        standby.reach_barrier()
        if standby.waits and not self._calls and not self.saver.store.finished_fits():
            return True
        if standby.waits:
            standby.wait("a `fit` is over: the next one is not prepared")
        if standby.is_held:
            self._accept(standby, "its first `fit` call failed" if self._calls else "")
        return False

    def go_on_prepared(self, fit: Fit, reason: str) -> None:
        """Wait for the release; then resume ``fit``, which is prepared as far as ``reason`` says.

        Starts the cold command in place if the checkpoint does not fit what was prepared.
        """
        standby = self.standby
        assert standby is not None
        gc.collect()
        standby.wait(reason)
        self.collections.begin()
        saved_state = self.saver.store.saved_state()
        self._accept(standby, self._misfit(fit, saved_state))
        assert saved_state is not None
        self._continue_verdict(saved_state)
        fit.resume_from(saved_state)

    def _accept(self, standby: Standby, misfit: str) -> None:
        if self.saver.store.is_seed_changed():
            misfit = "the seed of the job's shuffles is another one"
        if misfit:
            standby.start_cold(misfit)
        standby.accept()

    def _misfit(self, fit: Fit, saved_state: SavedState | None) -> str:
        """Return why a prepared call cannot resume from ``saved_state``; empty if it can."""
        if saved_state is None:
            return "there is no checkpoint"
        point = saved_state.resume_point
        if point.finished or point.position is None or saved_state.complete:
            return "its `fit` call is over"
        if point.fit_epoch - point.epoch != fit.initial_epoch:
            return "its `fit` call begins at another epoch"
        return fit.misfit(saved_state)

    def failed(self, error: BaseException) -> None:
        """Report the exception that ends the script; of a successor, to init alone."""
        if self.standby is not None and self.standby.waits:
            self.standby.give_up(f"{type(error).__name__}: {error}")
        if isinstance(error, SystemExit) and isinstance(error.code, int):
            return  # its text is the reason, and a number says nothing
        self.reporter.failed(error)

    # -- the state at the end of a call -------------------------------------------------------

    def _keep_end_state(self, model: Any) -> None:
        """Write the state that ``model`` had at the end of its last call, before it changes."""
        number = self.models.number(model)
        calls = [call for call, fit in enumerate(self.finished) if fit.model == number]
        states = self.models.end_state(model)
        if not calls or states is None or not self.saver.store.enabled:
            return
        done = self.finished[calls[-1]]
        if done.raised or done.end_state is not None:
            return
        known = [fit.end_state for fit in self.finished]
        slots = calls[-1] in self._optimizers_saved
        end_state = self._end_states.write(states, known, slots=slots)
        if end_state is None:
            self._lose_end_state()
        self.finished[calls[-1]] = dataclasses.replace(done, end_state=end_state)

    def optimizer_saved(self) -> None:
        """Note that the script saves an optimizer, as the last call of a model has left it."""
        if self.fit is None:
            self._optimizers_saved |= {
                call
                for call, fit in enumerate(self.finished)
                if fit.model not in {later.model for later in self.finished[call + 1 :]}
            }

    def _lose_end_state(self) -> None:
        self.verdict_before = self.verdict_before.worse(end_states.LOST, Trajectory.UNKNOWN)

    def _epochs(self, arguments: dict[str, Any]) -> int:
        """Return how many epochs a call may train within the record's length."""
        epochs = int(arguments["epochs"]) - int(arguments["initial_epoch"])
        if self.settings.epochs is None:
            return epochs
        return min(epochs, self.settings.epochs - self.epochs_before)

    def _finish(self, fit: Fit, history: Any, arguments: dict[str, Any]) -> None:
        """Record a call that is over; without a history it ended by an exception."""
        fit.name_script_state()
        self.ended_callbacks.fit_ended(arguments["callbacks"])
        callbacks = fit.callbacks.callbacks if fit.callbacks is not None else ()
        self.recording.fit_ended(len(self.finished), history, callbacks)
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
                stop_training=bool(getattr(fit.model, "stop_training", False)),
                data=fit.position.data.capture() if fit.position is not None else SavedData(),
                script=self.script_state.capture(),
            )
        )
        self.script_state.fit_ended()
        self.models.fit_ended(fit.model)

    def _fit_ended(self, fit: Fit) -> None:
        self._unsaved = fit.model
        now_s = time.monotonic()
        if self.saver.stop.requested():
            self.saver.save_and_leave(self._resume_point(), self._capture)
        elif self.saver.store.enabled and self.saver.affordable(now_s):
            self._save_end(complete=False)

    def save_last_end(self) -> None:
        """Save the final state of the last fit if no checkpoint holds it yet."""
        if self._unsaved is not None and self.saver.store.enabled:
            self._save_end(complete=False)

    def _save_end(self, *, complete: bool) -> None:
        if self.saver.save(self._resume_point(), self._capture, complete=complete):
            self._note_saved()

    def _note_saved(self) -> None:
        self._unsaved = None
        self.saver.stop.nothing_to_save = True
        self.saver.stop.answered_by_loop = False

    def _resume_point(self) -> ResumePoint:
        return ResumePoint(step=self.step, epoch=self.epochs_before, finished=tuple(self.finished))

    def _capture(self, writer: Writer) -> dict[str, Any]:
        states = self.models.end_state(self._unsaved)
        assert states is not None
        return {
            "variables": variables.encode(states, writer),
            "others": self.models.encode(writer, without=self._unsaved),
            "callbacks": [],
            "ended_callbacks": self.ended_callbacks.encode(writer),
            "random": randomness.capture(),
            "logs": {},
            "verdict": dataclasses.astuple(self.verdict_before),
            "target": self.target.saved(),
        }

    # -- a fit call that is over --------------------------------------------------------------

    def _skip(
        self, model: Any, arguments: dict[str, Any], saved_state: SavedState, number: int
    ) -> Any:
        done = saved_state.resume_point.finished[number]
        self.finished.append(done)
        self.step = saved_state.resume_point.step
        callbacks = arguments["callbacks"]
        callback_state.restore_ended(
            callbacks, saved_state.ended_callbacks, number, model, saved_state.reader
        )
        self.ended_callbacks.fit_ended(callbacks)
        self.script_state.skip_fit(callback_state.flattened(callbacks), model, done.script)
        self.models.skip_fit(model)
        iterator = building.build_for(model, arguments)
        end_state = self._end_states.read(done.end_state)
        if not self.models.restore(model, done.model, saved_state, self._calls, end_state):
            self._lose_end_state()
        if saved_state.resume_point.position is None and self._calls == len(
            saved_state.resume_point.finished
        ):
            self.release_saved_state()
        validation = arguments["validation_data"]
        position.skip_fit(iterator, done.training, done.epochs, validation, done.validation)
        data = data_state.of(iterator, validation, model)
        data.fill_caches(done.data, goes_on=False)
        data.restore(done.data)
        randomness.restore(done.random)
        self._shuffles.count = done.random["shuffles"]
        self._note_saved()
        model.stop_training = done.stop_training
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
        saved_state: SavedState,
        number: int,
    ) -> Any:
        """Run a call that ended by an exception again: the script expects that exception."""
        complain(f"`fit` number {number + 1} had ended with an exception: it runs again, unsaved")
        done = saved_state.resume_point.finished[number]
        self.finished.append(done)
        self.step = saved_state.resume_point.step
        self.ended_callbacks.fit_ended(arguments["callbacks"])
        self.models.begin_fit(model)
        self._note_saved()
        try:
            return fit(model, **arguments)
        finally:
            randomness.restore(done.random)
            self._shuffles.count = done.random["shuffles"]

    # -- called by the running fit --------------------------------------------------------------

    @property
    def has_fit(self) -> bool:
        """Whether the script has called ``fit`` in this process."""
        return self._calls > 0

    @property
    def epochs_before(self) -> int:
        """Epochs of all finished fit calls."""
        return sum(fit.epochs for fit in self.finished)

    def first_boundary(self, model: Any) -> None:
        """Prepare saves before the first step of this process."""
        if not self._has_begun:
            self._has_begun = True
            self.reporter.phase_ended("build_s")
            self.reporter.update(step=self.step)
            self.saver.training_begins(variables.size_bytes(model))

    def steps_done(self, steps: int) -> bool:
        """Count and pace steps; True if they are the first of this process."""
        first = self._steps_here == 0
        self.step += steps
        self._steps_here += steps
        if self._pacer is not None:
            self._pacer.step_ended(steps)
        return first

    def is_last_step_done(self) -> bool:
        """Return whether the record's number of steps is reached."""
        return self.settings.steps is not None and self.step >= self.settings.steps

    def pause_pacer(self, seconds: float) -> None:
        """Leave out time in which no step ran, so that the pacer does not make up for it."""
        if self._pacer is not None:
            self._pacer.pause(seconds)

    def look_at_devices(self, model: Any, now_s: float) -> None:
        """Report how many devices the training of ``model`` uses (``now_s`` is monotonic)."""
        if self.settings.workers == 1:
            self.reporter.report_devices_used(self._used_devices.fit_steps(model, now_s))

    def late_steps(self) -> int:
        """Return how many steps ended too late for the device truth."""
        return self._pacer.late_steps if self._pacer is not None else 0

    def release_saved_state(self) -> None:
        """Free the memory of the checkpoint that was loaded; nothing needs it any more."""
        saved_state = self.saver.store.saved_state()
        if saved_state is not None:
            saved_state.reader.release()

    # -- outside of a fit ---------------------------------------------------------------------

    def other_boundary(self) -> None:
        """Answer a stop between two batches of an evaluation or prediction."""
        if self.fit is not None:
            self.fit.evaluation_boundary()
        elif self._unsaved is not None and self.saver.stop_due(time.monotonic()):
            self.saver.save_and_leave(self._resume_point(), self._capture)

    def other_iterator(self, iterator: Any) -> None:
        """Count an iterator that Keras makes over other data than a fit's training data."""
        if self.fit is not None:
            self.fit.other_iterator(iterator)

    def count_validation_draw(self, iterator: Any, source: Any) -> None:
        """Count the first draw from ``source``, an iterator over the validation data."""
        counts = self.fit.validation_counts(iterator) if self.fit is not None else None
        if counts is not None:
            counts.begun += source is not self._last_source
            self._last_source = source

    def script_ended(self) -> None:
        """Publish the newest state as the complete one: the script ended without an error."""
        if self.standby is not None and self.standby.waits:
            self.standby.hold("the script ends")
        if not self._calls:
            return  # The script trained without `fit`; the session API reports its own end.
        if self.fit is not None:
            return  # A thread of the script still trains; Python waits for it.
        if self.finished and self.finished[-1].raised:
            return  # The script left a fit in the middle (at a SIGTERM, say).
        if self._unsaved is not None and self.saver.store.enabled:
            self._save_end(complete=True)
        elif self.saver.store.newest_step() is not None:
            self.saver.complete(self._resume_point())
        self.reporter.update(step=self.step, epoch=self.epochs_before)
        self.reporter.phase(HookPhase.FINISHED)
        self.reporter.flush()


def _history(model: Any) -> Any:
    import keras

    history = keras.callbacks.History()
    history.set_model(model)
    history.epoch = []
    model.history = history
    return history
