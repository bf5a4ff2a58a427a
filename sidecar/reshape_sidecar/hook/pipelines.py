"""The datasets of a ``tf.data`` pipeline, from its end to its sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

DATASETS_MAX = 200
"""Most datasets of one pipeline that are inspected."""


def pipeline(end: Any) -> Iterator[Any]:
    """Yield every dataset of the pipeline that ends with ``end``."""
    waiting = [end]
    for _ in range(DATASETS_MAX):
        dataset = waiting.pop() if waiting else None
        if dataset is None:
            return
        yield dataset
        inputs = getattr(dataset, "_inputs", None)
        if callable(inputs):
            waiting.extend(inputs())


def undistributed(dataset: Any) -> Any:
    """Return the ``tf.data.Dataset`` under a distributed one; None if it is not accessible."""
    if hasattr(dataset, "skip"):
        return dataset
    return getattr(dataset, "_original_dataset", None)
