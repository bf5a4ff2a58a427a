"""Whether the batches of a fit are the same samples on any number of devices, as far as it shows.

Does: looks how a data pipeline makes its batches, and how many samples they have. Never: draws one
to find out. State: none.
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
"""What makes batches in a function, or out of others; with one size for all, Keras knows it."""
INFINITE = -1
"""The cardinality of a pipeline without an end."""


def reasons(model: Any, position: Any) -> Iterator[str]:
    """What speaks against an exact trajectory on another number of devices."""
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
        # Two runs differ also without a stop: some devices do a step that has no samples.
        yield "on several devices TensorFlow steps past the end of data of unknown length"


def _sizes(position: Any) -> Iterator[int | None]:
    """Samples of the batches and of the last one of an epoch; None: nobody can know before."""
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
    """Whether TensorFlow, as it shards the data for one device, makes nothing of a rebatch."""
    import tensorflow

    policies = tensorflow.data.experimental.AutoShardPolicy
    if all(type(dataset).__name__ != REBATCH for dataset in position.datasets()):
        return False
    policy = position.undistributed().options().experimental_distribute.auto_shard_policy
    return policy in (policies.AUTO, policies.DATA)
