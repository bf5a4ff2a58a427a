"""Whether the batches of a fit hold the same samples on any number of devices.

Does: inspects how a data pipeline makes its batches and how many samples they have, without drawing
one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
    if model._distribute_strategy is not None and _rebatch_is_undone(position):
        yield "on one device TensorFlow takes the batches as they were before rebatch"
    replicas = int(model.distribute_strategy.num_replicas_in_sync)
    if replicas == 1:
        return
    for size in _sizes(position):
        if size is None:
            yield f"a batch of the data pipeline may not divide by {replicas} devices"
        elif size % replicas:
            yield f"a batch of {size} samples does not divide by {replicas} devices"
    adapter, steps = position.iterator.data_adapter, position.iterator.steps_per_epoch
    if type(adapter).__name__ == "TFDatasetAdapter" and steps is None and not adapter.num_batches:
        # Two runs differ even without a stop: some devices run a step without samples.
        yield "on several devices TensorFlow steps past the end of data of unknown length"


def _sizes(position: Any) -> Iterator[int | None]:
    """Yield the sizes of the batches and of an epoch's last one; None: unknown in advance."""
    adapter = position.iterator.data_adapter
    batch = getattr(adapter, "batch_size", None)
    if isinstance(batch, int):
        yield batch
        yield getattr(adapter, "_partial_batch_size", None) or 0
        return
    if type(adapter).__name__ != "TFDatasetAdapter":
        return
    for dataset in position.datasets():
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


def _rebatch_is_undone(position: Any) -> bool:
    """Return whether TensorFlow undoes a rebatch when it shards the data for one device."""
    import tensorflow

    policies = tensorflow.data.experimental.AutoShardPolicy
    if all(type(dataset).__name__ != REBATCH for dataset in position.datasets()):
        return False
    policy = position.undistributed().options().experimental_distribute.auto_shard_policy
    return policy in (policies.AUTO, policies.DATA)
