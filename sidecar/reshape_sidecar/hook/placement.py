"""Takes a ``tf.data`` pipeline to a position: the order of its shuffles, and the batches behind it.

A seeded ``Dataset.shuffle`` draws its next order when an iterator is made: a finished epoch costs
one cheap iterator, and ``Dataset.skip`` skips batches inside the pipeline.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reshape_sidecar.hook.data_state import DataState, SavedData
from reshape_sidecar.hook.pipelines import pipeline, undistributed


def advance(dataset: Any, made: int, begun: int) -> None:
    """Make unused iterators over ``dataset``: each one moves the seeds of the pipeline.

    ``made``: iterators that another process has made; ``begun``: those that it has drawn from.
    """
    if hasattr(dataset, "element_spec"):
        for _ in range(made):
            iter(dataset)
        for late in _begun_late(undistributed(dataset)):
            for _ in range(begun):
                iter(late)


def iterator_at(dataset: Any, strategy: Any, draws: int, data: DataState, saved: SavedData) -> Any:
    """Return an iterator over ``dataset`` that goes on behind ``draws`` batches.

    Restores the state of the data. Called last: the other parts of a checkpoint have the values at
    the stop, but the batches before it are drawn from the values at the start of the iterator.

    dataset: a pipeline, or one that ``strategy`` has distributed.
    """
    if not data.has_begun(saved) or not draws:
        data.restore(saved)
        return _behind(dataset, strategy, draws)
    data.begin_again(saved)
    iterator = iter(dataset)
    for _ in range(draws):
        next(iterator)
    data.drawn_again()
    return iterator


def _behind(dataset: Any, strategy: Any, draws: int) -> Any:
    plain = undistributed(dataset)
    if plain is None:
        source = iter(dataset)
        for _ in range(draws):
            next(source)
        return source
    skipped = plain.skip(draws)
    if plain is dataset:
        return iter(skipped)
    return iter(strategy.experimental_distribute_dataset(skipped))


def _begun_late(end: Any) -> Iterator[Any]:
    """Yield the parts of a pipeline that an iterator begins only when it is drawn from."""
    for dataset in pipeline(end):
        if type(dataset).__name__ in ("_ShuffleDataset", "_CopyToDeviceDataset"):
            yield from dataset._inputs()
        elif type(dataset).__name__ == "_ConcatenateDataset":
            yield dataset._inputs()[1]
