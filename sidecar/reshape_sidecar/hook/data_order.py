"""Detects that other code than the fit draws from the fit's shuffled data.

Does: watches each iterator that a script makes over a ``tf.data`` pipeline (in a callback, say) and
finds the shuffles below it. Each iterator moves the seeds of those shuffles, so the next epoch has
another order. A restart cannot repeat that: it does not know which of them to make again.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from reshape_sidecar.hook.pipelines import pipeline

NOT_OF_SCRIPTS = ("keras.", "tensorflow.python.distribute.", "_reshape_hook.")
"""Modules that make iterators for a fit."""


def watch(tensorflow: Any, on_iterator: Callable[[Any], None]) -> None:
    """Call ``on_iterator`` with each pipeline that the script itself iterates over."""
    dataset_class = tensorflow.data.Dataset
    original = dataset_class.__iter__

    @functools.wraps(original)
    def __iter__(dataset: Any) -> Iterator[Any]:
        if not sys._getframe(1).f_globals.get("__name__", "").startswith(NOT_OF_SCRIPTS):
            on_iterator(dataset)
        return original(dataset)  # type: ignore[no-any-return]

    dataset_class.__iter__ = __iter__


def share_a_shuffle(one: Any, other: Any) -> bool:
    """Return whether two pipelines share a shuffle that draws an order for each iterator."""
    shuffles = {id(dataset) for dataset in pipeline(one) if reshuffles(dataset)}
    return any(id(dataset) in shuffles for dataset in pipeline(other))


def reshuffles(dataset: Any) -> bool:
    """Return whether ``dataset`` is a shuffle that draws a new order for each iterator."""
    again = getattr(dataset, "_reshuffle_each_iteration", None)
    return type(dataset).__name__.endswith("ShuffleDataset") and again is not False


def restarts_validation(model: Any) -> bool:
    """Return whether another process would make one more iterator for its first validation.

    Under a strategy Keras inspects the data first, and does so with the iterator that it has.
    """
    validating = getattr(model, "_eval_epoch_iterator", None)
    return (
        validating is not None
        and validating.steps_per_epoch is not None
        and validating._current_iterator is not None
        and model._distribute_strategy is not None
    )
