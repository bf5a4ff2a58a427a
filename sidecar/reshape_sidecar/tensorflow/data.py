"""The data of a TensorFlow loop: a ``tf.data`` pipeline, its position, and what it has to be.

Does: makes an iterator for each epoch, counts them, and takes the iterator of a new process to the
position of the process before (``hook.placement``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from reshape_sidecar.hook import caches, data_state, placement
from reshape_sidecar.hook.batches import INFINITE
from reshape_sidecar.hook.data_state import SavedData
from reshape_sidecar.hook.pipeline_reasons import is_seeded
from reshape_sidecar.hook.pipelines import pipeline, undistributed
from reshape_sidecar.loop_epochs import LoopError


@dataclass(frozen=True, slots=True)
class SavedPipeline:
    """The data of a loop in a checkpoint, as plain JSON values."""

    lengths: list[int]
    """Cardinality of each stage, from the end of the pipeline to its sources."""
    shapes: str
    """Shapes and types of a batch."""
    iterators: int
    """Iterators over this pipeline that were used up before the one of this epoch."""
    data: list[Any] = field(default_factory=list)
    """State that functions of the pipeline change (``SavedData``)."""


class Pipeline:
    """The pipeline of a loop, and the iterators that this job has made over it."""

    def __init__(self, dataset: Any) -> None:
        """``dataset``: a ``tf.data.Dataset``, or one that a strategy has distributed.

        Raises LoopError.
        """
        self.dataset = dataset
        self.plain = undistributed(dataset)
        self.strategy: Any = None if self.plain is dataset else getattr(dataset, "_strategy", None)
        if not isinstance(self.plain, tf.data.Dataset):
            raise LoopError(
                "job.batches takes a tf.data.Dataset, or what strategy.experimental_distribute_"
                f"dataset(dataset) returns, not a {type(dataset).__name__}; use job.step_done for"
                " another source of data"
            )
        self.data = data_state.of_pipeline(self.plain)
        self._iterators = 0
        self._resumed: Any = None

    @property
    def replicas(self) -> int:
        """Number of devices that share a batch."""
        return int(self.strategy.num_replicas_in_sync) if self.strategy is not None else 1

    @property
    def batches(self) -> int | None:
        """Number of batches of an epoch; None if it is not known in advance."""
        length = int(self.plain.cardinality())
        return length if length >= 0 else None

    @property
    def endless(self) -> bool:
        """Whether the pipeline repeats without an end."""
        return int(self.plain.cardinality()) == INFINITE

    def saved(self) -> SavedPipeline:
        """Return what a checkpoint in the epoch of the newest iterator holds."""
        state = self.data.capture()
        return SavedPipeline(
            lengths=[int(one.cardinality()) for one in pipeline(self.plain)],
            shapes=_shapes(self.plain),
            iterators=max(0, self._iterators - 1),
            data=[state.now, state.begin, state.filled, {}],
        )

    def difference(self, saved: SavedPipeline) -> str:
        """Return what is different from the pipeline in a checkpoint; empty if nothing is."""
        mine = self.saved()
        if mine.shapes != saved.shapes:
            return (
                f"a batch is {mine.shapes}, and it was {saved.shapes}: the batch of all GPUs"
                " together stays that of the first start"
            )
        if len(mine.lengths) != len(saved.lengths):
            return f"the data has {len(mine.lengths)} stages, and it had {len(saved.lengths)}"
        stages = list(zip(pipeline(self.plain), mine.lengths, saved.lengths, strict=True))
        for stage, length, before in reversed(stages):
            if length != before:
                kind = type(stage).__name__.strip("_")
                return f"the data has {length} elements in {kind}, and it had {before}"
        return ""

    def place(self, saved: SavedPipeline, batches: int) -> None:
        """Go on behind ``batches`` batches of the epoch in which ``saved`` was made."""
        caches.remove_unfinished(pipeline(self.plain), before_s=float("inf"))
        state = SavedData(*saved.data)
        over = batches == self.batches
        self._iterators = saved.iterators + 1
        used = saved.iterators + over
        placement.advance(self.plain, used, used)
        self.data.fill_caches(state, goes_on=not over)
        if over:
            self.data.restore(state)
            self._resumed = iter(())
        else:
            self._resumed = placement.iterator_at(
                self.dataset, self.strategy, batches, self.data, state
            )

    def epoch(self) -> Iterator[Any]:
        """Return the batches of the next epoch, or those that are left of a resumed one."""
        resumed, self._resumed = self._resumed, None
        if resumed is not None:
            return iter(resumed)
        self._iterators += 1
        self.data.iterator_begins()
        return iter(self.dataset)


def unseeded_shuffle(end: Any) -> bool:
    """Return whether a shuffle has no seed: neither the script's, nor one that the hook gives."""
    return any(
        type(dataset).__name__ == "_ShuffleDataset" and not is_seeded(dataset)
        for dataset in pipeline(end)
    )


def seeds_of(end: Any) -> list[list[int]]:
    """Return the seeds of the shuffles of a pipeline."""
    return [
        [int(dataset._seed), int(dataset._seed2)]
        for dataset in pipeline(end)
        if type(dataset).__name__ == "_ShuffleDataset"
    ]


def _shapes(dataset: Any) -> str:
    specs = tf.nest.flatten(dataset.element_spec)
    return ", ".join(f"{getattr(one, 'dtype', one)!s} {getattr(one, 'shape', '')}" for one in specs)
