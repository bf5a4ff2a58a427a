"""A DataLoader's epochs, cut for the ranks of a job: the same samples in the same order everywhere.

Does: draws each epoch's batches from the job's seed and the epoch's number, gives each rank its
share, and seeds what is drawn for a sample by that sample. So neither the number of ranks or
loader workers, nor a restart in mid-epoch, changes a sample.
"""

from __future__ import annotations

import hashlib
import importlib
import itertools
import multiprocessing
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info
from torch.utils.data._utils import worker
from torch.utils.data.distributed import DistributedSampler

from reshape_sidecar.hook import script_code
from reshape_sidecar.pytorch import accelerated
from reshape_sidecar.pytorch.accelerated import PreparedLoader
from reshape_sidecar.verdict.reach import Reach
from reshape_sidecar.verdict.watch import Watch

States = dict[str, Any]
OF_BATCHES = ("batch_size", "sampler", "batch_sampler")
"""Attributes of batch samplers that Reshape sets itself, or that are samplers."""
READS = frozenset({"__getitem__", "__getitems__", "__iter__", "__next__", "__call__"})
"""Methods that make samples and batches."""
STEP_DRAWS = "a step draws random numbers: others at another GPU count"
"""Why a script that ``drew_since`` its step began is no ``exact`` one."""
WORKER_FIELDS = ("id", "num_workers", "seed")


class LoaderError(ValueError):
    """A loader that cannot be cut for several GPUs; the message says why, and the remedy."""


def seed_of(*parts: object) -> int:
    """Return a seed below 2**63 that depends on all of ``parts``."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def seed_generators(seed: int) -> None:
    """Seed the generators of PyTorch (on the processor), Python, and NumPy if it is imported."""
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed & 0xFFFFFFFF)


def seed_all(seed: int) -> None:
    """Seed the generators of this process, also those of its GPU."""
    seed_generators(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


def random_states() -> States:
    """Return the states of this process's generators."""
    states: States = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    if (numpy := sys.modules.get("numpy")) is not None:
        states["numpy"] = numpy.random.get_state()
    return states


def set_random_states(states: States) -> None:
    """Set the generators as ``random_states`` found them."""
    torch.set_rng_state(states["torch"])
    random.setstate(states["python"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
    if "numpy" in states:
        importlib.import_module("numpy").random.set_state(states["numpy"])


def length(dataset: Any) -> int | None:
    """Return the number of samples; None if the data has none."""
    try:
        return len(dataset)
    except TypeError:
        return None


IN_WORKERS = (
    "{} changes in the workers of a loader, where nothing is saved: set num_workers=0, or make"
    " samples by their index alone"
)


def changed_in_workers(loader: Any) -> str | None:
    """Return why workers of ``loader`` keep state of the script; None if none is seen."""
    if not getattr(loader, "num_workers", 0):
        return None
    parts = (type(loader.dataset), type(loader.collate_fn))
    functions = [
        function
        for kind in parts
        for function in script_code.methods(kind)
        if function.__name__ in READS
    ]
    functions += script_code.functions_in(loader.collate_fn)
    counted = sorted({name for one in functions for name in script_code.counted_names(one)})
    return IN_WORKERS.format(counted[0]) if counted else None


def forks(loader: Any) -> bool:
    """Return whether the loader's workers are forks of this process."""
    context = getattr(loader, "multiprocessing_context", None) or multiprocessing
    return bool(context.get_start_method() == "fork")


def generator_states() -> dict[str, Any]:
    """Return the states of all generators, by library; two of a library can be compared."""
    tensors = [torch.default_generator.get_state()]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        tensors += torch.cuda.get_rng_state_all()
    states: dict[str, Any] = {"python": random.getstate()}
    states |= {f"torch {n}": tensor.numpy().tobytes() for n, tensor in enumerate(tensors)}
    if (numpy := sys.modules.get("numpy")) is not None:
        name, keys, *position = numpy.random.get_state()
        states["numpy"] = (name, keys.tobytes(), position)
    return states


def drew_since(before: dict[str, Any]) -> bool:
    """Return whether a generator has left the state that ``generator_states`` returned before."""
    after = generator_states()
    return any(after[name] != state for name, state in before.items())


def samplers_below(batch_sampler: Any) -> list[Any]:
    """Return a batch sampler of the script and the samplers below it."""
    found: list[Any] = [batch_sampler]
    for name in ("sampler", "batch_sampler", "sampler"):
        if (inner := getattr(found[-1], name, None)) is not None:
            found.append(inner)
    wrapped = getattr(getattr(found[-1], "dataset", None), "_sampler", None)
    return found if wrapped is None else [*found, wrapped]  # Lightning's, for several processes


class SamplerStates:
    """What the samplers of a loader hold, when they drew an epoch's order and after that."""

    def __init__(self, batch_sampler: Any) -> None:
        self._samplers = samplers_below(batch_sampler)
        self._watch = Watch(self._enter)
        self._drawn_with: list[Any] = []
        self._resumed: States | None = None

    def _enter(self, reach: Reach) -> None:
        for one in self._samplers:
            reach.root(type(one).__name__, one, ("dataset", "data_source", *OF_BATCHES))

    def draws(self) -> None:
        """Note what they hold before they draw an order; bring back what they held at a stop."""
        self._watch.begin()
        if self._resumed is not None:
            self._watch.restore(self._resumed["drawn_with"])
        self._watch.look(deep=True)
        self._drawn_with = self._watch.capture()

    def has_drawn(self) -> None:
        """Bring back what they held at a stop, after the order of its epoch is drawn again."""
        if self._resumed is not None:
            self._watch.restore(self._resumed["now"])
        self._resumed = None

    def saved(self) -> States:
        """Return what a checkpoint holds of them."""
        self._watch.look(deep=True)
        return {"drawn_with": self._drawn_with, "now": self._watch.capture()}

    def resume(self, saved: States, *, in_epoch: bool) -> None:
        """Let them draw the next order as they drew it, or as they would have after the stop."""
        self._resumed = saved if in_epoch else {**saved, "drawn_with": saved["now"]}


class Samples(Dataset):  # type: ignore[misc]
    """The script's dataset by keys of epoch and index; what a sample draws depends on its key."""

    def __init__(self, dataset: Any, seed: int) -> None:
        self.dataset, self._seed = dataset, seed
        self._draws = not isinstance(dataset, TensorDataset)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, key: tuple[int, Any]) -> Any:
        epoch, index = key
        if self._draws:
            seed_generators(seed_of(self._seed, "sample", epoch, index))
        return self.dataset[index]


class WorkerStart:
    """Starts a loader worker as the script wants it: it finds the script's own dataset."""

    def __init__(self, script: Any) -> None:
        self._script = script

    def __call__(self, number: int) -> None:
        info = get_worker_info()
        shown = SimpleNamespace(**{name: getattr(info, name) for name in WORKER_FIELDS})
        shown.dataset = info.dataset.dataset
        worker._worker_info = shown
        if self._script is not None:
            self._script(number)


class Order:
    """The batch sampler of one rank: keys of the batches of the current epoch that are left."""

    def __init__(self) -> None:
        self.epoch = 0
        self.batches: list[list[Any]] = []
        """Indices of each batch."""

    def __iter__(self) -> Iterator[list[tuple[int, Any]]]:
        epoch = self.epoch
        return ([(epoch, index) for index in batch] for batch in self.batches)

    def __len__(self) -> int:
        return len(self.batches)


@dataclass(frozen=True, slots=True)
class Division:
    """Which of the ``count`` micro-batches of a step a process trains."""

    count: int
    rank: int
    ranks: int

    @classmethod
    def of(cls, count: int | None, rank: int, ranks: int) -> Division:
        """Return that of a record; one for each rank if it has no ``batch: micro``.

        Raises LoaderError.
        """
        count = count or ranks
        if count % ranks:
            raise LoaderError(
                f"{ranks} GPUs cannot share the {count} micro-batches of a step equally: take"
                f" {ranks} out of optional_gpus, or leave `batch: micro` out"
            )
        return cls(count, rank, ranks)

    def __str__(self) -> str:
        is_divided = self.count == self.ranks
        return f"{self.ranks} GPUs" if is_divided else f"{self.count} micro-batches"

    @property
    def numbers(self) -> range:
        """Numbers of the micro-batches, the own one first."""
        return range(self.rank, self.count, self.ranks)

    def parts(self, batch: list[Any]) -> list[list[Any]]:
        """Return the samples of this process's micro-batches, of a ``batch`` of all."""
        size = len(batch) // self.count
        return [batch[number * size : (number + 1) * size] for number in self.numbers]


class Share:
    """One rank's share of a loader whose batches are those of all ranks together."""

    def __init__(
        self, loader: Any, rank: int, ranks: int, seed: int, micro: int | None = None
    ) -> None:
        """``micro``: micro-batches of a step under ``batch: micro``. Raises LoaderError."""
        self.loader = loader
        self._source = loader = accelerated.own_loader(loader)
        _check(loader)
        self.rank, self.ranks, self._seed = rank, ranks, seed
        self.micro, self.division = micro, Division.of(micro, rank, ranks)
        self._order = Order()
        self.samplers = SamplerStates(loader.batch_sampler)
        workers = loader.num_workers
        options = {
            name: getattr(loader, name)
            for name in ("prefetch_factor", "persistent_workers", "multiprocessing_context")
        }
        self._own = DataLoader(
            Samples(loader.dataset, seed),
            batch_sampler=self._order,
            num_workers=workers,
            collate_fn=loader.collate_fn,
            pin_memory=loader.pin_memory,
            timeout=loader.timeout,
            worker_init_fn=WorkerStart(loader.worker_init_fn) if workers else None,
            **(options if workers else {}),
        )

    @property
    def samples(self) -> int:
        """Number of samples of the dataset."""
        return len(self._source.dataset)

    @property
    def batches(self) -> int:
        """Number of batches of an epoch."""
        return len(self._source.batch_sampler)

    def epoch(self, epoch: int, skip: int) -> Iterator[Any]:
        """Return this rank's batches of ``epoch`` but the first ``skip``; under ``batch: micro``
        tuples of its micro-batches. Raises LoaderError."""
        left = self._drawn(epoch)[skip:]
        for number, batch in enumerate(left, start=skip):
            if len(batch) % self.division.count:
                raise LoaderError(
                    f"batch {number} of {self.batches} has {len(batch)} samples, which"
                    f" {self.division} cannot share equally: choose a batch_size that every"
                    " optional number of GPUs divides, and drop_last=True"
                )
        parts = [part for batch in left for part in self.division.parts(batch)]
        self._order.epoch, self._order.batches = epoch, parts
        batches: Iterator[Any] = iter(self._own) if left else iter(())
        if isinstance(self._source, PreparedLoader):
            batches = self._source.batches(batches, len(parts))
        of_step = [batches] * len(self.division.numbers)
        return batches if self.micro is None else zip(*of_step, strict=True)

    def _drawn(self, epoch: int) -> list[list[Any]]:
        """Return the epoch's batches of all ranks, as the loader's own sampler draws them."""
        seed = seed_of(self._seed, "order", epoch)
        seed_generators(seed)
        batch_sampler = self._source.batch_sampler
        owners: tuple[Any, ...] = (batch_sampler, getattr(batch_sampler, "sampler", None))
        for owner in owners:
            if getattr(owner, "generator", None) is not None:
                owner.generator.manual_seed(seed)
            if hasattr(owner, "set_epoch"):
                owner.set_epoch(epoch)
            if accelerated.is_of_library(owner, "SeedableRandomSampler"):
                owner.initial_seed = seed
        self.samplers.draws()
        drawn = [list(batch) for batch in itertools.islice(batch_sampler, self.batches)]
        self.samplers.has_drawn()
        return drawn


def _check(loader: Any) -> None:
    if type(loader) not in (DataLoader, PreparedLoader):
        remedy = "use job.step_done for another source of data"
        if accelerated.is_of_library(loader):
            remedy = "give the loader that accelerator.prepare got"
        raise LoaderError(
            f"job.batches takes a torch.utils.data.DataLoader, not a {type(loader).__name__};"
            f" {remedy}"
        )
    if accelerated.is_of_library(loader.batch_sampler, "SkipBatchSampler"):
        raise LoaderError(
            "the loader skips its first batches, and job.batches begins where the process before"
            " left by itself: give the loader without skip_first_batches"
        )
    if isinstance(loader.dataset, IterableDataset):
        raise LoaderError(
            f"{type(loader.dataset).__name__} is an IterableDataset, which has no positions; use a"
            " dataset with __getitem__ and __len__, or job.step_done"
        )
    if loader.batch_sampler is None:
        raise LoaderError("the loader has no batches: give it a batch_size, that of all GPUs")
    if isinstance(getattr(loader.batch_sampler, "sampler", None), DistributedSampler):
        raise LoaderError(
            "the loader has a DistributedSampler, and job.batches divides the batches itself: give"
            " shuffle=True instead, and a batch_size for all GPUs together"
        )
