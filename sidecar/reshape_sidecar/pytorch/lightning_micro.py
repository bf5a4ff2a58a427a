"""``batch: micro`` in a fit of Lightning: what a process trains of a step beside its own batch.

Does: runs ``training_step`` and the backward pass for the batches of absent GPUs, right before
Lightning does so for the own one, whose counts and hooks are those of the step. So limits,
intervals and accumulation in batches mean the same at any number of GPUs.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils._pytree import tree_leaves

from reshape_sidecar.pytorch.data import (
    Division,
    random_states,
    seed_all,
    seed_of,
    set_random_states,
)
from reshape_sidecar.pytorch.lightning_data import READ_BY_STEP
from reshape_sidecar.pytorch.lightning_devices import FitError
from reshape_sidecar.pytorch.micro_batches import (
    LookInside,
    averaged,
    trained_as,
    weights_of,
)

REMEDY = "or leave batch out of the record"
NOT_AUTOMATIC = (
    "`batch: micro` accumulates gradients, and a module with automatic_optimization = False makes"
    f" its steps itself: take that out, {REMEDY}"
)
READS_ITSELF = (
    "`batch: micro` gives training_step each batch, and yours reads from a `dataloader_iter`:"
    f" take a batch, {REMEDY}"
)
NOT_ONCE = (
    "`batch: micro` needs one loss of each micro-batch, and training_step returned {} of this one:"
    f" return one, with an optimizer that calls its closure once, {REMEDY}"
)
CHANGES_BATCH = (
    "on_train_batch_start changes the batch, and under `batch: micro` it sees that of its own GPU"
    f" alone: change it in training_step or on_after_batch_transfer, {REMEDY}"
)


class MicroSteps:
    """The micro-batches of one process in a fit."""

    def __init__(self, trainer: Any, division: Division, seed: int, look: LookInside) -> None:
        self._trainer, self._division = trainer, division
        self._seed, self._look = seed, look
        self._states: dict[str, Any] = {}
        """Of the generators, before the batch."""
        self._place: tuple[int, int] = (0, 0)
        """Epoch and number of the batch."""
        self._moved: list[Any] = []
        """What the batch is before its hooks."""

    def batch_read(self) -> None:
        """Let the batch draw the random numbers of its micro-batch.

        Raises FitError for a module whose step cannot be made of micro-batches.
        """
        loop = self._trainer.fit_loop
        if not self._trainer.lightning_module.automatic_optimization:
            raise FitError(NOT_AUTOMATIC)
        if type(loop._data_fetcher).__name__ == READ_BY_STEP:
            raise FitError(READS_ITSELF)
        self._place = (loop.epoch_progress.current.processed, loop.epoch_loop.batch_idx + 1)
        self._states = random_states()
        seed_all(self._seed_of(self._division.rank))

    def batch_moved(self, batch: Any) -> None:
        """Note what the batch is before its hooks."""
        self._moved = _contents(batch)

    def batch_made(self) -> None:
        """Let what draws between batches go on."""
        set_random_states(self._states)

    def run(
        self, original: Callable[..., Any], loop: Any, optimizer: Any, batch_idx: int, kwargs: Any
    ) -> Any:
        """Train on the micro-batches of absent GPUs, and by ``original`` on the own one."""
        if _contents(kwargs["batch"]) != self._moved:
            raise FitError(CHANGES_BATCH)
        trainer, others = self._trainer, self._division.numbers[1:]
        models = [trainer.strategy.model]
        weights = weights_of([trainer.lightning_module], trainer.optimizers) if others else ()
        with averaged(weights, len(others) + 1), contextlib.ExitStack() as own:
            for number in others:
                batch, _, _ = next(trainer.fit_loop._data_fetcher.iterator)
                with trained_as(models, is_own=False), self._observed(loop):
                    seed_all(self._seed_of(number))
                    inputs = OrderedDict(kwargs, batch=self._on_device(batch))
                    loop._make_closure(inputs, optimizer, batch_idx)()
                own.enter_context(_replaced(loop, "_make_zero_grad_fn", lambda *_: None))
            with trained_as(models, is_own=True), self._observed(loop):
                return original(loop, optimizer, batch_idx, kwargs)

    def _on_device(self, batch: Any) -> Any:
        """Return a batch as Lightning gives it to ``training_step``."""
        trainer = self._trainer
        batch = trainer.precision_plugin.convert_input(batch)
        batch = trainer.lightning_module._on_before_batch_transfer(batch, dataloader_idx=0)
        return trainer.strategy.batch_to_device(batch, dataloader_idx=0)

    @contextlib.contextmanager
    def _observed(self, loop: Any) -> Iterator[None]:
        """Look what a micro-batch changes. Raises FitError unless it has one loss."""
        losses: list[bool] = []
        original = loop._training_step

        def training_step(kwargs: Any) -> Any:
            with self._look():
                result = original(kwargs)
            losses.append(result.closure_loss is not None)
            return result

        with _replaced(loop, "_training_step", training_step):
            yield
        if losses != [True]:
            raise FitError(NOT_ONCE.format(sum(losses) or "none"))

    def _seed_of(self, number: int) -> int:
        return seed_of(self._seed, "micro-batch", *self._place, number)


@contextlib.contextmanager
def _replaced(owner: Any, name: str, method: Callable[..., Any]) -> Iterator[None]:
    """Let one object have another method."""
    vars(owner)[name] = method
    try:
        yield
    finally:
        vars(owner).pop(name, None)


def _contents(batch: Any) -> list[Any]:
    """Return what changes if a batch is changed in place."""
    return [(id(leaf), getattr(leaf, "_version", None)) for leaf in tree_leaves(batch)]
