"""The training loaders of a Lightning fit: the same batches at any number of processes.

Does: gives each process its part of the batch of the first start, skips what the epoch has done,
and lets a loader worker draw by epoch and sample, so that it does not matter which worker draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset, TensorDataset
from torch.utils.data._utils import fetch
from torch.utils.data.distributed import DistributedSampler

from reshape_sidecar.claims import CheckpointError
from reshape_sidecar.pytorch.data import (
    Division,
    LoaderError,
    SamplerStates,
    States,
    changed_in_workers,
    forks,
    length,
    random_states,
    seed_generators,
    seed_of,
    set_random_states,
)
from reshape_sidecar.pytorch.hf_samples import Sample as KeyedSample
from reshape_sidecar.pytorch.hf_samples import patch_fetch

READ_BY_STEP = "_DataLoaderIterDataFetcher"
"""Class of what reads the batches of a ``training_step`` that reads them itself."""
NOT_MICRO = (
    "`batch: micro` needs a DataLoader with batch_size, whose order Lightning deals to the"
    " processes; give one, or leave batch out of the record"
)


class Sample(int):
    """An index of a dataset, with the epoch in which it is read."""

    epoch: int

    @classmethod
    def of(cls, index: int, epoch: int) -> Sample:
        """Return ``index`` as one of ``epoch``."""
        sample = cls(index)
        sample.epoch = epoch
        return sample


Mark = Callable[[int, int], Any]


class WorkerSeeds:
    """Makes a loader worker draw by epoch and sample."""

    def __init__(self, script: Any, seed: int) -> None:
        was_in_a_fit = isinstance(script, WorkerSeeds)
        self._script: Any = script._script if was_in_a_fit else script
        self._seed = seed

    def __call__(self, number: int) -> None:
        if self._script is not None:
            self._script(number)
        seed, original = self._seed, fetch._MapDatasetFetcher.fetch

        def seeded(fetcher: Any, indices: Any) -> Any:
            first: Any = indices[0] if isinstance(indices, list) and indices else None
            if type(first).__name__ != Sample.__name__:
                return original(fetcher, indices)
            if getattr(fetcher.dataset, "__getitems__", None):
                seed_generators(seed_of(seed, "batch", first.epoch, int(first)))
                return original(fetcher, [int(index) for index in indices])
            samples = []
            for index in indices:
                seed_generators(seed_of(seed, "sample", index.epoch, int(index)))
                samples.append(fetcher.dataset[int(index)])
            return fetcher.collate_fn(samples)

        fetch._MapDatasetFetcher.fetch = seeded  # of this worker's process alone


class Batches:
    """The batch sampler of a loader, without the batches that the epoch has done."""

    def __init__(
        self, inner: Any, epoch: Callable[[], int], mark: Mark | None, parts: int = 1
    ) -> None:
        """``mark`` gives an index its epoch. ``parts``: micro-batches that a batch is cut into."""
        self.inner, self._parts = inner, parts
        self.skip = 0
        self.order: States | None = None
        """Generators with which the process before drew the order of this epoch."""
        self.samplers = SamplerStates(inner)
        self.drawn_with: States = {}
        """Generators with which this process drew the order of this epoch."""
        self._epoch, self._mark = epoch, mark

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)  # while it is unpickled
        return getattr(self.inner, name)

    def __len__(self) -> int:
        """Return the number of whole batches."""
        return len(self._whole)

    @property
    def _whole(self) -> Any:
        inner, parts = self.inner, self._parts
        if parts == 1:
            return inner
        return BatchSampler(inner.sampler, inner.batch_size * parts, inner.drop_last)

    def __iter__(self) -> Iterator[list[Any]]:
        whole, parts = self._whole, self._parts
        epoch, skip = self._epoch(), self.skip % max(1, len(whole))
        before = random_states()
        if self.order is not None:
            self._set(self.order)
        self.drawn_with = random_states()
        self.samplers.draws()
        batches = iter(whole)
        first = next(batches, None)  # draws the order
        self.samplers.has_drawn()
        if self.order is not None:
            set_random_states(before)
        for number, batch in enumerate(_chain(first, batches)):
            if number >= skip:
                mark = self._mark
                marked = batch if mark is None else [_marked(mark, one, epoch) for one in batch]
                # The sampler has dealt the samples to the processes one by one.
                yield from (marked[part::parts] for part in range(parts))

    def _set(self, states: States) -> None:
        set_random_states(states)
        owners = (self.inner, getattr(self.inner, "sampler", None))
        generators = [getattr(owner, "generator", None) for owner in owners]
        known = states.get("owners", [])  # of a checkpoint before version 0.2
        for generator, state in zip(filter(None, generators), known, strict=False):
            generator.set_state(state)


def _marked(mark: Mark, index: Any, epoch: int) -> Any:
    return mark(index, epoch) if type(index) is int else index


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    if first is not None:
        yield first
        yield from rest


class Loaders:
    """The training loaders of one fit."""

    def __init__(self, ranks: int, rank: int, seed: int, epoch: Callable[[], int]) -> None:
        self._ranks, self._rank, self._seed, self._epoch = ranks, rank, seed, epoch
        self.first_ranks = ranks
        """Processes with which training began, unless a checkpoint says it."""
        self.division: Division | None = None
        """Of a step under ``batch: micro``."""
        self._known: list[dict[str, Any]] | None = None
        self._orders: list[States | None] = []
        self._skip = 0
        self._found: list[Batches | None] = []
        self.facts: list[dict[str, Any]] = []
        """Of each loader: samples, and the batch of all processes together."""
        self.reasons: list[str] = []
        self.lost: list[str] = []
        """Reasons why no start repeats the samples."""

    def resume(self, facts: list[dict[str, Any]], skip: int, orders: list[States | None]) -> None:
        """Skip ``skip`` batches of the epoch, of loaders that must be those of ``facts``."""
        self._known, self._skip, self._orders = facts, skip, orders

    def request_begins(self) -> None:
        """Forget the loaders: Lightning asks the script for new ones."""
        self.facts, self._found = [], []

    def adapt(self, loader: Any) -> Any:
        """Return ``loader`` for this process. Raises LoaderError, CheckpointError."""
        number = len(self.facts)
        known = self._known[number] if self._known and number < len(self._known) else None
        fact = _fact(loader)
        self._check_length(known, fact)
        batches = getattr(loader, "batch_sampler", None)
        if not isinstance(loader, DataLoader) or fact["samples"] is None or batches is None:
            if self.division is not None:
                raise LoaderError(f"{NOT_MICRO}: {_kind_reason(loader)}")
            self.reasons.append(_kind_reason(loader))
            self._found.append(None)
            self.facts.append(fact)
            return loader
        if isinstance(batches, Batches):
            batches = batches.inner  # the loader has been in a fit before
        self._divide(loader, batches, fact, known)
        workers = loader.num_workers > 0
        forks_workers = workers and forks(loader)
        if workers and not forks_workers:
            self.reasons.append("loader workers are not forked, and draw by their own numbers")
        if (kept := changed_in_workers(loader)) is not None:
            self.lost.append(kept)
        draws = not isinstance(loader.dataset, TensorDataset)
        mark: Mark | None = None
        if self.division is not None:
            patch_fetch()
            if forks_workers or not workers:
                mark = lambda index, epoch: KeyedSample.of(index, self._seed, epoch)  # noqa: E731
        elif draws and forks_workers:
            mark = Sample.of
            loader.worker_init_fn = WorkerSeeds(loader.worker_init_fn, self._seed)
        parts = 1 if self.division is None else len(self.division.numbers)
        own = Batches(batches, self._epoch, mark, parts)
        own.skip = self._skip
        order = self._orders[number] if number < len(self._orders) else None
        own.order = order if self._skip else None
        if order is not None and "samplers" in order:
            own.samplers.resume(order["samplers"], in_epoch=self._skip > 0)
        vars(loader)["batch_sampler"] = own  # PyTorch refuses a plain assignment
        self._found.append(own)
        self.facts.append(fact)
        if fact["samples"] % self._ranks:
            self.reasons.append(
                f"{fact['samples']} samples do not divide by {self._ranks} GPUs: some are repeated"
            )
        return loader

    def discards(self) -> int:
        """Return the number of batches to read and drop, if a loader cannot skip them."""
        return self._skip if any(one is None for one in self._found) else 0

    def read_began(self) -> None:
        """Forget the skipped batches: the first batch has been read."""
        self._skip, self._orders = 0, []
        for one in self._found:
            if one is not None:
                one.skip, one.order = 0, None

    def orders(self) -> list[States | None]:
        """Return the generators with which each loader drew the order of this epoch."""
        return [
            None if one is None else {**one.drawn_with, "samplers": one.samplers.saved()}
            for one in self._found
        ]

    def _check_length(self, known: dict[str, Any] | None, fact: dict[str, Any]) -> None:
        if known is not None and known["samples"] != fact["samples"]:
            raise CheckpointError(
                f"the training data has {fact['samples']} samples, and it had {known['samples']}"
                " when training began; give the same data, or an empty checkpoint folder"
            )

    def _divide(
        self, loader: Any, batches: Any, fact: dict[str, Any], known: dict[str, Any] | None
    ) -> None:
        """Give this process its part of the batch with which training began."""
        if self.division is not None:
            _keep_whole(self.division, batches, fact, known)
            return
        size = getattr(batches, "batch_size", None)
        if size is None:
            self.reasons.append(f"{type(batches).__name__} makes batches of its own")
            return
        fact["batch"] = size * self._ranks
        whole = (known or {}).get("batch") or size * self.first_ranks
        if whole == fact["batch"]:
            return
        if whole % self._ranks:
            raise LoaderError(
                f"training began with a batch of {whole} samples on all GPUs together, which"
                f" {self._ranks} GPUs cannot share equally: choose a batch_size so that every"
                " number in optional_gpus divides it"
            )
        if type(batches) is not BatchSampler:
            raise LoaderError(
                f"{type(batches).__name__} makes batches of its own, so their size cannot follow"
                f" from {self._ranks} GPUs: give the loader a batch_size, or one number of GPUs in"
                " optional_gpus"
            )
        batches.batch_size = whole // self._ranks
        vars(loader)["batch_size"] = batches.batch_size
        fact["batch"] = whole


def _keep_whole(
    division: Division, batches: Any, fact: dict[str, Any], known: dict[str, Any] | None
) -> None:
    """Check that a step can have whole batches of the script. Raises LoaderError."""
    sampler = getattr(batches, "sampler", None)
    if type(batches) is not BatchSampler or not isinstance(sampler, DistributedSampler):
        raise LoaderError(f"{NOT_MICRO}: {type(batches).__name__} deals the samples itself")
    fact["batch"] = batches.batch_size * division.count
    before = (known or {}).get("batch") or fact["batch"]
    if before != fact["batch"]:
        raise LoaderError(
            f"training began with {before} samples in a step, and {division.count} micro-batches of"
            f" {batches.batch_size} are {fact['batch']}: give the same batch_size and optional_gpus"
        )
    if rest := fact["samples"] % division.count:
        raise LoaderError(
            f"{fact['samples']} samples do not divide by the {division.count} micro-batches of a"
            f" step, so their last batches would depend on the GPUs: leave {rest} out"
        )


def _fact(loader: Any) -> dict[str, Any]:
    dataset: Any = getattr(loader, "dataset", None)
    return {
        "samples": None if isinstance(dataset, IterableDataset) else length(dataset),
        "batch": None,
    }


def _kind_reason(loader: Any) -> str:
    if isinstance(getattr(loader, "dataset", None), IterableDataset):
        return "an IterableDataset is exact at the same number of GPUs only"
    return f"a {type(loader).__name__} has no batch sampler: its batches are read again and dropped"
