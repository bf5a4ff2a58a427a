"""The session API (level 2): any training loop saves on request, resumes, and reports progress.

Does: finds the newest checkpoint, counts and paces steps, reports to the agent, publishes what the
loop writes, and leaves on request. Standard library only. A program that is started by hand runs
without Reshape, and without saving.

    job = session.start()
    if job.checkpoint is not None:
        load(job.checkpoint)
    while job.step < steps:
        loss = train_one_step()
        job.step_done(save, loss=loss)     # may save, and leaves when asked to: in the next step
    job.finished(save)

``save`` gets an empty folder and writes the whole state into it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from reshape_sidecar import checkpoints, device_truth
from reshape_sidecar.batch_loops import BatchLoops
from reshape_sidecar.checkpoints import DiskFull, PublishedCheckpoint
from reshape_sidecar.claims import CheckpointError, StaleAttempt
from reshape_sidecar.contract import HookPhase
from reshape_sidecar.hook import recording, save_barrier, target, trackers
from reshape_sidecar.hook import settings as hook_settings
from reshape_sidecar.hook.evaluations import EvaluationLog, number_of
from reshape_sidecar.hook.exactness import Verdict
from reshape_sidecar.hook.log import complain
from reshape_sidecar.hook.progress import ProgressReporter
from reshape_sidecar.hook.report import ReportSender
from reshape_sidecar.hook.save_barrier import SaveBarrier
from reshape_sidecar.hook.saving import SaveInterval
from reshape_sidecar.hook.settings import HookSettings
from reshape_sidecar.hook.stop import Stop
from reshape_sidecar.hook.target import TargetJudge
from reshape_sidecar.proof.first_steps import FirstSteps
from reshape_sidecar.ranks import boundary
from reshape_sidecar.ranks.boundary import RankBoundary
from reshape_sidecar.verdict import loops
from reshape_sidecar.verdict.loops import Keep, OwnState
from reshape_sidecar.wire import LEVEL_ABILITIES, Saves

SAVE_AGAIN_AFTER_S = 5.0
"""Pause before a requested save that failed is tried again."""
LAST_SAVE_WAIT_S = 600.0
"""Longest wait of the last save for room on a full disk."""
SAVE_EVERY_STEPS = 100
"""Default of steps between two saves of a job of several workers."""

Write = Callable[[Path], None]


class Session:
    """One training loop. Steps count from the job's very first start."""

    def __init__(
        self, settings: HookSettings, total_steps: int | None, save_every_steps: int | None = None
    ) -> None:
        self._settings = settings
        self._stop = Stop(settings.keep_running)
        self._recording = recording.from_environment(self._stop, settings.chief)
        self._reporter = ProgressReporter(
            ReportSender(settings.socket if settings.rank == 0 else None),
            settings.generation,
            settings.spawned_at_s,
            self._saves if settings.report_level >= LEVEL_ABILITIES else None,
        )
        self._pacer = device_truth.pacer_of(
            settings.device_truth if settings.simulated and settings.rank == 0 else None,
            settings.job_type,
            settings.name,
            len(settings.devices) * settings.workers,
            complain,
        )
        self._target = TargetJudge(settings.target, self._reporter.report_target)
        self._evaluations = EvaluationLog(self._reporter.report_evaluations)
        several = settings.workers > 1
        self._barrier = SaveBarrier(settings, self._reporter, self._stop) if several else None
        self._ranks = boundary.of(settings)
        self._save_every_steps = save_every_steps or SAVE_EVERY_STEPS
        self._newest: PublishedCheckpoint | None = None
        self._interval = SaveInterval(time.monotonic())
        self._retry_at_s, self._first = 0.0, True
        self.clock, self._reporter.level = self._reporter.clock, settings.report_level
        """The times of steps, evaluations and ends of epochs."""
        self._loops = BatchLoops(self, settings)
        self._metrics: dict[str, float] = {}
        self.first_steps = FirstSteps(settings, self._reporter, self._stop, self.devices)
        """The first step of this process, and the one in which it leaves."""
        self._own_state, self._is_judged = OwnState(), False
        self.is_recorded = recording.is_asked()
        """Whether ``reshape verify`` compares this run; the same on every rank."""
        self.step = 0
        """Steps done."""
        self.epoch = 0
        self.total_steps = settings.steps if settings.steps is not None else total_steps
        """Length in steps: the record's, or else the program's; the steps done once the target
        accuracy is reached."""
        if settings.checkpoints is not None:
            if settings.chief:
                checkpoints.claim(settings.checkpoints, settings.attempt, settings.job)
            else:
                save_barrier.wait_for_claim(settings.checkpoints, settings.attempt, settings.job)
            self._newest = checkpoints.newest(settings.checkpoints, settings.hashed)
        self.first_steps.goes_on_from = self._newest
        self._kept, self._kept_before = Keep(), loops.read(self.checkpoint)
        trackers.TRACKERS.resume(self.checkpoint)
        if self._newest is not None:
            self.step = self._newest.manifest.step
            self.epoch = self._newest.manifest.epoch
            self._target.restore(target.read(self._newest.path))
            if self.target_reached:
                self.total_steps = self.step
        self.loop_begins()  # from now on the parent sends no SIGTERM
        self._reporter.update(step=self.step, epoch=self.epoch, total_steps=self.total_steps)
        self._reporter.phase(HookPhase.BUILDING)

    @property
    def checkpoint(self) -> Path | None:
        """Folder of the newest checkpoint to load; None: begin from nothing."""
        return None if self._newest is None else self._newest.path

    @property
    def settings(self) -> HookSettings:
        """What the agent has told this process."""
        return self._settings

    @property
    def devices(self) -> int:
        """Number of devices (GPUs or simulated ones) of this start; 1 without Reshape."""
        return self._settings.gpus

    @property
    def complete(self) -> bool:
        """Whether an earlier process has finished the training."""
        return self._newest is not None and self._newest.manifest.complete

    @property
    def target_reached(self) -> bool:
        """Whether the evaluations have reached the record's target accuracy."""
        return self._target.state.reached

    def evaluated(self, metric: str, value: float) -> bool:
        """Report an evaluation after the steps so far; return whether to end the training.

        Call it on every worker, before the step that follows, so that a process that starts again
        at this step repeats it. Once the target is reached, ``total_steps`` are the steps done.
        Always False without a ``target_accuracy`` in the record. Raises TypeError if ``value`` is
        no number, ValueError if the metric is judged and its value is no share.

        metric: name as in the record's ``metric``; if that names none, a validation accuracy
            (``val_...``) is judged, or else the first accuracy.
        value: a share from 0 to 1 if the metric is judged.
        """
        number = number_of(metric, value)
        if self._target.judges(metric) and not 0.0 <= number <= 1.0:
            raise ValueError(
                f"evaluated: {metric} is {number:g}, and the record's target_accuracy is a share; "
                "give a share from 0 to 1 (93.5 % is 0.935)"
            )
        self.clock.evaluated(time.monotonic())
        self._evaluations.add(metric, number, step=self.step)
        reached = self._target.evaluated(metric, number, step=self.step, epoch=self.epoch)
        if reached:
            self.total_steps = self.step
        if self._target.active:
            self._reporter.update(step=self.step, epoch=self.epoch, total_steps=self.total_steps)
            self._reporter.report_target(self._target.state)
            self._reporter.send()
        return reached

    def epochs(self, count: int | None = None) -> Iterator[int]:
        """Yield the numbers of the epochs that are left, for a loop by ``batches``.

        The body is repeated for the epoch in which the process before left. The end of training is
        published after the last one. ``count``: number of all epochs, unless the record has it.
        """
        return self._loops.epochs(count)

    def batches(
        self,
        loader: Any,
        *,
        model: Any,
        optimizer: Any,
        scheduler: Any = None,
        scaler: Any = None,
        state: Any = None,
        epochs: int | None = None,
    ) -> Iterator[Any]:
        """Yield the batches of a PyTorch DataLoader (this process's share of each) or of a
        ``tf.data`` pipeline, from where the process before left; save, report and leave between
        two of them.

        Inside a loop over ``job.epochs()`` these are the batches of one epoch, otherwise those of
        all ``epochs``. The first call restores the objects that it gets, each one or a list, from
        the checkpoint. Raises LoaderError, LoopError, CheckpointError.

        loader: its batches are those of all GPUs together.
        state: of a TensorFlow loop, further objects with variables: metrics, generators, variables.
        """
        return self._loops.batches(
            loader,
            model=model,
            optimizer=optimizer,
            scheduler=scheduler,
            scaler=scaler,
            state=state,
            epochs=epochs,
            frame=sys._getframe(1),
        )

    def micro_batches(self, batch: Any) -> Iterator[Any]:
        """Yield the micro-batches of a ``batch`` of ``batches``, for its forward and backward pass.

        Under ``batch: micro`` there are as many as GPUs stand in for others, and the gradients are
        their average, as those of several GPUs are; otherwise ``batch`` is the only one.
        """
        return self._loops.micro_batches(batch, sys._getframe(1))

    def keep(self, **values: Any) -> Keep:
        """Return an object with these attributes, which every checkpoint holds from now on.

        For numbers, texts, lists and arrays that a loop carries from step to step: ``kept =
        job.keep(best=9.0)``, and ``kept.best = min(kept.best, loss)`` in the body. After a restart
        it has the values of the checkpoint. A second call adds attributes to the same object.
        Raises TypeError for a value that has no exact form.
        """
        self._kept.add(values, self._kept_before)
        return self._kept

    def metrics(self, *, loss: float | None = None, accuracy: float | None = None) -> None:
        """Report values of the step that the loop over ``batches`` makes now."""
        values = {"loss": loss, "accuracy": accuracy}
        self._metrics = {name: float(value) for name, value in values.items() if value is not None}

    def take_metrics(self) -> dict[str, float]:
        """Return the values of the step, once."""
        taken, self._metrics = self._metrics, {}
        return taken

    def check_joined(self) -> None:
        """Raise NotJoined if this process trains without those of the other GPUs."""
        if self._ranks is not None:
            self._ranks.check_joined()

    def record_weights(self, portraits: Callable[[], dict[str, Any]]) -> None:
        """Record ``portraits()`` with each step of a run that ``reshape verify`` compares."""
        self._recording.weights = portraits

    def set_verdict(self, verdict: Verdict) -> None:
        """Report whether a reshape changes the numbers of training."""
        self._is_judged = True
        self._reporter.set_verdict(self.first_steps.judged(verdict))

    def leave_saved(self) -> None:
        """Leave in a step after the save, of which figures are kept, or now."""
        self.first_steps.leave(self._newest, self.leave)

    def should_stop(self) -> bool:
        """Return whether the loop shall save and leave.

        With ``processes: per-gpu`` every process calls it after each step, and all get the same
        answer after the same step.
        """
        if self._ranks is None:
            return self._stop.requested()
        self._stop.is_asked(by_parent=self._ranks.is_asked)
        if self._stop.requested():
            self._ranks.ask_to_stop()
        return self._ranks.stops_after(self.step)

    def step_done(
        self,
        write: Write | None = None,
        *,
        steps: int = 1,
        epoch: int | None = None,
        loss: float | None = None,
        accuracy: float | None = None,
    ) -> None:
        """Count a step: pace it, report it, and save if that is due. Call it after each step.

        On a request to leave it saves and ends the process. Without ``write`` it does not save:
        then check ``should_stop``, and call ``save`` and ``leave``.
        """
        self.first_steps.boundary()
        self.check_joined()
        self.step += steps
        self.epoch = self.epoch if epoch is None else epoch
        if self._pacer is not None:
            self._pacer.step_ended(steps)
        if not self._is_judged:
            self._loops.check_own_loop()
            if (verdict := self._own_state.step_ended()) is not None:
                self._reporter.set_verdict(self.first_steps.judged(verdict))
        now_s = time.monotonic()
        self._recording.step_ended(self.step, {"loss": loss, "accuracy": accuracy})
        self._report(now_s, steps, loss, accuracy)
        if write is not None and self._barrier is not None:
            self._save_with_all(self._barrier, write, now_s)
        elif write is not None and self._ranks is not None:
            self._save_with_ranks(self._ranks, write, now_s)
        elif write is not None:
            leave_due = self.should_stop() and now_s >= self._retry_at_s
            if leave_due or self._interval.due(now_s):
                is_saved = self.save(write)
                if leave_due and is_saved:
                    self.leave_saved()
                elif leave_due:
                    self._retry_at_s = time.monotonic() + SAVE_AGAIN_AFTER_S

    def save(self, write: Write) -> bool:
        """Publish the state after the steps counted so far; False if the disk refused.

        With ``processes: per-gpu`` the process of rank 0 alone calls ``write``. If all processes
        stop, the others wait for it and return the same.
        """
        self.first_steps.leave_here()
        ranks = self._ranks
        if ranks is None or not ranks.is_stopped(self.step):
            return self._publish(write, complete=False) is None
        if not ranks.chief:
            return ranks.wait_for_save(self.step)
        return ranks.save_ended(self.step, self._publish(write, complete=False) is None)

    def finished(self, write: Write) -> None:
        """Publish the end of training; do nothing if it is published already.

        Waits for room on a full disk, unless several workers save together. Raises CheckpointError
        if the disk refused: training without a saved end must not count as completed.
        """
        self.first_steps.leave_here()
        give_up_s = time.monotonic() + LAST_SAVE_WAIT_S
        while not self.complete and (refused := self._publish(write, complete=True)):
            full = isinstance(refused, DiskFull) and self._barrier is None
            if full and time.monotonic() < give_up_s:
                time.sleep(SAVE_AGAIN_AFTER_S)
                continue
            what = f"the end of training, step {self.step}, is not saved; the log says why"
            raise CheckpointError(
                f"{what}. After a restart it goes on from the previous checkpoint."
            )
        if self._ranks is not None:
            self._ranks.finish()
        self._reporter.update(step=self.step, epoch=self.epoch)
        self._reporter.phase(HookPhase.FINISHED)
        self._reporter.flush()

    def saves_now(self) -> bool:
        """Return whether a save is due after the steps so far, of all processes at once.

        For a save in which every process of a job with ``processes: per-gpu`` has a part. Each asks
        after each step, and rank 0 announces the save a step before.
        """
        is_due = self._interval.due(time.monotonic())
        if self._ranks is None or self._settings.ranks == 1:
            return is_due
        return self._ranks.saves_after(self.step, is_due=is_due)

    def loop_begins(self) -> None:
        """Answer a stop at a boundary from now on."""
        self._stop.nothing_to_save, self._stop.answered_by_loop = False, True
        self._stop.install()
        if self._ranks is not None:
            self._ranks.take_part(self.step)

    def loop_ended(self) -> None:
        """Answer a stop at once from now on: no loop runs, and everything is on disk."""
        self._stop.answered_by_loop, self._stop.nothing_to_save = False, True
        if self._ranks is not None:
            self._ranks.rest()

    def leave(self) -> NoReturn:
        """End the process as saved; a later process goes on."""
        self._reporter.phase(HookPhase.SAVED)
        self._reporter.flush()
        self._stop.leave()

    def _saves(self) -> Saves:
        return Saves.SIGTERM if self._stop.is_replaced() else Saves.BOUNDARY

    def _save_with_all(self, barrier: SaveBarrier, write: Write, now_s: float) -> None:
        """Save with all workers after the same steps; only the chief's save is published."""
        if barrier.due(self.step):
            is_saved = self.save(write)
            if not barrier.chief:
                barrier.wait_to_leave()
            if self.should_stop() and is_saved:
                self.leave()
            self._retry_at_s = 0.0 if is_saved else time.monotonic() + SAVE_AGAIN_AFTER_S
            barrier.save_ended()
        elif self.step % self._save_every_steps == 0:
            self.save(write)
        if not self.should_stop() or now_s < self._retry_at_s:
            return
        if not barrier.chief:
            self.leave()
        barrier.raise_barrier(self.step)
        if self._pacer is not None:
            self._pacer.pause(time.monotonic() - now_s)

    def _save_with_ranks(self, ranks: RankBoundary, write: Write, now_s: float) -> None:
        """Save on rank 0: before all ranks stop, or because a save is due; the others need not."""
        if self.should_stop():
            if self.save(write):
                self.leave_saved()
        elif ranks.chief and self._interval.due(now_s):
            self.save(write)

    def _report(self, now_s: float, steps: int, loss: float | None, accuracy: float | None) -> None:
        if self._first:
            self._reporter.phase_ended("first_step_s")
            self._reporter.phase(HookPhase.TRAINING)
        self.clock.steps_done(now_s, steps)
        if self._first or self._reporter.due(now_s):
            late = self._pacer.late_steps if self._pacer is not None else 0
            self._reporter.update(
                step=self.step, epoch=self.epoch, total_steps=self.total_steps, late_steps=late
            )
            self._reporter.report_logs({"loss": loss, "accuracy": accuracy})
        self._first = False

    def _publish(self, write: Write, *, complete: bool) -> CheckpointError | None:
        """Publish; return the disk's error, or None if it is published or need not be here."""
        if self._settings.checkpoints is None or self._settings.rank > 0:
            return None
        if not self._settings.chief:
            checkpoints.write_and_discard(write)  # only the chief publishes
            return None
        began_s, written = time.monotonic(), False

        def write_once(folder: Path) -> None:
            nonlocal written
            written = True
            write(folder)
            self._kept.write(folder)
            self._target.write(folder)
            trackers.TRACKERS.write(folder)

        self._reporter.phase(HookPhase.SAVING)
        try:
            self._newest = checkpoints.publish(
                self._settings.checkpoints,
                step=self.step,
                epoch=self.epoch,
                attempt=self._settings.attempt,
                generation=self._settings.generation,
                write=write_once,
                complete=complete,
                job=self._settings.job,
            )
        except StaleAttempt:
            raise
        except CheckpointError as error:
            complain(str(error))
            if self._barrier is not None and not written:
                checkpoints.write_and_discard(write)  # the other workers wait in their save
            self._interval.save_failed(time.monotonic())
            self._reporter.phase(HookPhase.TRAINING)
            return error
        took_s = time.monotonic() - began_s
        self._interval.save_ended(time.monotonic(), took_s)
        self.clock.begin(time.monotonic())
        if self._pacer is not None:
            self._pacer.pause(took_s)
        self._reporter.update(step=self.step, epoch=self.epoch, checkpoint_step=self.step)
        self._reporter.save_ended(took_s)
        stops = self._ranks is not None and self._ranks.is_stopped(self.step)
        if not stops and not self._stop.requested():
            self._reporter.phase(HookPhase.TRAINING)
        return None


def start(total_steps: int | None = None, *, save_every_steps: int | None = None) -> Session:
    """Claim the checkpoint folder, find the newest checkpoint, and handle SIGTERM.

    ``total_steps`` is reported to the agent unless the job record sets a length in steps. A job of
    several workers saves every ``save_every_steps`` steps, because all of them have to save after
    the same step; a single worker saves as often as its saves are cheap. Raises CheckpointError
    (StaleAttempt under a newer attempt), SettingsError.
    """
    settings = hook_settings.from_environment(os.environ) or HookSettings()
    session = Session(settings, total_steps, save_every_steps)
    if "torch" in sys.modules and settings.workers == 1:
        from reshape_sidecar.pytorch import first_step

        first_step.measure_own_loop(session.first_steps, settings.ranks)
    return session
