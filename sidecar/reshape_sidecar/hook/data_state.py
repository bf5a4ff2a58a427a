"""State that the data of a fit change while they are read, so that a restart has the same batches.

Does: records the state that an iterator begins with, and restores it before the next process draws
the batches of that iterator again. The state at a stop would not do: an iterator reads ahead of the
steps by a number of batches that nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from reshape_sidecar.hook import data_variables, iterators
from reshape_sidecar.hook.data_variables import PipelineVariables
from reshape_sidecar.hook.pipelines import undistributed

FILLED_BY = "_reshape_filled_by"
"""Attribute of a cached dataset: the values with which its functions filled the cache."""


@dataclass(frozen=True, slots=True)
class SavedData:
    """The state of a fit's data in a checkpoint, as plain JSON values; empty if they have none."""

    now: list[Any] = field(default_factory=list)
    """What the next iterator begins with: right while no iterator is in use."""
    begin: list[Any] | None = None
    """What the iterator in use began with; None if there is none."""
    filled: list[Any] | None = None
    """What the first iterator began with, which filled the caches of the pipeline."""


class DataState:
    """The state of a fit's training data, and of its validation data; this one has none."""

    draws_again = False
    """Whether a restart draws the batches of an iterator again, in place of skipping them."""

    def iterator_begins(self) -> None:
        """Record the state, before the first batch of an iterator is drawn."""

    def capture(self) -> SavedData:
        """Return the state for a checkpoint."""
        return SavedData()

    def restore(self, saved: SavedData) -> None:
        """Restore the state that the next iterator begins with."""

    def fill_caches(self, saved: SavedData, *, goes_on: bool) -> None:
        """Fill caches in memory as the process before did, unless ``goes_on`` does that itself.

        ``goes_on``: an iterator is in use, whose batches are drawn again.
        """

    def begin_again(self, saved: SavedData) -> None:
        """Restore the state that the iterator in use began with; its batches are drawn next."""

    def reasons(self, *, goes_on: bool) -> Iterable[str]:
        """Return reasons against an exact trajectory, known before the first step.

        ``goes_on``: the training iterator lives on while a validation runs.
        """
        return ()

    def reasons_of_step(self, graphs: Iterable[Any]) -> Iterable[str]:
        """Return reasons that the graphs of a traced step show."""
        return ()


class PipelineState(DataState):
    """Variables that functions of a ``tf.data`` pipeline change."""

    def __init__(self, training: Any, validation: Any) -> None:
        self._training = PipelineVariables(training)
        self._validation = PipelineVariables(validation)
        mine = self._training.handles
        known = {id(handle) for handle in mine}
        self._handles = [*mine, *(one for one in self._validation.handles if id(one) not in known)]
        self._caches = self._training.caches() if mine else []
        self._begin: list[Any] | None = None
        self.draws_again = bool(mine)

    def iterator_begins(self) -> None:
        """Record the values of the variables, and of those that fill the caches."""
        if not self.draws_again:
            return
        iterators.await_destroyed()  # the one before may still read ahead
        self._begin = data_variables.values(self._training.handles)
        for cache in self._caches:
            if not hasattr(cache, FILLED_BY):
                setattr(cache, FILLED_BY, self._begin)

    def capture(self) -> SavedData:
        """Return the values of the variables now, and those at the start of iterators."""
        filled = [getattr(cache, FILLED_BY) for cache in self._caches if hasattr(cache, FILLED_BY)]
        return SavedData(
            data_variables.values(self._handles), self._begin, filled[0] if filled else None
        )

    def restore(self, saved: SavedData) -> None:
        """Assign the values that the next iterator begins with."""
        if saved.now:
            data_variables.assign(self._handles, saved.now)

    def fill_caches(self, saved: SavedData, *, goes_on: bool) -> None:
        """Fill each cache from the values that filled it, unless the iterator in use does."""
        if saved.filled is None:
            return
        fills = goes_on and saved.begin == saved.filled
        for cache in self._caches:
            if not hasattr(cache, FILLED_BY):
                setattr(cache, FILLED_BY, saved.filled)
                if not fills:
                    data_variables.assign(self._training.handles, saved.filled)
                    for _ in cache:
                        pass

    def begin_again(self, saved: SavedData) -> None:
        """Assign the values that the iterator in use began with."""
        if self.draws_again and saved.begin is not None:
            self._begin = saved.begin
            data_variables.assign(self._training.handles, saved.begin)

    def reasons(self, *, goes_on: bool) -> Iterator[str]:
        """Yield reasons against an exact trajectory."""
        yield from self._training.reasons()
        shared = {id(one) for one in self._training.handles} & {
            id(one) for one in self._validation.handles
        }
        if goes_on and shared:
            yield "the validation data change variables of the training data"

    def reasons_of_step(self, graphs: Iterable[Any]) -> Iterator[str]:
        """Yield the reason if the step and the pipeline, which reads ahead, share variables."""
        if self._training.shared_with(list(graphs)):
            yield "the data pipeline and the training step use the same variables"


def of(iterator: Any, validation: Any) -> DataState:
    """Return the state of the data under ``iterator`` (a ``TFEpochIterator``) and ``validation``.

    ``validation`` is the argument of ``fit``.
    """
    validated = validation if hasattr(validation, "element_spec") else None
    training = None
    if type(iterator.data_adapter).__name__ == "TFDatasetAdapter":
        training = undistributed(iterator._distributed_dataset)
    return PipelineState(training, undistributed(validated))
