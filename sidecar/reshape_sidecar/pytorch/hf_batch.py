"""The global batch of a ``transformers.Trainer``, divided for the GPUs of a start. Pure.

Does: keeps the number of samples of a step the same at any number of GPUs. Never: lets a GPU hold
more samples at once than at the job's first start.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any


class BatchError(ValueError):
    """A global batch that this number of GPUs cannot share; the message names the remedy."""


@dataclass(frozen=True, slots=True)
class Batch:
    """How the samples of a step are divided: ``accumulation`` micro-batches on each rank."""

    per_device: int
    """Samples of a micro-batch."""
    ranks: int
    accumulation: int

    @property
    def samples(self) -> int:
        """Samples of a step."""
        return self.per_device * self.micro_batches

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a step, of all ranks together."""
        return self.ranks * self.accumulation

    def on(self, ranks: int) -> Batch:
        """Return the same samples on ``ranks``, in the same micro-batches if that is possible.

        Raises BatchError.
        """
        if ranks == self.ranks:
            return self
        share, rest = divmod(self.samples, ranks)
        if rest:
            raise BatchError(
                f"a step has {self.samples} samples (per_device_train_batch_size {self.per_device},"
                f" gradient_accumulation_steps {self.accumulation}, first started on {self.ranks}"
                f" GPUs), which {ranks} GPUs cannot share equally: choose a batch that every number"
                " in optional_gpus divides, or take this number out of optional_gpus"
            )
        sizes = range(min(share, self.per_device), 0, -1)
        per_device = next(size for size in sizes if share % size == 0)
        return Batch(per_device, ranks, share // per_device)

    def is_whole_on(self, sizes: tuple[int, ...]) -> bool:
        """Return whether each of ``sizes`` that can share the samples keeps the micro-batches.

        False if the sizes are not known.
        """
        found = []
        for ranks in sizes:
            with contextlib.suppress(BatchError):
                found.append(self.on(ranks).per_device)
        return bool(found) and set(found) == {self.per_device}


def given_batch(args: Any) -> Batch:
    """Return the batch of TrainingArguments."""
    return Batch(
        args.per_device_train_batch_size, args.world_size, args.gradient_accumulation_steps
    )
