"""What a DataLoader draws for a sample, drawn by the sample's index and epoch.

Does: lets a batch sampler yield indices that know their epoch, and seeds the generators before such
a sample is read and before its batch is put together. So a sample's augmentation and a batch's
masks depend neither on the worker that draws them nor on a restart. In the process of the loader
itself the generators are as before afterwards.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import get_worker_info
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from reshape_sidecar.pytorch.data import (
    SamplerStates,
    random_states,
    seed_generators,
    seed_of,
    set_random_states,
)

Restore = Callable[[], None]


class Sample(int):
    """The index of a sample, with the epoch in which it is read."""

    seed: int
    epoch: int

    @classmethod
    def of(cls, index: int, seed: int, epoch: int) -> Sample:
        """Return ``index`` as one of ``epoch`` of a training with ``seed``."""
        sample = cls(index)
        sample.seed, sample.epoch = seed, epoch
        return sample


class EpochBatches:
    """A batch sampler of the script, whose indices know their epoch."""

    def __init__(self, batches: Any, sampler: Any, seed: int) -> None:
        """``sampler``: the one below ``batches`` that draws the order, if there is one."""
        self._batches, self._drawn_by, self._seed = batches, sampler, seed
        self.epoch = 0
        self.marks_samples = True
        self.samplers = SamplerStates(batches)

    def set_epoch(self, epoch: int) -> None:
        """Yield the batches of ``epoch`` from now on."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        epoch = self.epoch
        if hasattr(self._drawn_by, "set_epoch"):
            self._drawn_by.set_epoch(epoch)
        self.samplers.draws()
        batches = iter(self._batches)
        first = next(batches, None)  # draws the order
        self.samplers.has_drawn()
        for batch in () if first is None else itertools.chain((first,), batches):
            yield [self._marked(index, epoch) for index in batch]

    def __len__(self) -> int:
        return len(self._batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)

    def _marked(self, index: Any, epoch: int) -> Any:
        if type(index) is int and self.marks_samples:
            return Sample.of(index, self._seed, epoch)
        return index


@functools.cache
def patch_fetch() -> None:
    """Let every loader of this process, and the workers that it forks, read samples by seeds."""
    original = _MapDatasetFetcher.fetch

    def fetch(own: Any, indices: Any) -> Any:
        if not (isinstance(indices, list) and indices and isinstance(indices[0], Sample)):
            return original(own, indices)
        before = random_states() if get_worker_info() is None else None
        try:
            return own.collate_fn(_read(own.dataset, indices))
        finally:
            if before is not None:
                set_random_states(before)

    _MapDatasetFetcher.fetch = fetch


def _read(dataset: Any, indices: list[Sample]) -> Any:
    """Read the samples, and leave the generators seeded for their batch."""
    first, plain = indices[0], [int(index) for index in indices]
    seed_of_batch = seed_of(first.seed, "batch", first.epoch, *plain)
    if getattr(dataset, "__getitems__", None):
        seed_generators(seed_of_batch)
        return dataset.__getitems__(plain)
    data = []
    for index in indices:
        seed_generators(seed_of(first.seed, "sample", first.epoch, int(index)))
        data.append(dataset[int(index)])
    seed_generators(seed_of_batch)
    return data
