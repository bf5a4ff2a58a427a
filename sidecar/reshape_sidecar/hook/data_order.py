"""Notices that a fit's shuffled data is drawn from by something that is not the fit.

Does: sees each iterator that a script makes over a ``tf.data`` pipeline, in a callback say; knows
which shuffles it moves. Never: counts those: which of them a restart would have to make again
nobody knows. State: none.

Each iterator moves the seeds of the shuffles under it, so the next epoch has another order.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from reshape_sidecar.hook.position import pipeline

NOT_OF_SCRIPTS = ("keras.", "tensorflow.python.distribute.", "_reshape_hook.")
"""Who makes iterators for a fit."""


def watch(tensorflow: Any, seen: Callable[[Any], None]) -> None:
    """Call ``seen`` with each pipeline that the script itself iterates over."""
    dataset_class = tensorflow.data.Dataset
    original = dataset_class.__iter__

    @functools.wraps(original)
    def __iter__(dataset: Any) -> Iterator[Any]:
        if not sys._getframe(1).f_globals.get("__name__", "").startswith(NOT_OF_SCRIPTS):
            seen(dataset)
        return original(dataset)  # type: ignore[no-any-return]

    dataset_class.__iter__ = __iter__


def share_a_shuffle(one: Any, other: Any) -> bool:
    """Whether two pipelines have a shuffle in common that draws a new order for each iterator."""
    shuffles = {id(dataset) for dataset in pipeline(one) if reshuffles(dataset)}
    return any(id(dataset) in shuffles for dataset in pipeline(other))


def reshuffles(dataset: Any) -> bool:
    """Whether ``dataset`` is a shuffle that draws a new order for each iterator."""
    again = getattr(dataset, "_reshuffle_each_iteration", None)
    return type(dataset).__name__.endswith("ShuffleDataset") and again is not False


def restarts_validation(model: Any) -> bool:
    """Whether the first validation of another process would make an iterator more than the next
    one here: under a strategy Keras looks at the data first, by the iterator that it has."""
    validating = getattr(model, "_eval_epoch_iterator", None)
    return (
        validating is not None
        and validating.steps_per_epoch is not None
        and validating._current_iterator is not None
        and model._distribute_strategy is not None
    )
