"""``job.batches``: a PyTorch loop of the script's own that is saved, resumed and reshaped.

Does: yields each rank its share of each batch, counts a step whenever the optimizers have stepped,
and saves model, optimizer, schedule, scaler and position at such boundaries. Between two batches
that one step accumulates nothing is saved.

The generators of random numbers are seeded before each batch, by job, epoch, batch and rank. So
a restart needs no state of theirs.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch
import torch.distributed as dist

from reshape_sidecar.hook.exactness import UNKNOWN, Verdict
from reshape_sidecar.hook.log import complain
from reshape_sidecar.loop_epochs import EpochLoop, LoopError
from reshape_sidecar.loop_session import LoopSession, StepSession, Write
from reshape_sidecar.proof.first_steps import EPOCH_ENDED
from reshape_sidecar.pytorch import exact_notes, first_step
from reshape_sidecar.pytorch.collectives import gathered, joined, of_first
from reshape_sidecar.pytorch.data import (
    STEP_DRAWS,
    Share,
    changed_in_workers,
    drew_since,
    generator_states,
    seed_all,
    seed_of,
)
from reshape_sidecar.pytorch.exact_notes import AutocastLook
from reshape_sidecar.pytorch.loop_state import Parts, Position, saved_position
from reshape_sidecar.pytorch.micro_batches import LookInside, MicroBatches
from reshape_sidecar.pytorch.optimizers import Steps
from reshape_sidecar.pytorch.weights import (
    CARRIED,
    GradientLook,
    TrainedWeights,
)
from reshape_sidecar.verdict import carried
from reshape_sidecar.verdict.loops import REMEDY
from reshape_sidecar.verdict.reach import Reach
from reshape_sidecar.verdict.watch import Watch
from reshape_sidecar.wire import Trajectory

GAP_MAX = 100
"""Batches without a step after which the loop says so: it saves and stops between steps alone."""
NO_STEPS = (
    f"no `step` of the optimizers of job.batches was called in {GAP_MAX} batches, so nothing is"
    " saved: give the optimizer whose `step` the script calls"
)
TWO_LOOPS = (
    "job.batches got other models than before, and a job saves one training: train all models in"
    " one loop (`model=[first, second]`), or make two jobs of them"
)
VERDICT_STEPS = 3
"""Steps in which Reshape looks whether the script draws random numbers."""


class TrainerSession(StepSession, Protocol):
    """What a trainer of a library needs of its session, beyond what a loop needs."""

    @property
    def is_recorded(self) -> bool: ...

    def evaluated(self, metric: str, value: float) -> bool: ...

    def should_stop(self) -> bool: ...

    def saves_now(self) -> bool: ...

    def save(self, write: Write) -> bool: ...


class Loop(EpochLoop):
    """The loop of one session."""

    def __init__(
        self,
        session: LoopSession,
        seed: int | None,
        epochs: int | None,
        steps: int | None,
        micro: int | None = None,
    ) -> None:
        """``seed``, ``epochs``, ``steps``: the record's; ``micro``: micro-batches of a step."""
        super().__init__(session, epochs, steps)
        self._seed, self._micro = seed, micro
        self._position = saved_position(session.checkpoint)
        self._share: Share | None = None
        self._parts: Parts | None = None
        self._loaded = False
        self._gap = 0
        """Batches since the last boundary."""
        self._late = 0
        """Steps of a turn that the script ended by ``break``, which count at the next boundary."""
        self._verdict = exact_notes.verdict(owns_loss=True, is_micro=micro is not None)
        self._looks = VERDICT_STEPS
        self._frame: FrameType | None = None
        self._script = Watch(self._enter, keeps_ranks=False)
        self._look_inside = LookInside(self._script)
        self._saved: dict[str, Any] = {}
        """What the checkpoint holds beside the parts, until it is restored."""
        self._autocast: AutocastLook | None = None
        self._gradients: GradientLook | None = None
        self._weights: list[TrainedWeights] = []
        self._draws = micro is not None
        """Whether a step has drawn random numbers, or may: each micro-batch draws its own."""

    def batches(
        self, loader: Any, parts: Parts, epochs: int | None, frame: FrameType
    ) -> Iterator[Any]:
        """Restore ``parts`` at the first call; return the batches of an epoch, or of all.

        frame: of the script's code that holds the loop.
        """
        self._frame = frame
        self.set_length(epochs)
        self._attach(loader, parts)
        return self.left()

    @property
    def epoch(self) -> int:
        return 0 if self._position is None else self._position.epoch

    def epoch_begins(self) -> None:
        """Let what the script draws there follow from the epoch; that of the first is its own."""
        if self.epoch > 0:
            self._seed_all("begin", self.epoch)

    def next_epoch(self) -> None:
        self._move(epoch=self.epoch + 1, batch=0)

    def batches_left(self) -> Iterator[Any]:
        assert self._share is not None
        assert self._parts is not None
        assert self._position is not None
        steps = Steps(self._parts.optimizers)
        first = self._position.batch
        self._epoch_begins()
        try:
            for number, batch in enumerate(self._share.epoch(self.epoch, first), start=first):
                state = self._seed_batch(number)
                for part in (batch,) if self._micro is None else batch:
                    self._session.first_steps.batch(part)
                if self._micro is None:
                    yield batch
                else:
                    parts = self._micro_batches(batch, number)
                    yield parts
                    parts.check_trained()
                if self._session.first_steps.leaving:
                    if steps.take():
                        self._session.first_steps.leave_here()
                    continue  # it accumulates
                self._move(batch=number + 1)
                self._gap += 1
                self._judge(state)
                if taken := steps.take():
                    self._step_done(taken + self._late)
                    self._late = 0
                elif self._gap == GAP_MAX:
                    self._verdict = self._verdict.worse(NO_STEPS, UNKNOWN)
                    self._session.set_verdict(self._verdict)
                    complain(NO_STEPS)
                if self.is_over():
                    return
            self._session.first_steps.leave_here()
            self._seed_all("end", self.epoch)  # all ranks draw the same behind the batches
        except GeneratorExit:
            self._late += steps.take()
            raise
        finally:
            steps.end()

    def write(self, folder: Path) -> None:
        assert self._parts is not None
        assert self._position is not None
        assert self._share is not None
        self._script.look(deep=True)
        self._name_changes()
        others = {
            "script": self._script.capture(),
            "samplers": self._share.samplers.saved(),
            "ranks": self._share.ranks,
            "verdict": (self._verdict.kind.value, self._verdict.reason),
        }
        self._parts.save(folder, self._position, others)

    def _move(self, **fields: int) -> None:
        assert self._position is not None
        self._position = dataclasses.replace(self._position, **fields)

    def _step_done(self, steps: int) -> None:
        assert self._position is not None
        assert self._share is not None
        session, position = self._session, self._position
        left = (self._total - position.epoch) * self._share.batches - position.batch
        done = position.batch == self._share.batches
        if self._steps is None:
            session.total_steps = session.step + steps + left * steps // self._gap
        self._gap = 0
        if self._gradients is not None and self._gradients.step_ended():
            self._verdict = self._verdict.worse(CARRIED, UNKNOWN)
            session.set_verdict(self._verdict)
        session.step_done(
            self.write, steps=steps, epoch=position.epoch + done, **session.take_metrics()
        )

    def _attach(self, loader: Any, parts: Parts) -> None:
        self._session.check_joined()
        rank, ranks = (dist.get_rank(), dist.get_world_size()) if joined() else (0, 1)
        parts.check(ranks)
        if self._parts is not None and not parts.has_models_of(self._parts):
            raise LoopError(TWO_LOOPS)
        self._parts, self._weights = parts, self._weights or parts.trained_weights()
        self._session.record_weights(parts.weights)
        known = self._position
        seed = self._agreed_seed(ranks) if known is None else known.seed
        if self._share is None or self._share.loader is not loader:
            self._share = Share(loader, rank, ranks, seed, self._micro)
        if known is None:
            self._position = Position(seed, self._share.samples)
        elif known.samples != self._share.samples:
            raise LoopError(
                f"the dataset has {self._share.samples} samples, and it had {known.samples} when"
                " training began; give the same data, or begin with an empty checkpoint folder"
            )
        if not self._loaded and self._session.checkpoint is not None:
            self._saved = parts.load(self._session.checkpoint)
            if (samplers := self._saved.get("samplers")) is not None and known is not None:
                self._share.samplers.resume(samplers, in_epoch=known.batch > 0)
        if not self._loaded:
            self._measure()
        self._loaded = True

    def _measure(self) -> None:
        """Measure the step that comes, and the one in which this process leaves."""
        assert self._parts is not None
        assert self._share is not None
        parts, is_micro = self._parts, self._micro is not None
        begin = first_step.measures(
            lambda: parts.models,
            optimizers=lambda: parts.optimizers,
            parts=len(self._share.division.numbers) if is_micro else 1,
            draws=lambda: not is_micro and self._draws_apart(),
        )
        self._session.first_steps.measured_by(begin, of_first, self._why_no_step)

    def _draws_apart(self) -> bool:
        """Return whether the numbers of a step depend on the GPUs: each batch is seeded, so the
        generators alone do not tell whether a step has drawn."""
        assert self._parts is not None
        return self._draws or any(exact_notes.layer_reasons(self._parts.models))

    def _why_no_step(self) -> str:
        """Return why no step can follow a save: behind an epoch the script may evaluate."""
        assert self._position is not None
        assert self._share is not None
        is_end = self._position.batch >= self._share.batches or self.is_over()
        return EPOCH_ENDED if is_end else ""

    def _agreed_seed(self, ranks: int) -> int:
        """Return the record's seed, or else that of rank 0's generator."""
        if self._seed is not None:
            return self._seed
        seed: int = torch.initial_seed() & (2**63 - 1)
        if ranks == 1:
            return seed
        assert self._parts is not None
        parameters = (parameter for model in self._parts.models for parameter in model.parameters())
        agreed = torch.tensor([seed], device=next(parameters).device)  # nccl takes no other device
        dist.broadcast(agreed, src=0)
        return int(agreed.item())

    def _seed_batch(self, number: int) -> dict[str, Any] | None:
        """Seed all generators for a batch; return their states until a step has drawn."""
        assert self._position is not None
        assert self._share is not None
        of_rank = (self._share.rank,) if self._micro is None else ()  # else for all micro-batches
        self._seed_all("step", self._position.epoch, number, *of_rank)
        if self._autocast is None:
            assert self._parts is not None
            self._autocast = AutocastLook(self._parts.models)
            self._gradients = GradientLook(self._parts.models)
        return None if self._draws else generator_states()

    def _seed_all(self, *place: Any) -> None:
        """Seed all generators for a place in the training."""
        assert self._position is not None
        seed_all(seed_of(self._position.seed, *place))

    def _micro_batches(self, parts: tuple[Any, ...], number: int) -> MicroBatches:
        assert self._parts is not None
        assert self._position is not None
        assert self._share is not None
        models, optimizers = self._parts.models, self._parts.optimizers
        seed = (self._position.seed, "micro-batch", self.epoch, number)
        division = self._share.division
        return MicroBatches(parts, division, models, optimizers, seed, self._look_inside)

    def _judge(self, before: dict[str, Any] | None) -> None:
        """Judge whether another number of GPUs changes the numbers of this script."""
        assert self._parts is not None
        assert self._autocast is not None
        if before is not None and drew_since(before):
            self._draws = True
            self._verdict = self._verdict.worse(STEP_DRAWS)
            self._session.set_verdict(self._verdict)
        if self._looks == 0:
            return
        self._looks -= 1
        types = exact_notes.weight_types(self._parts.models) | self._autocast.types
        is_micro = self._micro is not None
        exact = exact_notes.verdict(owns_loss=True, types=types, is_micro=is_micro)
        self._verdict = exact.again(self._verdict)
        if self._looks == 0:
            self._autocast.end()
        if self._share is not None and (kept := changed_in_workers(self._share.loader)) is not None:
            self._verdict = self._verdict.worse(kept, UNKNOWN)
        self._look()

    # -- the script's own state -------------------------------------------------------------------

    def _enter(self, reach: Reach) -> None:
        assert self._frame is not None
        assert self._parts is not None
        assert self._share is not None
        reach.know(self._session, self._share.loader)
        loader = self._share.loader
        for part in ("dataset", "collate_fn"):
            reach.data(part, loader, part, is_ahead=loader.num_workers > 0)
        self._parts.enter(reach)
        carried.enter_running(self._frame, reach)

    def _epoch_begins(self) -> None:
        """Look at the script's state, or restore it before the first batch of this process."""
        self._session.clock.epoch_over(time.monotonic())
        if self._script.has_begun:
            self._look(new_epoch=True)
            return
        self._script.begin()
        assert self._share is not None
        if (size := getattr(self._share.loader, "batch_size", None)) is not None:
            self._script.batch = size // self._share.division.count
        same_gpus = self._saved.get("ranks") == self._share.ranks
        self._script.restore(self._saved.get("script", []), same_gpus=same_gpus)
        if (saved := self._saved.get("verdict")) is not None:
            self._verdict = self._verdict.after(Verdict(Trajectory.of(saved[0]), saved[1]))
        self._saved = {}

    def _look(self, *, new_epoch: bool = False) -> None:
        """Look what the script's state has become; every rank does so after the same batch."""
        assert self._share is not None
        self._script.look(new_epoch=new_epoch)
        if self._share.ranks > 1:
            self._script.compare(gathered(self._script.digests()))
        self._name_changes()

    def _name_changes(self) -> None:
        assert self._parts is not None
        assert self._share is not None
        models = self._parts.models
        for note in exact_notes.compile_notes(models):
            self._verdict = self._verdict.noting(note)
        for reason in exact_notes.step_reasons(models, is_micro=self._micro is not None):
            self._verdict = self._verdict.worse(reason)
        late = [weights.reason(self._share.ranks) for weights in self._weights]
        for why in (*exact_notes.lost_reasons(models), *filter(None, late)):
            self._verdict = self._verdict.worse(why, UNKNOWN)
        self._verdict = self._script.judge(self._verdict, REMEDY)
        self._session.set_verdict(self._verdict)
