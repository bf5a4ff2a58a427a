"""One ``train`` call of a ``transformers.Trainer``: its steps, its boundaries and its state.

Does: reports and paces each step, saves and leaves at a boundary, and restores a call that was
stopped. A boundary is the end of a step with all that Trainer does after it: logs, an evaluation, a
save of its own. At the last step of an epoch it comes after the epoch's end, and at the last step
of all after the end of the call.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import torch

from reshape_sidecar.claims import CheckpointError
from reshape_sidecar.hook.exactness import EXACT, UNKNOWN, Verdict
from reshape_sidecar.pytorch import first_step, hf_state, hf_verdict, run_folders
from reshape_sidecar.pytorch.collectives import gathered, of_first
from reshape_sidecar.pytorch.data import forks, length, random_states
from reshape_sidecar.pytorch.hf_batch import Batch, given_batch
from reshape_sidecar.pytorch.hf_samples import EpochBatches
from reshape_sidecar.pytorch.hf_state import Position, RankState, Saved
from reshape_sidecar.pytorch.hf_verdict import MicroBatches
from reshape_sidecar.pytorch.loop import TrainerSession
from reshape_sidecar.pytorch.weights import TrainedWeights, portraits
from reshape_sidecar.verdict.reach import Reach
from reshape_sidecar.verdict.watch import LOOKS, Watch
from reshape_sidecar.wire import Trajectory

CALL_ENDED = "a call of train ended with the save"


class CallSession(TrainerSession, Protocol):
    """What a call needs of its session (``reshape_sidecar.session``)."""

    epoch: int

    def leave_saved(self) -> None: ...


class Call:
    """A running call."""

    def __init__(
        self,
        trainer: Any,
        session: CallSession,
        number: int,
        first: Batch,
        resumed: Saved | None,
        write_ended: Callable[[Path, int], None],
        length: int | None,
    ) -> None:
        """``first``: its batch at the job's first start. ``write_ended`` gives a checkpoint the
        states at the end of the calls before the number that it gets.
        ``length``: steps of the job, if the record gives them."""
        self.trainer, self._session, self._number = trainer, session, number
        self._first, self._resumed, self._write_ended = first, resumed, write_ended
        self._now = given_batch(trainer.args)
        self._watch = MicroBatches()
        self._script = Watch(self._enter, trainer.args.device)
        self._script.batch = self._now.per_device
        self._weights = TrainedWeights(trainer.model)
        self._looks = LOOKS
        self._inside_looks = LOOKS
        """Micro-batches of this process that are still compared with what was before."""
        self._verdict = Verdict(EXACT)
        self._epoch = self._step = self._steps_per_epoch = 0
        self._epochs = 0
        self._counted = 0
        """Trainer's number of steps at the last step that was counted."""
        self._pending = 0
        """Steps since the last boundary."""
        self._batches: EpochBatches | None = None
        self._random_of_epoch: dict[str, Any] | None = None
        self._loss: Any = 0.0
        """Sum over the micro-batches since the last boundary, on this rank."""
        self._limit = length
        self._ignores_items = resumed is not None and resumed.position.ignores_items
        self._begun = self._has_trained = self._is_last = False
        self.is_whole = False
        """Whether no number of GPUs of the job divides a micro-batch."""
        session.record_weights(lambda: portraits([trainer.model]))

    # -- the begin --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def arguments(self, arguments: dict[str, Any]) -> Iterator[None]:
        """Let the call resume from its checkpoint and position, without the evaluation before the
        first step."""
        args = self.trainer.args
        evaluates, ignores_data = args.eval_on_start, args.ignore_data_skip
        if self._resumed is not None:
            arguments["resume_from_checkpoint"] = str(self._resumed.folder)
            args.eval_on_start = args.ignore_data_skip = False
        try:
            yield
        finally:
            args.eval_on_start, args.ignore_data_skip = evaluates, ignores_data

    def is_own(self, folder: object) -> bool:
        """Return whether ``folder`` is the checkpoint that this call resumes from."""
        return self._resumed is not None and folder == str(self._resumed.folder)

    def load_model(self) -> None:
        """Load the weights of the checkpoint. Raises CheckpointError."""
        assert self._resumed is not None
        self._resumed.load_model(self.trainer.model)

    def begin(
        self, steps_per_epoch: int, epochs: int, position: tuple[int, int]
    ) -> tuple[int, int]:
        """Return the epoch, and its micro-batches, that are done; ``position`` is Trainer's own."""
        self._steps_per_epoch, self._epochs = steps_per_epoch, epochs
        self._counted = self.trainer.state.global_step
        if self._resumed is None:
            self._epoch, self._step = position[0], position[1] // self._now.accumulation
            return position
        known = self._resumed.position
        if known.steps_per_epoch != steps_per_epoch:
            raise CheckpointError(
                f"an epoch has {steps_per_epoch} steps on {self._now.ranks} GPUs, and it had"
                f" {known.steps_per_epoch} when training began: {hf_state.REMEDY}; if the data is"
                " the same, make its length a multiple of the batch"
            )
        self._epoch, self._step = known.epoch, known.step
        return known.epoch, known.step * self._now.accumulation

    def watch_loader(self, loader: Any) -> None:
        """Let the loader draw each epoch's order and samples by their positions."""
        base: Any = getattr(loader, "base_dataloader", None)
        batches = getattr(base, "batch_sampler", None)
        if batches is not None and getattr(base, "dataset", None) is not None:
            sampler: Any = loader.get_sampler() if hasattr(loader, "get_sampler") else None
            if type(sampler).__name__ == "LengthGroupedSampler":
                sampler.batch_size = self._first.per_device * self._first.accumulation
            self._batches = EpochBatches(batches, sampler, self.trainer.args.seed)
            self._batches.marks_samples = not base.num_workers or forks(base)
            base.__dict__["batch_sampler"] = self._batches
        self._set_verdict(hf_verdict.before_training(self.trainer, loader, self._first, self._now))
        if self._resumed is not None and self._resumed.position.verdict is not None:
            word, reason = self._resumed.position.verdict
            self._set_verdict(Verdict(Trajectory.of(word), reason))
        if self._resumed is not None:
            before, now = self._resumed.position.folders, run_folders.of_hugging_face(self.trainer)
            says = self.trainer.args.process_index == 0
            self._set_verdict(self._verdict.noting(run_folders.moved(before, now, says=says)))

    def restore_trained(self) -> None:
        """Restore which weights are trained: the optimizer is made, the model not wrapped."""
        if self._resumed is not None and not self._has_trained:
            self._has_trained = True
            self._resumed.restore_trained(self.trainer)
            self._weights = TrainedWeights(self.trainer.model)

    def callbacks_begin(self) -> None:
        """Note what is there before the callbacks of the training's begin."""
        self._script.arrive()

    def callbacks_began(self) -> None:
        """Restore the script's state: its callbacks have made what they need to begin."""
        self._script.begin()
        self._restore_script()

    def _restore_script(self) -> None:
        if self._resumed is not None:
            rank = self.trainer.args.process_index
            self._resumed.restore_script(self.trainer, self._script, rank, self._now.ranks)

    def _enter(self, reach: Reach) -> None:
        hf_verdict.enter(self.trainer, reach)

    # -- steps ------------------------------------------------------------------------------------

    def ends_before_a_step(self) -> bool:
        """End the call if the job has its length or target accuracy already; return whether."""
        session = self._session
        ends = session.target_reached or (self._limit is not None and session.step >= self._limit)
        if ends:
            self.trainer.control.should_training_stop = True
        return ends

    def epoch_begins(self, epoch: int) -> None:
        """Prepare for the steps of ``epoch``, from the first one or from where it was stopped."""
        self._session.clock.epoch_over(time.monotonic())
        resumed, rank = self._resumed, self.trainer.args.process_index
        goes_on = resumed is not None and not self._begun
        is_first, self._begun = not self._begun, True
        if epoch != self._epoch or not goes_on:
            self._epoch, self._step = epoch, 0
        if self._batches is not None:
            self._batches.set_epoch(epoch)
        if goes_on:
            assert resumed is not None
            resumed.restore_sums(self.trainer, rank, self._now.ranks)
            self._restore_script()
            if self._batches is not None:
                resumed.restore_samplers(self._batches, in_epoch=self._step > 0)
            resumed.restore_random(rank, of_epoch=self._step > 0)
            hf_state.release()
        else:
            self._look(new_epoch=True)
        if is_first:
            measure = first_step.measures(lambda: [self.trainer.model])
            self._session.first_steps.measured_by(
                measure, of_first, lambda: CALL_ENDED if self._is_last else ""
            )
        self._random_of_epoch = random_states()

    def restore_random(self) -> None:
        """Restore the random state of this rank after the checkpoint's step."""
        assert self._resumed is not None
        self._resumed.restore_random(self.trainer.args.process_index)

    def micro_batch(
        self, step: Callable[[Any], Any], inputs: Any, count: Any, labels: Any = None
    ) -> Any:
        """Run a micro-batch of ``inputs`` with ``labels``, whose step has ``count`` items; return
        its loss."""
        self._session.first_steps.batch(inputs)
        before = None
        if self._inside_looks:
            self._inside_looks -= 1
            before = self._script.marks()
        with self._session.first_steps.leaving_if_it_fails():
            loss, verdict = self._watch.step(
                self.trainer, step, count, None if self.is_whole else labels
            )
        if before is not None:
            self._script.changed_inside(before)
        self._ignores_items = self._ignores_items or self._watch.ignores_items
        self._set_verdict(verdict)
        if self._session.is_recorded:
            self._loss = self._loss + loss.detach()
        return loss

    def base_loss(self, model: Any, result: Any) -> Any:
        """Return the ``result`` of Trainer's own ``compute_loss`` as at the job's first start.

        Trainer multiplies the loss by the number of ranks, because it is to be divided by the
        number of items of all ranks. A model that does not divide gets a loss that grows with the
        ranks, and gradients that grow with the micro-batches.
        """
        self._watch.is_base_loss = True
        if not self._ignores_items:
            return result
        first, now = self._first, self._now
        factor = first.ranks / now.ranks
        if model.training:
            factor = first.micro_batches / now.micro_batches
        if factor == 1:
            return result
        return (result[0] * factor, *result[1:]) if isinstance(result, tuple) else result * factor

    def step_ends(self) -> None:
        """Count a step whose logs, evaluation and save are still to come; end a job at its length.

        Called again at an epoch's end, without a step.
        """
        state = self.trainer.state
        self._session.first_steps.leave_here()
        if state.global_step == self._counted:
            return
        self._counted = state.global_step
        self._session.clock.rest(time.monotonic())
        if self._watch.has_seen_nothing:
            kind = type(self.trainer).__name__
            self._set_verdict(
                Verdict(EXACT).worse(f"{kind}.training_step is not that of Trainer", UNKNOWN)
            )
        self._step += 1
        self._pending += 1
        if self._limit is not None and self._session.step + self._pending >= self._limit:
            self.trainer.control.should_training_stop = True

    def step_ended(self) -> None:
        """Stand at the boundary after a step, unless the end of the epoch or call comes first."""
        control = self.trainer.control
        ends = control.should_training_stop or control.should_epoch_stop
        if self._pending and not ends and self._step < self._steps_per_epoch:
            self._boundary(self._write, is_last=False)

    def epoch_ended(self) -> None:
        """Stand at the boundary after an epoch, unless the end of the call comes first."""
        self._epoch, self._step = self._epoch + 1, 0
        if not self.trainer.control.should_training_stop and self._epoch < self._epochs:
            self._boundary(self._write, is_last=False)

    def evaluated(self, metrics: dict[str, Any]) -> None:
        """Report an evaluation, and end training at the record's target accuracy."""
        for name, value in _numbers(metrics):
            if self._session.evaluated(name, value):
                self.trainer.control.should_training_stop = True

    def ended(self, output: Any) -> dict[str, Any] | None:
        """Save the state after the call; return it if that failed."""
        ended: dict[str, Any] = {}

        def write(folder: Path, ranks: list[RankState]) -> None:
            self._write(folder, ranks, is_over=True)
            ended.update(self._end_state(output, ranks))
            torch.save(ended, folder / ended_file(self._number))

        if hf_state.agree(self._boundary(write, is_last=True)):
            return None  # no rank leaves on a stop while rank 0 still saves
        return copy.deepcopy(ended or self._end_state(output, []))

    # -- saves ------------------------------------------------------------------------------------

    def _boundary(self, write: Callable[..., None], *, is_last: bool) -> bool:
        """Report the steps since the last boundary; save if that is due, and leave if asked.

        False if a save was due and failed.
        """
        session, state = self._session, self.trainer.state
        self._is_last = is_last
        is_epoch_end = is_last or self._step == 0
        steps, self._pending = self._pending, 0
        if self._limit is None:
            session.total_steps = session.step + steps + max(0, state.max_steps - self._counted)
        if steps:
            session.step_done(steps=steps, epoch=self._epoch, loss=self._newest_loss())
            if self._looks:
                self._looks -= 1
                self._look(new_epoch=is_epoch_end)
        stops = session.should_stop()
        if not stops and not session.saves_now() and not is_last:
            return True
        self._look(deep=True, new_epoch=is_epoch_end)
        random_of_epoch = self._random_of_epoch if self._step else None
        own = hf_state.rank_state(self.trainer, random_of_epoch, self._script.capture_own())
        ranks = hf_state.gather(own)
        is_saved = session.save(lambda folder: write(folder, ranks))
        if stops and is_saved:
            self.trainer.log = lambda *_, **__: None  # nothing of a further step is logged
            session.leave_saved()
        return is_saved

    def _look(self, *, deep: bool = False, new_epoch: bool = False) -> None:
        """Look what the script's own state has become; all ranks do so after the same step."""
        self._script.look(deep=deep, new_epoch=new_epoch)
        if self._now.ranks > 1:
            self._script.compare(gathered(self._script.digests()))
        judged = self._script.judge(self._verdict, hf_verdict.REMEDY)
        if judged != self._verdict:
            self._verdict = judged
            self._session.set_verdict(judged)
        if (why := self._weights.reason(self._now.ranks)) is not None:
            self._set_verdict(Verdict(EXACT).worse(why, UNKNOWN))
        if self.trainer.args.gradient_accumulation_steps != self._now.accumulation:
            self._set_verdict(Verdict(EXACT).worse(hf_verdict.OTHER_BATCH, UNKNOWN))

    def _newest_loss(self) -> float | None:
        """Return the loss that Trainer has logged last; the step's own if the run is recorded."""
        if self._session.is_recorded:
            loss, self._loss = self._loss, 0.0
            return hf_state.mean(loss, self.trainer.args.device)
        logs = reversed(self.trainer.state.log_history)
        return next((log["loss"] for log in logs if "loss" in log), None)

    def _write(self, folder: Path, ranks: list[RankState], *, is_over: bool = False) -> None:
        trainer, verdict = self.trainer, self._verdict
        position = Position(
            call=self._number,
            is_over=is_over,
            batch=self._first,
            model=type(trainer.model).__name__,
            samples=length(trainer.train_dataset),
            steps_per_epoch=self._steps_per_epoch,
            epoch=self._epoch,
            step=self._step,
            verdict=(verdict.kind.value, verdict.reason),
            ignores_items=self._ignores_items,
            folders=run_folders.of_hugging_face(trainer),
        )
        batches = self._batches
        samplers = None if batches is None else batches.samplers.saved()
        hf_state.write(folder, trainer, position, ranks, self._script.capture(), samplers)
        self._write_ended(folder, self._number)

    def write_end(self, folder: Path, ended: dict[str, Any]) -> None:
        """Write the end of the call, whose own save has failed: ``ended``."""
        self._write(folder, [], is_over=True)
        torch.save(ended, folder / ended_file(self._number))

    def _end_state(self, output: Any, ranks: list[RankState]) -> dict[str, Any]:
        return {
            "model": self.trainer.model.state_dict(),
            "optimizer": self.trainer.optimizer.state_dict(),
            "state": dataclasses.asdict(self.trainer.state),
            "batch": dataclasses.asdict(self._first),
            "random": [rank.random for rank in ranks],
            "script": self._script.capture(),
            "output": output,
        }

    def _set_verdict(self, verdict: Verdict) -> None:
        """Add what is known now to the verdict, and report it if that changes it."""
        changed = verdict.after(self._verdict)
        if verdict.kind is EXACT and verdict.reason is None and self._verdict.reason is not None:
            changed = self._verdict
        if changed != self._verdict or not self._begun:
            self._verdict = changed
            self._session.set_verdict(changed)


def ended_file(number: int) -> str:
    """Return the name of the file with the state at the end of a call."""
    return f"ended-{number}.pt"


def _numbers(metrics: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the metrics of an evaluation that are not about its speed."""
    for name, value in metrics.items():
        speed = name.endswith(("_runtime", "_per_second", "_time")) or name == "epoch"
        if isinstance(value, int | float) and not isinstance(value, bool) and not speed:
            yield name, float(value)
