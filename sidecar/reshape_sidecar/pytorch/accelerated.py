"""What ``accelerate.prepare`` returns, taken apart for ``job.batches``.

Does: finds the script's own loader, optimizer, schedule and scaler in it, and does for each batch
what the prepared loader does: moves it to the device, and tells the Accelerator of an epoch's last
batch. Never: imports ``accelerate`` in a script that has not.

A batch is that of all GPUs together, as under ``split_batches=True``. So a prepared schedule is
stepped once a step at any number of GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader

LIBRARY = "accelerate"
LOADER, SHARD = "DataLoaderShard", "BatchSamplerShard"


def is_of_library(value: object, name: str | None = None) -> bool:
    """Return whether the class of ``value`` is one of ``accelerate``, with this ``name``."""
    kind = type(value)
    return kind.__module__.partition(".")[0] == LIBRARY and name in (None, kind.__name__)


def own_optimizer(optimizer: Any) -> Any:
    """Return the script's optimizer. The prepared one passes only some calls of ``step`` on."""
    return optimizer.optimizer if is_of_library(optimizer) else optimizer


def own_scheduler(scheduler: Any) -> Any:
    """Return the script's schedule; let the prepared one step it once for a step of all GPUs."""
    if not is_of_library(scheduler):
        return scheduler
    scheduler.split_batches = True
    return scheduler.scheduler


def scalers(optimizers: list[Any]) -> list[Any]:
    """Return the scalers of the prepared ones of ``optimizers``, each once."""
    found = [optimizer.scaler for optimizer in optimizers if is_of_library(optimizer)]
    return list({id(scaler): scaler for scaler in found if scaler is not None}.values())


class PreparedLoader:
    """A loader that was prepared, as ``Share`` reads a plain one: its batches are not shared out
    to the processes yet."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        batches = loader.batch_sampler
        self.batch_sampler = batches.batch_sampler if is_of_library(batches, SHARD) else batches
        sampler: Any = getattr(self.batch_sampler, "sampler", None)
        if getattr(sampler, "generator", self) is None:
            # As with several processes; the order shall not depend on their number.
            sampler.generator = torch.Generator()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def batches(self, batches: Iterator[Any], count: int) -> Iterator[Any]:
        """Yield the ``count`` batches that are left of an epoch as the prepared loader does."""
        from accelerate.utils import send_to_device

        loader = self._loader
        loader.begin()
        try:
            for number, batch in enumerate(batches, start=1):
                if loader.device is not None:
                    batch = send_to_device(batch, loader.device, non_blocking=loader._non_blocking)
                loader.end_of_dataloader = number == count
                yield batch
        finally:
            loader.end()


def own_loader(loader: Any) -> Any:
    """Return the parts of a loader that was prepared; another object as it is."""
    is_plain = is_of_library(loader, LOADER) and type(loader.base_dataloader) is DataLoader
    return PreparedLoader(loader) if is_plain else loader
