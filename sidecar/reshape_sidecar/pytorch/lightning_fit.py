"""The fits of a script that uses Lightning's Trainer: counted, saved and resumed.

Does: counts each step of the optimizer, saves at such boundaries on every process at once, leaves
there on request, and goes on in mid-epoch in the next process. A fit that has ended is not trained
again: its end is restored. Never: cuts an evaluation, a save or accumulated gradients.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch

from reshape_sidecar.hook.exactness import EXACT, STEPS_ONLY, UNKNOWN, Verdict
from reshape_sidecar.hook.settings import HookSettings
from reshape_sidecar.loop_session import Write
from reshape_sidecar.proof.first_steps import FirstSteps
from reshape_sidecar.pytorch import (
    data,
    first_step,
    lightning_state,
    lightning_verdict,
    run_folders,
)
from reshape_sidecar.pytorch.collectives import of_first
from reshape_sidecar.pytorch.lightning_data import READ_BY_STEP, Loaders
from reshape_sidecar.pytorch.lightning_micro import MicroSteps
from reshape_sidecar.pytorch.lightning_script import FitScript
from reshape_sidecar.pytorch.lightning_state import OWN, STATE_FILE, Position
from reshape_sidecar.pytorch.loop import VERDICT_STEPS, TrainerSession
from reshape_sidecar.pytorch.micro_batches import LookInside
from reshape_sidecar.pytorch.weights import CARRIED, GradientLook, portraits
from reshape_sidecar.wire import Trajectory

METRICS = ("_callback_metrics", "_logged_metrics", "_progress_bar_metrics")
State = dict[str, Any]


class FitSession(TrainerSession, Protocol):
    """What fits need of their session (``reshape_sidecar.session``)."""

    @property
    def settings(self) -> HookSettings: ...

    @property
    def checkpoint(self) -> Path | None: ...

    def loop_begins(self) -> None: ...

    def loop_ended(self) -> None: ...

    def finished(self, write: Write) -> None: ...

    def leave_saved(self) -> None: ...


class Fit:
    """One call of ``Trainer.fit``."""

    def __init__(
        self, trainer: Any, session: FitSession, number: int, loaders: Loaders, script: FitScript
    ) -> None:
        self.trainer, self.number, self.clock = trainer, number, session.clock
        self.loaders, self.script = loaders, script
        self.state: State | None = None
        """The state to restore; None: there is none, or it is restored."""
        self.own: State = {}
        """What Reshape has added to that state."""
        self.is_over = False
        """Whether an earlier process has made this fit."""
        self.in_epoch = False
        """Whether it goes on in mid-epoch."""
        self.resumes = False
        """Whether its first batch is still to come after a restore."""
        self.trains = self.has_trained = self.draws = False
        self.global_step = 0
        """Lightning's count at the last boundary."""
        self.loss: Any = None
        self.has_evaluated = False
        """Whether an evaluation has ended since the last boundary."""
        self.looks = VERDICT_STEPS
        self.before: dict[str, Any] | None = None
        """States of the generators before a batch, as soon as it is read; until one has drawn."""
        self.gradients: GradientLook | None = None
        self.micro: MicroSteps | None = None

    def resumes_no_more(self) -> None:
        """Note, also in Lightning's loops, that the fit no longer goes on in the middle."""
        self.resumes = False
        fit = self.trainer.fit_loop
        epoch = fit.epoch_loop
        inner = (epoch.automatic_optimization, epoch.manual_optimization, epoch.val_loop)
        for loop in (fit, epoch, *inner):
            loop._restarting = loop._resuming_from_checkpoint = False


class Fits:
    """All fits of this process."""

    def __init__(self, session: Callable[[], FitSession], library: Any) -> None:
        """``session`` returns the session, and starts it at the first call."""
        self._start = session
        self._session: FitSession | None = None
        self._library, self._version = library, ""
        self._saved: Position | None = None
        self._seed, self._rank, self._ranks = 0, 0, 1
        self._division: data.Division | None = None
        """Of a step under ``batch: micro``."""
        self._verdict = Verdict(EXACT)
        self._folders: dict[str, str] = {}
        self._note: str | None = None
        """On the folders of the running fit, beside the verdict."""
        self._ends: dict[int, State] = {}
        """Ends of fits that no checkpoint holds yet."""
        self.count = 0
        """Number of fits that have ended."""
        self.fit: Fit | None = None
        """The running fit."""
        self.dumps = lightning_state.Dumps()

    def begin(self, trainer: Any) -> Fit:
        """Return the fit that begins. Raises CheckpointError."""
        session = self._session or self._open()
        script = FitScript(trainer, self._rank, self._ranks)
        fit = Fit(trainer, session, self.count, self._loaders(trainer), script)
        if (division := self._division) is not None:
            seed = data.seed_of(self._seed, "fit", fit.number)
            fit.draws = True  # each micro-batch its own numbers
            fit.micro = MicroSteps(trainer, division, seed, LookInside(script.watch))
        saved, folder = self._saved, session.checkpoint
        self._folders = run_folders.of_lightning(trainer)
        if saved is not None and fit.number == saved.fits:
            says = self._rank == 0
            self._note = run_folders.moved(saved.folders, self._folders, says=says)
        if saved is not None and folder is not None and fit.number <= saved.fits:
            fit.is_over = fit.number < saved.fits
            if fit.is_over or saved.running:
                name = lightning_state.end_file(fit.number) if fit.is_over else STATE_FILE
                fit.state = lightning_state.load(folder / name)
                fit.own = fit.state.pop(OWN)
                fit.resumes = not fit.is_over
                fit.in_epoch = saved.batches > 0
                orders = fit.own["orders"]
                mine = orders[min(self._rank, len(orders) - 1)]
                fit.loaders.resume(list(saved.loaders), saved.batches, mine)
        self.fit = fit
        session.record_weights(lambda: portraits([trainer.lightning_module]))
        session.set_verdict(self._verdict)
        session.loop_begins()
        return fit

    def ended(self) -> None:
        """Publish the end of the fit, or restore what an earlier process left at that end."""
        fit, session = self._running, self._session
        assert session is not None
        if fit.is_over:
            fit.script.restore()
            self._restore_numbers(fit)
        elif fit.has_trained:
            self._look(fit, deep=True, new_epoch=True)
            self._ends[fit.number] = self._dump(fit)
        if fit.is_over or fit.has_trained:
            self.count += 1
        is_saved = fit.is_over or not fit.has_trained or session.save(self._write_ends)
        if fit.trainer.strategy.broadcast(is_saved):  # rank 0 has published
            self._ends.clear()
            session.loop_ended()

    def script_ended(self) -> None:
        """Publish the end of training."""
        if self._session is not None and self.count:
            self._session.finished(self._write_ends)

    def take_signal(self) -> None:
        """Take SIGTERM back from Lightning, whose handler waits for the other processes."""
        if self._session is None:
            return
        if self.fit is not None or self._ends:
            self._session.loop_begins()
        else:
            self._session.loop_ended()

    def restore_begins(self, connector: Any) -> bool:
        """Give Lightning the state to restore; return whether there is one. No callback ran yet."""
        fit = self.fit
        if fit is None or fit.trainer is not connector.trainer:
            return False
        fit.script.arrives()
        if fit.state is None:
            return False
        assert self._session is not None
        whole = lightning_state.containers_copied(fit.state) | fit.own.get("altered", {})
        model, missing = fit.trainer.lightning_module, fit.own.get("left_out", [])
        lightning_state.check_model(whole["state_dict"], missing, model, self._session.checkpoint)
        lightning_state.restore_whole(fit.trainer, whole)
        connector._ckpt_path, connector._loaded_checkpoint = None, fit.state
        fit.state = None
        fit.script.resumes(fit.own)
        return True

    def optimizers_are_made(self, make: Callable[[], None]) -> None:
        """Let the script make its optimizers for the weights that it trains at the begin."""
        make() if self.fit is None else self.fit.script.makes_optimizers(make)

    def epoch_begins(self) -> None:
        """Look at the script's state, or restore it, before the callbacks of the epoch's begin."""
        fit = self._running
        fit.clock.epoch_over(time.monotonic())
        if fit.script.begins():
            fit.script.restore()
            if fit.own:  # Lightning has made an iterator of the data since, which draws
                self._restore_numbers(fit)
        else:
            self._look(fit, new_epoch=True)

    def _look(self, fit: Fit, *, deep: bool = False, new_epoch: bool = False) -> None:
        self._verdict = fit.script.look(self._verdict, deep=deep, new_epoch=new_epoch)
        assert self._session is not None
        self._session.set_verdict(self._verdict)

    def loop_begins(self, set_epoch: Callable[[Any, int], None]) -> None:
        """Bring the data of a fit that goes on to its position, before Lightning's loop runs."""
        fit = self._running
        fit.global_step = fit.trainer.global_step
        fit.script.loop_begins()
        is_over = self._is_over()
        if is_over:
            fit.trainer.fit_loop.epoch_loop.max_steps = fit.global_step  # the loop makes no step
        if not fit.resumes:
            return
        if is_over or not fit.in_epoch:
            fit.resumes_no_more()
            self._restore_numbers(fit)
        if is_over:
            return
        loop = fit.trainer.fit_loop
        loop.setup_data()
        if loop._data_fetcher is None:
            return
        for loader in loop._combined_loader.flattened:
            set_epoch(loader, loop.epoch_progress.current.processed)
        if fit.in_epoch:
            iter(loop._data_fetcher)  # the one of `setup_data` may know nothing of the position

    @property
    def _running(self) -> Fit:
        assert self.fit is not None
        return self.fit

    def batch_begins(self) -> None:
        """Restore the random numbers before the first batch."""
        fit = self._running
        if fit.resumes:
            fit.resumes_no_more()
            fit.script.restore()
            self._restore_numbers(fit)
        fit.before = None if fit.draws else data.generator_states()
        if fit.gradients is None:
            fit.gradients = GradientLook([fit.trainer.lightning_module])
            self._measure(fit.trainer.lightning_module)

    def _measure(self, module: Any) -> None:
        """Measure the step that comes, and the one in which this process leaves."""
        division = self._division
        parts = 1 if division is None else len(division.numbers)
        draws = None if division is None else bool  # each micro-batch has its own numbers
        begin = first_step.measures(lambda: [module], parts=parts, draws=draws)
        self.first_steps.measured_by(begin, of_first)

    @property
    def first_steps(self) -> FirstSteps:
        """The first step of this process, and the one in which it leaves."""
        assert self._session is not None
        return self._session.first_steps

    def batch_read(self, fetcher: Any) -> None:
        """Look from now on at the random numbers: those of the data are no part of a step.

        A step that reads its batches itself may have drawn before.
        """
        fit = self.fit
        if fit is None or fit.trainer.fit_loop._data_fetcher is not fetcher:
            return
        if fit.micro is not None:
            fit.micro.batch_read()
        elif fit.before is not None and type(fetcher).__name__ != READ_BY_STEP:
            fit.before = data.generator_states()

    def batch_made(self) -> None:
        """Look whether the batch has drawn random numbers."""
        fit = self._running
        fit.loaders.read_began()
        if fit.micro is not None:
            fit.micro.batch_made()
        fit.looks -= fit.looks > 0
        before, fit.before = fit.before, None
        if before is not None and data.drew_since(before):
            fit.draws, fit.looks = True, max(fit.looks, 0)
            self._add(data.STEP_DRAWS, STEPS_ONLY)

    def boundary(self, *, is_last: bool = False, batches: int = 0) -> None:
        """Count the step, if there was one; save and leave if that is due.

        is_last: the fit is over, and nothing is saved before its end.
        batches: batches done in the epoch.
        """
        fit, session = self._running, self._session
        assert session is not None
        trainer = fit.trainer
        session.first_steps.leave_here()
        if trainer.global_step == fit.global_step:
            return
        fit.global_step = trainer.global_step
        if session.settings.steps is None:
            session.total_steps = lightning_state.steps_in_all(trainer, session.step + 1)
        epoch = trainer.fit_loop.epoch_progress.current.processed
        session.step_done(epoch=epoch, loss=self._loss(fit))
        if fit.gradients is not None and fit.gradients.step_ended():
            self._add(CARRIED, UNKNOWN)
        if is_epoch_end := batches == 0:
            fit.looks = max(fit.looks, 0)  # layers may be in another mode since
        if fit.looks >= 0:
            self._look(fit, new_epoch=is_epoch_end)
        self._judge(fit)
        self._report_evaluation(fit)
        if is_last:
            return
        stops = session.should_stop()
        if stops or session.saves_now():
            self._look(fit, deep=True, new_epoch=is_epoch_end)
            is_saved = session.save(self._write_running(fit, batches))
            if stops and is_saved:
                lightning_state.end_of_logs(trainer)
                session.leave_saved()
                return
        self._end_at_record(trainer, session, is_epoch_end=is_epoch_end)

    def _loss(self, fit: Fit) -> Any:
        """Return this rank's loss of the newest batch; that of all ranks if the run is recorded."""
        assert self._session is not None
        if fit.loss is None or not self._session.is_recorded:
            return fit.loss
        return fit.trainer.strategy.reduce(fit.loss.detach().clone(), reduce_op="mean")

    def _open(self) -> FitSession:
        own = signal.getsignal(signal.SIGTERM)
        session = self._session = self._start()
        self._version = str(self._library.__version__)
        self._rank, self._ranks = session.settings.rank, session.settings.ranks
        if (count := session.settings.micro_batches) is not None:
            self._division = data.Division.of(count, self._rank, self._ranks)
        if own not in (signal.SIG_DFL, signal.SIG_IGN, None):
            self._add("the script handles SIGTERM itself", UNKNOWN)
        folder = session.checkpoint
        if folder is not None:
            self._saved = lightning_state.read_position(folder, self._version)
            if self._saved.verdict is not None:
                kind, reason = self._saved.verdict
                self._verdict = self._verdict.after(Verdict(Trajectory(kind), reason))
        self._seed = lightning_state.job_seed(session.settings)
        return session

    @property
    def _first_ranks(self) -> int:
        """Processes of the job's first start, whose batch each fit keeps."""
        known = self._session.settings.first_gpus if self._session is not None else None
        saved = self._saved.first_ranks if self._saved is not None else None
        return known or saved or self._ranks

    def _loaders(self, trainer: Any) -> Loaders:
        progress = trainer.fit_loop.epoch_progress
        loaders = Loaders(
            self._ranks, self._rank, self._seed, lambda: int(progress.current.processed)
        )
        loaders.first_ranks, loaders.division = self._first_ranks, self._division
        return loaders

    def _restore_numbers(self, fit: Fit) -> None:
        """Set the random numbers and metrics as the process before left them."""
        lightning_state.random_state_of(fit.own["random"], self._rank)
        for name, values in fit.own["metrics"].items():
            getattr(fit.trainer._logger_connector, name).update(values)

    def _dump(self, fit: Fit) -> State:
        """Return the state of the fit; every process calls this after the same step."""
        assert self._session is not None
        trainer = fit.trainer
        state = self.dumps.dump(trainer, fit.script.frozen)
        connector = trainer._logger_connector
        state[OWN] |= {
            "random": lightning_state.of_all_ranks(data.random_states(), self._ranks),
            "orders": lightning_state.of_all_ranks(fit.loaders.orders(), self._ranks),
            "metrics": {name: dict(getattr(connector, name)) for name in METRICS},
            **fit.script.saved(),
        }
        return state

    def _write_running(self, fit: Fit, batches: int) -> Write:
        state = self._dump(fit)
        position = Position(
            self._version,
            self.count,
            True,
            self._reported(),
            tuple(fit.loaders.facts),
            batches,
            self._folders,
            self._first_ranks,
        )

        def write(folder: Path) -> None:
            self._write_finished(folder)
            torch.save(state, folder / STATE_FILE)
            position.write(folder)

        return write

    def _write_ends(self, folder: Path) -> None:
        self._write_finished(folder)
        Position(
            self._version, self.count, False, self._reported(), first_ranks=self._first_ranks
        ).write(folder)

    def _write_finished(self, folder: Path) -> None:
        assert self._session is not None
        for number in range(self.count):
            if number in self._ends:
                torch.save(self._ends[number], folder / lightning_state.end_file(number))
            else:
                lightning_state.carry_over(self._session.checkpoint, folder, number)

    def _reported(self) -> tuple[str, str | None]:
        return self._verdict.kind.value, self._verdict.reason

    def _add(self, reason: str, kind: Trajectory) -> None:
        self._verdict = self._verdict.worse(reason, kind)

    def _judge(self, fit: Fit) -> None:
        """Report the verdict while it may change."""
        assert self._session is not None
        if fit.looks < 0:
            return
        if fit.looks == 0:
            fit.looks = -1
        is_micro = fit.micro is not None
        exact = lightning_verdict.exact(fit.trainer, is_micro=is_micro).noting(self._note)
        self._verdict = exact.again(self._verdict)
        for reason, kind in lightning_verdict.reasons(fit.trainer, is_micro=is_micro):
            self._add(reason, kind)
        if means := lightning_verdict.epoch_means(fit.trainer):
            note = f"{lightning_verdict.MEANS} ({', '.join(sorted(means))})"
            self._verdict = self._verdict.noting(note)
        for reason in fit.loaders.reasons:
            self._add(reason, STEPS_ONLY)
        for reason in fit.loaders.lost:
            self._add(reason, UNKNOWN)
        self._session.set_verdict(self._verdict)

    def _report_evaluation(self, fit: Fit) -> None:
        """Report what an evaluation found, and end the fit if it reaches the record's target."""
        assert self._session is not None
        session, trainer = self._session, fit.trainer
        if not fit.has_evaluated:
            return
        fit.has_evaluated = False
        values = lightning_state.evaluated(trainer)
        if session.settings.target is not None:
            values = trainer.strategy.broadcast(values)  # all processes end after the same step
        for name, value in values.items():
            if session.evaluated(name, value):
                trainer.fit_loop.epoch_loop.max_steps = trainer.global_step

    def _end_at_record(self, trainer: Any, session: FitSession, *, is_epoch_end: bool) -> None:
        """End the fit at the record's length, as Lightning does at ``max_steps``."""
        settings, loop = session.settings, trainer.fit_loop
        is_over = self._is_over()
        if settings.epochs is not None and is_epoch_end:
            is_over |= loop.epoch_progress.current.processed >= settings.epochs
        if is_over:
            loop.epoch_loop.max_steps = trainer.global_step

    def _is_over(self) -> bool:
        """Return whether the job has its length in steps, or its target accuracy."""
        assert self._session is not None
        session, steps = self._session, self._session.settings.steps
        return session.target_reached or (steps is not None and session.step >= steps)
