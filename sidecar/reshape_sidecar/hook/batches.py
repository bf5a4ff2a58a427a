"""Whether the batches of a fit hold the same samples on any number of devices.

Does: inspects how a data pipeline makes its batches and how many samples they have, without drawing
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from reshape_sidecar.hook.pipelines import pipeline

BATCHES = ("_BatchDataset", "_ParallelBatchDataset")
REBATCH = "_RebatchDataset"
OF_ANY_SIZE = (
    REBATCH,
    "_FlatMapDataset",
    "_GroupByWindowDataset",
    "_InterleaveDataset",
    "_ParallelInterleaveDataset",
)
"""Datasets whose batches may differ in size, unless Keras knows one size for all of them."""
INFINITE = -1
"""The cardinality of a pipeline without an end."""


def reasons(model: Any, position: Any) -> Iterator[str]:
    """Yield reasons against an exact trajectory on another number of devices."""
    adapter = position.iterator.data_adapter
    if model._distribute_strategy is not None and rebatch_is_undone(position.undistributed()):
        yield "on one device TensorFlow takes the batches as they were before rebatch"
    replicas = int(model.distribute_strategy.num_replicas_in_sync)
    if replicas == 1:
        return
    batch = getattr(adapter, "batch_size", None)
    if isinstance(batch, int):
        yield from of_sizes([batch, getattr(adapter, "_partial_batch_size", None) or 0], replicas)
    elif type(adapter).__name__ == "TFDatasetAdapter":
        yield from of_sizes(sizes(position.undistributed()), replicas)
    steps = position.iterator.steps_per_epoch
    if type(adapter).__name__ == "TFDatasetAdapter" and steps is None and not adapter.num_batches:
        # Two runs differ even without a stop: some devices run a step without samples.
        yield "on several devices TensorFlow steps past the end of data of unknown length"


def of_sizes(found: Iterable[int | None], replicas: int) -> Iterator[str]:
    """Yield the reason for each of the sizes ``found`` that ``replicas`` devices cannot share."""
    for size in found:
        if size is None:
            yield f"a batch of the data pipeline may not divide by {replicas} devices"
        elif size % replicas:
            yield f"a batch of {size} samples does not divide by {replicas} devices"


def sizes(end: Any) -> Iterator[int | None]:
    """Yield the sizes of a pipeline's batches and of its last one; None: unknown in advance."""
    for dataset in pipeline(end):
        kind = type(dataset).__name__
        if kind in OF_ANY_SIZE:
            yield None
            return
        if kind in BATCHES:
            batch = int(dataset._batch_size)
            samples = int(dataset._input_dataset.cardinality())
            yield batch
            if samples != INFINITE:
                yield samples % batch if samples >= 0 else None
            return


def rebatch_is_undone(end: Any) -> bool:
    """Return whether TensorFlow undoes a rebatch when it shards the data for one device."""
    import tensorflow

    policies = tensorflow.data.experimental.AutoShardPolicy
    if all(type(dataset).__name__ != REBATCH for dataset in pipeline(end)):
        return False
    policy = end.options().experimental_distribute.auto_shard_policy
    return policy in (policies.AUTO, policies.DATA)
