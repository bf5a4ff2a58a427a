"""The position of training in its data, and how another process reaches the same position.

Does: counts the iterators that a fit makes and the batches drawn from the one in use, and takes the
iterator of a new process to that position. Iterators are counted because a seeded shuffle draws its
next order when an iterator is made (``placement``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from reshape_sidecar.hook import placement
from reshape_sidecar.hook.data_state import DataState, SavedData
from reshape_sidecar.hook.pipelines import pipeline, undistributed

Counts = tuple[int, int]
"""Iterators over a pipeline: how many were made, and how many of them were drawn from."""


@dataclass(frozen=True, slots=True)
class SavedPosition:
    """Position of an epoch iterator in a checkpoint; all counts are global batches."""

    creations: int
    """Iterators that this fit has made so far."""
    draws: int
    """Batches drawn from the newest iterator."""
    total_draws: int
    batch: int
    """Batches done in the current epoch."""
    start_creations: int
    start_steps_seen: int
    start_num_batches: int | None
    start_continues: bool
    """True if an iterator that goes on over epochs existed at the start of the epoch."""
    begun: int = 0
    """Iterators of this fit that were drawn from."""
    validation: Counts = (0, 0)
    """Iterators of this fit over the validation data."""


@dataclass(slots=True)
class IteratorCounts:
    """Iterators over one pipeline that a fit has made and drawn from, in all processes."""

    made: int = 0
    begun: int = 0

    def counts(self) -> Counts:
        """Return both counts, for a checkpoint."""
        return self.made, self.begun


class _Placeholder:
    """Stands for an iterator during the replay; gets the real one at the end."""

    def __init__(self) -> None:
        self.real: Any = None

    def __iter__(self) -> _Placeholder:
        return self

    def __next__(self) -> Any:
        return next(self.real)


class Position:
    """The position of one ``TFEpochIterator`` of Keras, the training iterator of a fit."""

    def __init__(
        self,
        iterator: Any,
        original_enumerate: Callable[[Any], Iterator[Any]],
        original_get: Callable[[Any], Any],
        seed_source: Any,
        data: DataState,
    ) -> None:
        self.iterator = iterator
        self.data = data
        self._enumerate_original = original_enumerate
        self._get_original = original_get
        self._seed_source = seed_source
        self._replaying = False
        self._resumed_steps: Iterator[Any] | None = None
        self._last: Any = None
        self._undrawn: tuple[_Placeholder, int] | None = None
        self.training = IteratorCounts()
        self.validation = IteratorCounts()
        self._draws = 0
        self._total_draws = 0
        self._start: tuple[int, int, int | None, bool] = (0, 0, None, False)

    def epoch_length(self) -> int | None:
        """Return the batches of an epoch; None while they are unknown."""
        length = self.iterator.num_batches
        return int(length) if length else None

    def undistributed(self) -> Any:
        """Return the pipeline of the training data before it is split over devices, or None."""
        return undistributed(self.iterator._distributed_dataset)

    def datasets(self) -> Iterator[Any]:
        """Yield every dataset of the pipeline, from its end to its sources."""
        return pipeline(self.undistributed())

    def get_iterator(self) -> Any:
        """Replace ``TFEpochIterator._get_iterator``: count the iterator."""
        self.training.made += 1
        return _Placeholder() if self._replaying else self._get_original(self.iterator)

    def enumerate(self) -> Iterator[Any]:
        """Replace ``TFEpochIterator._enumerate_iterator``: go on with a resumed epoch."""
        if self._resumed_steps is not None:
            resumed_steps, self._resumed_steps = self._resumed_steps, None
            return resumed_steps
        self._mark_start()
        return self._enumerate_original(self.iterator)

    def count_draw(self, item: Any) -> Any:
        """Count an item that ``__next__`` returns; return it with the real iterator in it."""
        begin, end, source = item
        if source is not self._last:
            self._last, self._draws = source, 0
            self.training.begun += 1
            self.data.iterator_begins()
        self._draws += end - begin + 1
        self._total_draws += end - begin + 1
        return (begin, end, source.real) if isinstance(source, _Placeholder) else item

    def snapshot(self, batch: int, validation_once_more: bool) -> SavedPosition:
        """Return the position after ``batch`` batches of the epoch.

        ``validation_once_more``: the next process makes one more iterator over the validation
        data than this one would, so one less is counted.
        """
        made, begun = self.validation.counts()
        creations, steps_seen, num_batches, continues = self._start
        return SavedPosition(
            creations=self.training.made,
            draws=self._draws if self._last is not None else 0,
            total_draws=self._total_draws,
            batch=batch,
            start_creations=creations,
            start_steps_seen=steps_seen,
            start_num_batches=num_batches,
            start_continues=continues,
            begun=self.training.begun,
            validation=(made - validation_once_more, begun - validation_once_more),
        )

    def go_to(self, saved: SavedPosition, epochs_done: int, validation: Any) -> None:
        """Take the freshly reset iterator to the position ``saved``."""
        iterator = self.iterator
        _turn_epochs(iterator, epochs_done)
        made_here, begun_here = self.training.counts()
        iterator._num_batches = saved.start_num_batches
        iterator._steps_seen = saved.start_steps_seen
        live: _Placeholder | None = None
        if saved.start_continues and iterator.steps_per_epoch is not None:
            live = iterator._current_iterator = _Placeholder()
        self._start = (
            saved.start_creations,
            saved.start_steps_seen,
            saved.start_num_batches,
            saved.start_continues,
        )
        if saved.batch:
            self._resumed_steps = self._enumerate_original(iterator)
            live = self._replay(self._resumed_steps, saved.batch) or live
        placement.advance(validation, *saved.validation)
        made, begun = saved.creations - made_here, saved.begun - begun_here
        if live is None:
            placement.advance(self._seed_source, made, begun)
        else:
            whole = iterator.data_adapter.num_batches
            goes_on = saved.draws > 0 and not (whole and saved.draws >= whole)
            placement.advance(self._seed_source, made - 1, begun - goes_on)
            unused = not saved.batch and bool(whole) and saved.draws >= whole
            self._undrawn = live, 0 if unused else saved.draws
            if not unused:
                self._last, self._draws = live, saved.draws
        self.training = IteratorCounts(saved.creations, saved.begun)
        self.validation = IteratorCounts(*saved.validation)
        self._total_draws = saved.total_draws

    def restore_data(self, saved: SavedData) -> None:
        """Restore the state of the data, and make the iterator that goes on.

        Called last: the other parts of a checkpoint have the values at the stop, but the batches
        before it are drawn from the values at the start of the iterator.
        """
        self.data.fill_caches(saved, goes_on=self._undrawn is not None)
        if self._undrawn is None:
            self.data.restore(saved)
            return
        live, draws = self._undrawn
        self._undrawn = None
        iterator = self.iterator
        live.real = placement.iterator_at(
            iterator._distributed_dataset, iterator._distribute_strategy, draws, self.data, saved
        )

    def _replay(self, steps: Iterator[Any], batches: int) -> _Placeholder | None:
        self._replaying = True
        try:
            done = 0
            live = None
            while done < batches:
                begin, end, live = next(steps)
                done += end - begin + 1
        finally:
            self._replaying = False
        return live

    def _mark_start(self) -> None:
        self._start = (
            self.training.made,
            self.iterator._steps_seen,
            self.iterator._num_batches,
            self.iterator._current_iterator is not None,
        )


def skip_fit(
    iterator: Any, training: Counts, epochs: int, validation: Any, evaluations: Counts
) -> None:
    """Move the seeds of a skipped fit's data as that fit did: another fit may use the data."""
    _turn_epochs(iterator, epochs)
    placement.advance(seed_source(iterator), *training)
    placement.advance(validation, *evaluations)


def _turn_epochs(iterator: Any, epochs: int) -> None:
    dataset = getattr(iterator.data_adapter, "py_dataset", None)
    if dataset is not None:
        # Not the adapter's methods: they start its workers, which leave batches behind.
        for _ in range(epochs):
            dataset.on_epoch_begin()
            dataset.on_epoch_end()


def seed_source(iterator: Any) -> Any:
    """Return the script's pipeline under ``iterator``; None if the data is no pipeline."""
    if type(iterator.data_adapter).__name__ != "TFDatasetAdapter":
        return None
    return undistributed(iterator._distributed_dataset) or iterator._distributed_dataset
