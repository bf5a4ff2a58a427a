"""State that the data of a fit change while they are read, so that a restart has the same batches.

Two kinds: variables that functions of a ``tf.data`` pipeline change, and, in Python, attributes of
a PyDataset and generators of random numbers.

Does: records the state that an iterator begins with, and restores it before the next process draws
the batches of that iterator again. The state at a stop would not do: an iterator reads ahead of the
steps by an unknown number of batches.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from reshape_sidecar.hook import data_objects, data_variables, iterators
from reshape_sidecar.hook.custom_step import of_keras
from reshape_sidecar.hook.data_objects import DataObjects
from reshape_sidecar.hook.data_variables import PipelineVariables
from reshape_sidecar.hook.pipelines import undistributed

FILLED_BY = "_reshape_filled_by"
"""Attribute of a cached dataset: the values with which its functions filled the cache."""
DRAWS_EVERY, WHOLE_EVERY = 16, 128
"""Of a PyDataset that was not seen to draw or change, each of so many batches is examined: for
random numbers, and for all values."""


@dataclass(frozen=True, slots=True)
class SavedData:
    """The state of a fit's data in a checkpoint, as plain JSON values; empty if they have none."""

    now: list[Any] = field(default_factory=list)
    """Values of variables at the stop: the next iterator begins with them."""
    begin: list[Any] | None = None
    """What the iterator in use began with; None if there is none."""
    filled: list[Any] | None = None
    """What the first iterator began with, which filled the caches of the pipeline."""
    objects: dict[str, Any] = field(default_factory=dict)
    """The same of objects in Python: ``now``, ``begin`` and ``validation``."""


class _PipelineState:
    """Variables that functions of a ``tf.data`` pipeline change."""

    def __init__(self, training: Any, validation: Any) -> None:
        self._training = PipelineVariables(training)
        self._validation = PipelineVariables(validation)
        self.datasets = self._training.datasets
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
        """Assign the values at the stop."""
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


class _ObjectsState:
    """A PyDataset that this process alone reads, and one for the validation.

    ``shared``: a PyDataset that several workers read. What it changes is named alone.
    """

    def __init__(self, training: Any, validation: Any, shared: Any, model: Any) -> None:
        self._dataset = training
        self._training = DataObjects(training, model) if training is not None else None
        self._validation = DataObjects(validation, model) if validation is not None else None
        self._shared = DataObjects(shared, model) if shared is not None else None
        self._begin: dict[str, Any] | None = None
        self._at_stop: tuple[dict[str, Any], dict[str, Any]] | None = None
        self._changes = False
        """Whether the dataset was seen to draw or to change a value."""
        self._drawing_again = False
        self._restoring = threading.Lock()
        """Keeps the reading of a batch and the restoring of values apart."""
        self._restored = False
        """Whether values were restored since the last batch."""
        self.draws_again = training is not None
        self.late: list[str] = []
        self._has_validated = False

    def iterator_begins(self) -> None:
        if self._training is None:
            return
        iterators.await_destroyed()
        objects = self._training.capture(impure=self._changes)
        self._lose(objects["unkeepable"])
        self._begin = {"process": data_objects.process_state(), "objects": objects}

    def _lose(self, names: list[str]) -> None:
        for name in names:
            self.late.append(f"the PyDataset changes {name}, which no checkpoint can hold")

    def look_at_shared(self) -> None:
        if self._shared is not None:
            for name in self._shared.changed():
                self.late.append(f"several workers read a PyDataset that changes {name}")

    def capture(self) -> dict[str, Any]:
        out: dict[str, Any] = {}
        if self._training is not None:
            out["now"], out["begin"] = self._training.capture(), self._begin
            out["changes"] = self._changes
        if self._validation is not None:
            out["validation"] = self._validation.capture()
            out["has_validated"] = self._has_validated
        return out

    def restore(self, saved: dict[str, Any]) -> None:
        if self._training is not None:
            self._training.restore(saved.get("now", {}))
        self._restore_validation(saved)

    def _restore_validation(self, saved: dict[str, Any]) -> None:
        if self._validation is not None:
            self._validation.restore(saved.get("validation", {}))
            self._has_validated = saved.get("has_validated", False)

    def begin_again(self, saved: dict[str, Any]) -> None:
        self._restore_validation(saved)
        begin = saved.get("begin")
        if self._training is not None and begin is not None:
            self._begin = begin
            self._at_stop = data_objects.process_state(), saved.get("now", {})
            self._changes = saved.get("changes", True)  # an older hook does not say
            self._drawing_again = True
            data_objects.restore_process_state(begin["process"])
            self._training.restore(begin["objects"])

    def drawn_again(self) -> None:
        """Restore what the data did not change as at the stop: other code may have changed it."""
        at_stop, self._at_stop = self._at_stop, None
        begin = (self._begin or {}).get("process")
        if at_stop is None or self._training is None:
            return
        with self._restoring:
            self._drawing_again = False
            self._restored = True
            if data_objects.process_state() == begin:
                data_objects.restore_process_state(at_stop[0])
            if not self._changes:
                self._training.restore(at_stop[1])

    @contextlib.contextmanager
    def validation_begins(self) -> Iterator[None]:
        """Undo the draws of Keras's first look at the validation data, if that was done before."""
        if self._validation is None:
            yield
            return
        process, objects = data_objects.process_state(), self._validation.capture()
        yield
        if self._has_validated:
            data_objects.restore_process_state(process)
            self._validation.restore(objects)
        self._has_validated = True

    def reasons(self, *, goes_on: bool) -> Iterator[str]:
        if self._training is None or not goes_on:
            return
        for name in ("on_epoch_begin", "on_epoch_end"):
            if not of_keras(getattr(type(self._dataset), name)):
                yield f"the PyDataset changes itself in {name} while Keras reads it ahead"

    def reading(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield ``batches``, and note if other code changes what the dataset changes."""
        assert self._training is not None
        after: dict[str, Any] = {}
        for number in itertools.count():
            with self._restoring:
                # Keras has read the first batch before, so the second may be another case.
                whole = number < 2 or number % WHOLE_EVERY == 0 or self._drawing_again
                looks = number < DRAWS_EVERY or number % DRAWS_EVERY == 0
                draws = self._changes or whole or looks
                before = self._training.mark(draws=draws, whole=whole)
                self._note_others({} if self._restored else after, before)
                self._restored = False
                try:
                    batch = next(batches)
                except StopIteration:
                    self._lose(self._training.unkeepable(impure=self._changes))
                    return
                after = self._training.mark(draws=draws, whole=whole)
                self._changes = self._changes or before != after
            yield batch

    def _note_others(self, after: dict[str, Any], before: dict[str, Any]) -> None:
        """Name what has changed between the marks after a batch and before the next."""
        for path in after.keys() & before.keys():
            if after[path] is not before[path] and after[path] != before[path]:
                self.late.append(
                    "other code draws the random numbers of the PyDataset"
                    if path == data_objects.DRAWS
                    else f"other code changes {path.rpartition(':')[2]}, which the PyDataset uses"
                )


class DataState:
    """The state of a fit's training data and of its validation data."""

    def __init__(self, pipeline: _PipelineState, objects: _ObjectsState) -> None:
        self._pipeline = pipeline
        self._objects = objects
        self.draws_again = pipeline.draws_again or objects.draws_again
        """Whether a restart draws the batches of an iterator again, in place of skipping them."""

    def iterator_begins(self) -> None:
        """Record the state, before the first batch of an iterator is drawn."""
        self._pipeline.iterator_begins()
        self._objects.iterator_begins()

    def capture(self) -> SavedData:
        """Return the state for a checkpoint."""
        return replace(self._pipeline.capture(), objects=self._objects.capture())

    def restore(self, saved: SavedData) -> None:
        """Restore the state that the next iterator begins with."""
        self._pipeline.restore(saved)
        self._objects.restore(saved.objects)

    def fill_caches(self, saved: SavedData, *, goes_on: bool) -> None:
        """Fill caches in memory as the process before did.

        ``goes_on``: an iterator is in use, whose batches are drawn again; if it is the one that
        fills the caches, nothing is filled here.
        """
        self._pipeline.fill_caches(saved, goes_on=goes_on)

    def has_begun(self, saved: SavedData) -> bool:
        """Return whether ``saved`` has what an iterator in use began with."""
        if self._objects.draws_again:
            return saved.objects.get("begin") is not None
        return self.draws_again and saved.begin is not None

    def begin_again(self, saved: SavedData) -> None:
        """Restore the state that the iterator in use began with; its batches are drawn next."""
        self._pipeline.restore(saved)
        self._pipeline.begin_again(saved)
        self._objects.begin_again(saved.objects)

    def drawn_again(self) -> None:
        """Note that the batches before the stop are drawn."""
        self._objects.drawn_again()

    def validation_begins(self) -> contextlib.AbstractContextManager[None]:
        """Enclose the making of the validation's iterator, which may draw batches to see them."""
        return self._objects.validation_begins()

    def reading(self, adapter_batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches of a PyDataset that this process reads."""
        if not self._objects.draws_again:
            return adapter_batches
        return self._objects.reading(adapter_batches)

    def reasons(self, *, goes_on: bool) -> Iterator[str]:
        """Yield reasons against an exact trajectory, known before the first step.

        ``goes_on``: the training iterator lives on over epochs and while a validation runs.
        """
        yield from self._pipeline.reasons(goes_on=goes_on)
        yield from self._objects.reasons(goes_on=goes_on)

    def reasons_of_step(self, graphs: Iterable[Any]) -> Iterable[str]:
        """Return reasons that the graphs of a traced step show."""
        return self._pipeline.reasons_of_step(graphs)

    @property
    def datasets(self) -> list[Any]:
        """The datasets of the training pipeline and those that its functions read."""
        return self._pipeline.datasets

    def look_at_shared(self) -> None:
        """Look for changes of a PyDataset that several workers read."""
        self._objects.look_at_shared()

    def late_reasons(self) -> list[str]:
        """Return the reasons that were found since the last call."""
        late, self._objects.late = self._objects.late, []
        return late


def of_pipeline(end: Any) -> DataState:
    """Return the state of the data of the pipeline ``end`` alone."""
    return DataState(_PipelineState(end, None), _ObjectsState(None, None, None, None))


def of(iterator: Any, validation: Any, model: Any) -> DataState:
    """Return the state of the data under ``iterator`` (a ``TFEpochIterator``) and ``validation``.

    ``validation`` is the argument of ``fit``, ``model`` the one that it trains.
    """
    from keras.utils import PyDataset

    adapter = iterator.data_adapter
    validated = validation if hasattr(validation, "element_spec") else None
    training = dataset = shared = None
    if type(adapter).__name__ == "TFDatasetAdapter":
        training = undistributed(iterator._distributed_dataset)
    elif type(adapter).__name__ == "PyDatasetAdapter":
        dataset = adapter.py_dataset if adapter.enqueuer is None else None
        shared = adapter.py_dataset if dataset is None else None
    beside = validation if isinstance(validation, PyDataset) else None
    return DataState(
        _PipelineState(training, undistributed(validated)),
        _ObjectsState(dataset, beside, shared, model),
    )
