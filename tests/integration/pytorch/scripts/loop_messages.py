"""Prints what `job.batches` says to loaders and calls that it cannot serve."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from reshape_sidecar import session
from reshape_sidecar.pytorch.data import Share

data = TensorDataset(torch.arange(5.0))
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


class Endless(IterableDataset):  # type: ignore[misc]
    def __iter__(self) -> Any:
        return iter(())


def batches(loader: Any, **options: Any) -> None:
    job = session.start()
    list(job.batches(loader, model=model, optimizer=optimizer, **options))


def twice() -> None:
    job = session.start()
    for _ in job.epochs(1):
        for _ in range(2):
            list(job.batches(DataLoader(data), model=model, optimizer=optimizer))


def none() -> None:
    list(session.start().epochs(2))


def says(name: str, call: Callable[[], object]) -> None:
    try:
        call()
    except ValueError as error:
        print(f"{name}: {error}")


sampler = DistributedSampler(data, num_replicas=1, rank=0)
says("distributed sampler", lambda: batches(DataLoader(data, sampler=sampler), epochs=1))
says("iterable", lambda: batches(DataLoader(Endless()), epochs=1))
says("no batches", lambda: batches(DataLoader(data, batch_size=None), epochs=1))
says("a list", lambda: batches([1, 2], epochs=1))
says("last batch", lambda: Share(DataLoader(data, batch_size=2), 0, 2, 1).epoch(0, 0))
says("no length", lambda: batches(DataLoader(data)))
says("twice", twice)
says("no batches in the body", none)
