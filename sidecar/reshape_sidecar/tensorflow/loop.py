"""``job.batches``: a TensorFlow loop of the script's own that is saved, resumed and reshaped.

Does: yields the batches of a ``tf.data`` pipeline, counts each as a step once its body is over,
and saves variables, random state and position there. Boundaries are the ends of the bodies.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import keras
import tensorflow as tf

from reshape_sidecar.claims import CheckpointError
from reshape_sidecar.hook import randomness, variables
from reshape_sidecar.hook.exactness import EXACT, Verdict
from reshape_sidecar.hook.first_step import TrainingStep
from reshape_sidecar.hook.values import Reader, Writer
from reshape_sidecar.loop_epochs import EpochLoop, LoopError
from reshape_sidecar.loop_origin import FRAMEWORK, POSITION_FILE, TENSORFLOW, position_of
from reshape_sidecar.loop_session import LoopSession
from reshape_sidecar.proof.figures import StepFigures
from reshape_sidecar.proof.first_steps import EPOCH_ENDED, Begin, FirstSteps
from reshape_sidecar.tensorflow import verdict as verdicts
from reshape_sidecar.tensorflow.data import Pipeline, SavedPipeline, seeds_of
from reshape_sidecar.tensorflow.parts import Parts
from reshape_sidecar.tensorflow.weights import portraits
from reshape_sidecar.verdict import carried
from reshape_sidecar.verdict.loops import REMEDY
from reshape_sidecar.verdict.reach import Reach
from reshape_sidecar.verdict.watch import LOOKS, Watch
from reshape_sidecar.wire import Trajectory

OTHER_SHUFFLES = (
    "the shuffles have other seeds than before the restart: make the dataset before job.epochs(...)"
)


@dataclass(frozen=True, slots=True)
class Position:
    """How far training is. ``batch`` batches of ``epoch`` are done."""

    epoch: int = 0
    batch: int = 0
    length: int | None = None
    """Batches of an epoch; None while they are unknown."""


class BodyStep(TrainingStep):
    """Measures the body of a loop, from the batch that it gets to its end."""

    def __init__(
        self,
        done: Callable[[StepFigures | None], None],
        parts: Parts,
        steps: FirstSteps,
        reported: Callable[[], float | None],
    ) -> None:
        """``reported`` returns the loss that the body gave to ``job.metrics``."""
        super().__init__(done, parts.models, parts.optimizers, steps)
        self._reported = reported

    def loss(self) -> tuple[float | None, float, int]:
        return self._reported(), 0.0, 0


class Loop(EpochLoop):
    """The loop of one session."""

    def __init__(self, session: LoopSession, epochs: int | None, steps: int | None) -> None:
        """``epochs``, ``steps``: the record's; for ``steps`` else those that the script gave."""
        super().__init__(session, epochs, steps)
        folder = session.checkpoint
        self._checkpoint = folder
        self._position = Position()
        if folder is not None:
            self._position = Position(**position_of(folder, TENSORFLOW))
        self._source: Pipeline | None = None
        self._parts: Parts | None = None
        self._metrics: dict[str, float] = {}
        """What the newest body gave to ``job.metrics``."""
        self._verdict = Verdict(EXACT)
        self._measured: BodyStep | None = None
        self._looked = False
        self._looks = LOOKS
        self._frame: FrameType | None = None
        self._script = Watch(self._enter, keeps_ranks=False)
        self._saved: list[dict[str, Any]] = []
        """What the checkpoint holds of the script's own state, until it is restored."""

    def batches(
        self, dataset: Any, parts: Parts, epochs: int | None, frame: FrameType
    ) -> Iterator[Any]:
        """Restore ``parts`` at the first call; return the batches of an epoch, or of all.

        frame: of the script's code that holds the loop.
        """
        self._frame = frame
        self.set_length(epochs)
        self._attach(dataset, parts)
        return self.left()

    @property
    def epoch(self) -> int:
        return self._position.epoch

    def epoch_begins(self) -> None:
        """Let the generators go on: a checkpoint holds their states."""

    def next_epoch(self) -> None:
        self._move(epoch=self.epoch + 1, batch=0)

    def batches_left(self) -> Iterator[Any]:
        assert self._source is not None
        self._session.clock.epoch_over(time.monotonic())
        if self._script.has_begun:
            self._look()
        else:
            self._script.begin()
            self._script.restore(self._saved)
            self._saved = []
        for batch in self._source.epoch():
            self._session.first_steps.batch(batch)
            try:
                yield batch
            except GeneratorExit:  # the body has ended the loop, or failed
                self._leave_unmeasured()
                raise
            self._metrics = self._session.take_metrics()
            self._session.first_steps.boundary()
            self._step_done()
            if self.is_over():
                return
        self._session.first_steps.leave_here()
        self._move(length=self._position.batch)

    def _move(self, **fields: int) -> None:
        self._position = dataclasses.replace(self._position, **fields)

    def _step_done(self) -> None:
        self._move(batch=self._position.batch + 1)
        session, position = self._session, self._position
        if not self._looked:
            self._looked = True
            assert self._source is not None
            assert self._parts is not None
            self._verdict = verdicts.after_first_step(self._source, self._parts, self._verdict)
            session.set_verdict(self._verdict)
        if self._looks:
            self._looks -= 1
            self._look()
        if self._steps is None and position.length is not None:
            left = (self._total - position.epoch) * position.length - position.batch
            session.total_steps = session.step + 1 + left
        done = position.batch == position.length
        session.step_done(self.write, steps=1, epoch=position.epoch + done, **self._metrics)

    def _attach(self, dataset: Any, parts: Parts) -> None:
        is_first, self._parts = self._parts is None, parts
        self._session.record_weights(lambda: portraits(parts.weights()))
        if self._source is None or self._source.dataset is not dataset:
            self._source = Pipeline(dataset)
            if self._source.endless and self._steps is None:
                raise LoopError(
                    "the dataset repeats without end: take `repeat()` away or `take(n)` batches an"
                    " epoch, or give session.start(total_steps=n) or `steps` in the job's record"
                )
            if self._source.batches is not None:
                self._move(length=self._source.batches)
            before = verdicts.before_training(self._source, parts, self._session.devices)
            self._verdict = before.after(self._verdict)
        folder, self._checkpoint = self._checkpoint, None
        if folder is not None:
            self._restore(folder)
        self._session.set_verdict(self._verdict)
        if is_first and self._session.settings.workers == 1:
            self._session.first_steps.measured_by(self._measure, why_not=self._why_no_step)

    def _measure(self, steps: FirstSteps) -> Begin:
        def begin(done: Callable[[StepFigures | None], None]) -> BodyStep:
            assert self._parts is not None
            measure = BodyStep(done, self._parts, steps, lambda: self._metrics.get("loss"))
            self._measured = measure
            return measure

        return begin

    def _leave_unmeasured(self) -> None:
        """Stand behind a body that may have ended anywhere."""
        if self._measured is not None:
            self._measured.end()
        self._session.first_steps.leave_here()

    def _why_no_step(self) -> str:
        """Return why no step can follow a save: behind an epoch the script may evaluate."""
        is_end = self._position.batch == self._position.length or self.is_over()
        return EPOCH_ENDED if is_end else ""

    def write(self, folder: Path) -> None:
        assert self._source is not None
        assert self._parts is not None
        writer = Writer()
        self._look(deep=True)
        states = variables.capture_entries(self._parts.entries())
        document = {
            "versions": _versions(),
            "kinds": self._parts.kinds(),
            "variables": variables.encode(states, writer),
            "random": randomness.capture(),
            "pipeline": dataclasses.asdict(self._source.saved()),
            "shuffles": seeds_of(self._source.plain),
            "verdict": [self._verdict.kind.value, self._verdict.reason],
            "script": self._script.capture(writer.encode),
        }
        writer.write(folder, document)
        position = {FRAMEWORK: TENSORFLOW, **dataclasses.asdict(self._position)}
        (folder / POSITION_FILE).write_text(json.dumps(position), encoding="utf-8")

    def _restore(self, folder: Path) -> None:
        assert self._source is not None
        assert self._parts is not None
        reader = Reader(folder)
        reader.load()
        document = reader.document
        saved = SavedPipeline(**document["pipeline"])
        for difference in (
            _differs("the versions are", _versions(), document["versions"]),
            _differs("model, optimizer and state are", self._parts.kinds(), document["kinds"]),
            self._source.difference(saved),
        ):
            if difference:
                raise CheckpointError(
                    f"checkpoint {folder} does not fit: {difference}. Give what it was made with,"
                    " or an empty checkpoint folder"
                )
        try:
            states = variables.decode(document["variables"], reader)
            variables.restore_entries(self._parts.entries(), states)
        except variables.StateMismatch as error:
            raise CheckpointError(f"checkpoint {folder} does not fit: {error}") from error
        kind, reason = document["verdict"]
        self._verdict = self._verdict.after(Verdict(Trajectory.of(kind), reason))
        if document["shuffles"] != seeds_of(self._source.plain):
            self._verdict = self._verdict.worse(OTHER_SHUFFLES)
        self._saved = [reader.decode(entry) for entry in document.get("script", [])]
        randomness.restore(document["random"])
        self._source.place(saved, self._position.batch)
        reader.release()

    def _enter(self, reach: Reach) -> None:
        assert self._frame is not None
        assert self._parts is not None
        assert self._source is not None
        reach.know(self._session, self._source.dataset, *self._parts.objects())
        carried.enter_running(self._frame, reach)

    def _look(self, *, deep: bool = False) -> None:
        """Look what the script's own state has become."""
        self._script.look(deep=deep)
        self._verdict = self._script.judge(self._verdict, REMEDY)
        self._session.set_verdict(self._verdict)


def _versions() -> dict[str, str]:
    return {"tensorflow": tf.__version__, "keras": keras.__version__}


def _differs(what: str, now: Any, before: Any) -> str:
    return "" if now == before else f"{what} {now}, and they were {before}"


__all__ = ["Loop", "Parts"]
