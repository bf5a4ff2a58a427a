"""One ``fit`` call while it runs: its position in the data, its steps, its saves.

Does: counts steps, answers a stop between two steps and during a validation, saves periodically,
takes a resumed call to its position, and reports progress. ``keras_patch`` calls the methods;
``training`` runs the calls one after the other.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import Any, Protocol

from reshape_sidecar.contract import HookPhase
from reshape_sidecar.hook import (
    building,
    caches,
    callback_state,
    data_order,
    exactness,
    randomness,
    variables,
    warm_step,
)
from reshape_sidecar.hook.checkpoint import FinishedFit, ResumePoint, SavedState
from reshape_sidecar.hook.data_state import SavedData
from reshape_sidecar.hook.first_step import FitStep, of_fit
from reshape_sidecar.hook.garbage import CollectionPause
from reshape_sidecar.hook.models import Models
from reshape_sidecar.hook.pipelines import undistributed
from reshape_sidecar.hook.position import IteratorCounts, Position, SavedPosition
from reshape_sidecar.hook.progress import ProgressReporter, numbers_of
from reshape_sidecar.hook.recording import Recording
from reshape_sidecar.hook.saving import Saver
from reshape_sidecar.hook.script_state import ScriptState
from reshape_sidecar.hook.settings import HookSettings
from reshape_sidecar.hook.standby import Standby
from reshape_sidecar.hook.target import TargetJudge
from reshape_sidecar.hook.values import Writer
from reshape_sidecar.proof.first_steps import EPOCH_ENDED

UNCHANGED_BY_EVALUATION = ("model", "optimizer", "seed")
CHANGED_BY_EVALUATION = ("metrics", "attributes")
SEVERAL_WORKERS = "several workers train together"
IN_EVALUATION = "the save came in the middle of an evaluation"
ORDER_MOVED = "a callback, or a validation of a part, draws from the shuffled data of the training"


@dataclass(slots=True)
class _BeforeValidation:
    """State that a validation changes, captured when the epoch's last step was done."""

    position: SavedPosition
    changed: list[variables.VariableState]
    random: dict[str, Any]
    data: SavedData
    logs: dict[str, float]


class FitContext(Protocol):
    """What a running ``fit`` call needs of the job: state over all calls, savers and reporters."""

    settings: HookSettings
    saver: Saver
    reporter: ProgressReporter
    recording: Recording
    models: Models
    ended_callbacks: callback_state.EndedCallbacks
    finished: list[FinishedFit]
    step: int
    verdict_before: exactness.Verdict
    target: TargetJudge
    script_state: ScriptState
    collections: CollectionPause
    standby: Standby | None

    @property
    def epochs_before(self) -> int:
        """Epochs of all finished fit calls."""

    def first_boundary(self, model: Any) -> None:
        """Prepare saves before the first step of this process."""

    def steps_done(self, steps: int) -> bool:
        """Count and pace steps; True if they are the first of this process."""

    def is_last_step_done(self) -> bool:
        """Return whether the record's number of steps is reached."""

    def pause_pacer(self, seconds: float) -> None:
        """Leave out time in which no step ran."""

    def look_at_devices(self, model: Any, now_s: float) -> None:
        """Report how many devices the training of ``model`` uses (``now_s`` is monotonic)."""

    def late_steps(self) -> int:
        """Return how many steps ended too late for the device truth."""

    def release_saved_state(self) -> None:
        """Free the memory of the checkpoint that was loaded."""

    def go_on_prepared(self, fit: Fit, reason: str) -> None:
        """Wait for the release of a successor; then ``fit`` resumes."""


class Fit:
    """One ``fit`` call of Keras; its methods run inside the call, in its thread."""

    def __init__(
        self,
        job: FitContext,
        model: Any,
        initial_epoch: int,
        validation: Any,
        resumed: SavedState | None,
        *,
        validates: bool,
    ) -> None:
        self._job = job
        self.model = model
        self._pending_resume = resumed
        self.initial_epoch = initial_epoch
        self._validates = validates
        self.validation_data = validation
        self.callbacks: Any = None
        self.position: Position | None = None
        self.epochs_done = 0
        """Epochs that this call has finished in all processes together."""
        self.in_epoch = False
        self.last_logs: Any = None
        self._epoch = 0
        self._batch = 0
        self._exactness_checked = False
        self._evaluation_began_s = 0.0
        self._pause_began_s: float | None = None
        self._boundary: SavedPosition | None = None
        self._only_validation_left = False
        self._evaluating = False
        self._before_validation: _BeforeValidation | None = None
        self.prepares = False
        """True in a successor until its release: the call is prepared, and then resumes."""
        self._traced: warm_step.Attributes | None = None
        self._states: list[variables.VariableState] | None = None
        self._measure: FitStep | None = None
        self._is_measured = False

    @property
    def resumes(self) -> bool:
        """Whether this call still has to go to the position of its checkpoint."""
        return self._pending_resume is not None

    def prepare(self) -> None:
        """Do what the first step needs before the callbacks' ``on_train_begin``, then wait."""
        assert self.position is not None
        standby = self._job.standby
        assert standby is not None
        reason = warm_step.prepare(self.model, self.position.iterator, standby)
        self._traced = warm_step.attributes(self.model)
        self._job.go_on_prepared(self, reason)
        self.prepares = False

    def misfit(self, saved_state: SavedState) -> str:
        """Return why the model does not fit ``saved_state``; empty if it does."""
        self._states = variables.decode(saved_state.variables, saved_state.reader)
        try:
            variables.check(self.model, self._states)
        except variables.StateMismatch as error:
            return str(error)
        return ""

    def resume_from(self, saved_state: SavedState) -> None:
        """Make ``saved_state`` what this prepared call resumes from."""
        self._pending_resume = saved_state

    def train_begins(self, callbacks: Any) -> None:
        """Note the callbacks after their ``on_train_begin``; no step has run yet."""
        self.callbacks = callbacks
        assert self.position is not None
        if self._pending_resume is not None:
            epoch = self._pending_resume.resume_point.fit_epoch
            self.model._initial_epoch = epoch or None
            self.epochs_done = epoch - self.initial_epoch
            self.last_logs = self._pending_resume.logs
        verdict = exactness.before_training(self.model, self.position, self._job.settings)
        self._job.reporter.set_verdict(verdict.after(self._job.verdict_before))
        self._job.script_state.fit_begins(callbacks.callbacks, self.model)

    def name_script_state(self) -> None:
        """Name the state of the script that a restart would lose, in every later verdict."""
        if self.position is None or self.callbacks is None:
            return
        job = self._job
        self.position.data.look_at_shared()
        self._name_late_reasons()
        for reason, kind in job.script_state.findings(self.position.datasets()):
            job.reporter.set_verdict(job.reporter.verdict.worse(reason, kind))
            job.verdict_before = job.verdict_before.worse(reason, kind)

    def _name_late_reasons(self) -> None:
        reporter = self._job.reporter
        for reason in self.position.data.late_reasons() if self.position is not None else ():
            reporter.set_verdict(reporter.verdict.worse(reason))

    def epoch_begins(self, epoch: int) -> None:
        """Begin an epoch after the callbacks' ``on_epoch_begin``; restore a resumed fit.

        The saved state holds what the callbacks did at the start of this epoch (a learning rate,
        say), so it is restored after they ran.
        """
        self._epoch, self._batch = epoch, 0
        self.model._initial_epoch = None  # of this call alone, but Keras would keep it for the next
        pending, self._pending_resume = self._pending_resume, None
        if pending is not None:
            self._resume(pending)
        self.in_epoch = True
        if not self._is_measured:
            self._measure_steps()
        self._job.reporter.clock.begin(time.monotonic())

    def _measure_steps(self) -> None:
        """Measure the first step of this process, and the one in which it leaves."""
        saver = self._job.saver
        self._is_measured = True

        def begun(measure: FitStep) -> None:
            self._measure = measure

        saver.first_steps.goes_on_from = saver.store.newest()
        saver.first_steps.measured_by(of_fit(self.model, begun), why_not=self._why_no_step)

    def _why_no_step(self) -> str:
        """Return why no step can follow a save; empty if one can."""
        length = self.position.epoch_length() if self.position is not None else None
        if self._job.settings.workers > 1:
            return SEVERAL_WORKERS
        if self._evaluating:
            return IN_EVALUATION
        ended = not self.in_epoch or (length is not None and self._batch >= length)
        return EPOCH_ENDED if ended else ""

    def _resume(self, saved_state: SavedState) -> None:
        self._pause_began_s = time.monotonic()
        self._job.collections.begin()
        position, reader = saved_state.resume_point.position, saved_state.reader
        assert position is not None
        assert self.position is not None
        if (spawned_at_s := self._job.settings.spawned_at_s) is not None:
            old_s = max(0.0, time.monotonic() - spawned_at_s)
            caches.remove_unfinished(self.position.datasets(), before_s=time.time() - old_s)
        if self._traced is None or self._traced != warm_step.attributes(self.model):
            if self._traced is not None:  # a callback changed what the step was traced with
                self.model.make_train_function(force=True)
            building.build(self.model, self.position.iterator)
        reporter = self._job.reporter
        reporter.phase_ended("build_s")
        reporter.phase(HookPhase.RESTORING)
        self.position.go_to(position, self.epochs_done, self.validation_data)
        states, self._states = self._states, None
        variables.restore(self.model, states or variables.decode(saved_state.variables, reader))
        callback_state.restore(self.callbacks.callbacks, saved_state.callbacks, reader)
        self._job.script_state.restore(saved_state.script)
        randomness.restore(saved_state.random)
        self.position.restore_data(saved_state.data)
        self._batch = position.batch
        self._job.step = saved_state.resume_point.step
        self._job.release_saved_state()
        reporter.phase_ended("restore_s")

    def boundary(self) -> None:
        """Save if due between two steps; does not return if the job was asked to leave."""
        if not self.in_epoch:
            return
        now_s = time.monotonic()
        if self._pause_began_s is not None:
            self._job.pause_pacer(now_s - self._pause_began_s)
            self._pause_began_s = None
        self._job.first_boundary(self.model)
        assert self.position is not None
        self._boundary = self.position.snapshot(
            self._batch, data_order.restarts_validation(self.model)
        )
        saver = self._job.saver
        if saver.stop_due(now_s):
            saver.save_and_leave(self._resume_point(), self._capture)
        elif saver.due(now_s):
            saver.save(self._resume_point(), self._capture)
            self._job.reporter.clock.begin(time.monotonic())

    def step_begins(self) -> None:
        """Stand behind the callbacks' ``on_train_batch_begin``: the step comes next."""
        if self._measure is not None:
            self._measure.begin()

    def step_made(self) -> None:
        """Stand before the callbacks' ``on_train_batch_end``; a process that leaves does so now."""
        job, steps = self._job, self._job.saver.first_steps
        steps.boundary()
        if self._measure is not None:
            self._measure, job.verdict_before = None, steps.judged(job.verdict_before)

    def step_ended(self, end: int, logs: Any) -> None:
        """Count the batches up to ``end`` after the callbacks' ``on_train_batch_end``."""
        done = end + 1
        length = self.position.epoch_length() if self.position is not None else None
        if length:
            done = min(done, length)
        steps = max(1, done - self._batch)
        self._batch = done
        self.last_logs = logs
        job = self._job
        first = job.steps_done(steps)
        job.collections.end()
        job.recording.step_ended(job.step, logs)
        if job.is_last_step_done():
            self.model.stop_training = True
        now_s = time.monotonic()
        if not self._exactness_checked:
            self._exactness_checked = True
            job.reporter.set_verdict(
                exactness.after_first_step(self.model, self.position, job.reporter.verdict)
            )
        self._name_late_reasons()
        reports = first or job.reporter.due(now_s)
        if reports:
            self.name_script_state()
            job.look_at_devices(self.model, now_s)
        if first:
            job.reporter.phase_ended("first_step_s")
            job.reporter.phase(HookPhase.TRAINING)
            job.reporter.clock.begin(now_s)
        else:
            job.reporter.clock.steps_done(now_s, steps)
        if reports:
            self._report_progress(length)

    def steps_over(self) -> None:
        """Note that the epoch's steps are done; its validation, if any, comes next."""
        self._job.saver.first_steps.leave_here()
        if self.in_epoch and not self._evaluating and self._pause_began_s is None:
            self._pause_began_s = time.monotonic()
            self._only_validation_left = True

    def evaluation_begins(self) -> None:
        """Capture what an evaluation inside this fit is about to change.

        Nothing is captured if a callback of the script acts during validation: its effects are
        unknown.
        """
        self._evaluating, self._evaluation_began_s = True, time.monotonic()
        last = self._boundary
        if callback_state.act_during_validation(self.callbacks.callbacks):
            return
        if self.position is None or last is None or last.batch != self._batch:
            return
        if self._only_validation_left:
            self._before_validation = _BeforeValidation(
                position=last,
                changed=variables.capture(self.model, CHANGED_BY_EVALUATION),
                random=randomness.capture(),
                data=self.position.data.capture(),
                logs=numbers_of(self.last_logs),
            )

    def evaluation_ended(self) -> None:
        """Forget the captured state after an evaluation."""
        if data_order.restarts_validation(self.model):
            self.note_iterator(self.validation_data)
        self._evaluating = False
        self._before_validation = None
        took_s = time.monotonic() - self._evaluation_began_s
        self._job.reporter.clock.evaluation_took(took_s)

    def evaluation_boundary(self) -> None:
        """Answer a stop between two batches of a validation.

        The next process runs the validation again from its start, and no step. If a callback of
        the script acts during validation, a stop waits for its end.
        """
        if self._before_validation is not None and self._job.saver.stop_due(time.monotonic()):
            self._job.saver.save_and_leave(self._resume_point(), self._capture)

    def validation_counts(self, iterator: Any) -> IteratorCounts | None:
        """Return the counts of this call's validation data if ``iterator`` runs over them."""
        validating = getattr(self.model, "_eval_epoch_iterator", None)
        if self.position is None or iterator is not validating:
            return None
        return self.position.validation

    def other_iterator(self, iterator: Any) -> None:
        """Count an iterator that Keras makes over other data than the training's."""
        counts = self.validation_counts(iterator)
        if counts is not None:
            counts.made += 1
        else:
            self.note_iterator(undistributed(iterator._distributed_dataset))

    def note_iterator(self, dataset: Any) -> None:
        """Check an iterator over ``dataset`` that this call did not make for its steps."""
        if self.position is None or self.callbacks is None:
            return
        if data_order.share_a_shuffle(self.position.undistributed(), dataset):
            self._job.reporter.set_verdict(self._job.reporter.verdict.worse(ORDER_MOVED))

    def epoch_ends(self) -> None:
        """End an epoch before the callbacks' ``on_epoch_end``: saves wait for the next epoch."""
        self._only_validation_left = False

    def epoch_ended(self) -> None:
        """Count an epoch after the callbacks' ``on_epoch_end``; the next has not begun."""
        self.in_epoch = False
        self._job.reporter.clock.epoch_over(time.monotonic())
        self.epochs_done += 1
        self._pause_began_s = self._pause_began_s or time.monotonic()

    def judge(self, values: dict[str, float]) -> None:
        """End this call if the epoch that has ended reached the target accuracy.

        ``values``: the epoch's metrics, those of its validation included.
        """
        job, position = self._job, self.position
        reached = job.target.epoch_ended(
            values,
            lambda: building.metric_names(self.model),
            validates=self._validates,
            step=job.step,
            epoch=job.epochs_before + self.epochs_done,
        )
        if reached:
            self.model.stop_training = True
        self._report_progress(position.epoch_length() if position is not None else None)

    def _resume_point(self) -> ResumePoint:
        return ResumePoint(
            step=self._job.step,
            epoch=self._job.epochs_before + self.epochs_done,
            finished=tuple(self._job.finished),
            fit_epoch=self._epoch,
            position=self._boundary,
        )

    def _capture(self, writer: Writer) -> dict[str, Any]:
        assert self.position is not None
        flush = getattr(self.callbacks, "_flush_futures", None)
        if flush is not None:
            flush()
        self.name_script_state()
        before = self._before_validation
        if before is None:
            states = variables.capture(self.model)
        else:
            states = variables.capture(self.model, UNCHANGED_BY_EVALUATION)
            states = variables.in_order([*states, *before.changed])
        return {
            "variables": variables.encode(states, writer),
            "others": self._job.models.encode(writer, without=self.model),
            "callbacks": callback_state.capture(self.callbacks.callbacks, writer),
            "ended_callbacks": self._job.ended_callbacks.encode(writer),
            "random": randomness.capture() if before is None else before.random,
            "data": dataclasses.astuple(
                self.position.data.capture() if before is None else before.data
            ),
            "script": self._job.script_state.capture(),
            "logs": numbers_of(self.last_logs) if before is None else before.logs,
            "verdict": dataclasses.astuple(self._job.reporter.verdict),
            "target": self._job.target.saved(),
        }

    def _report_progress(self, length: int | None) -> None:
        reporter = self._job.reporter
        reporter.update(
            step=self._job.step,
            epoch=self._job.epochs_before + self.epochs_done,
            steps_per_epoch=length,
            total_steps=self._total_steps(length),
            checkpoint_step=self._job.saver.store.newest_step(),
            late_steps=self._job.late_steps(),
        )
        reporter.report_logs(self.last_logs)

    def _total_steps(self, length: int | None) -> int | None:
        limit = self._job.settings.steps
        epochs = (self.callbacks.params or {}).get("epochs")
        if length is None or epochs is None:
            return limit
        left = (int(epochs) - self._epoch) * length - self._batch
        total = self._job.step + max(0, left)
        return total if limit is None else min(total, limit)
