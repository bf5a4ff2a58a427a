"""``batch: micro``: a process also trains the micro-batches of GPUs that the job has not now.

A step has a micro-batch for each GPU of the record's largest number. On fewer GPUs a process trains
those of the absent GPUs first and its own last. They leave gradients and nothing else: each draws
the random numbers of its GPU, and the model's buffers go on from the own one, since
DistributedDataParallel takes those of rank 0. So a loss may couple the samples of a micro-batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import torch
from torch.autograd.graph import get_gradient_edge

from reshape_sidecar.loop_epochs import LoopError
from reshape_sidecar.pytorch.data import (
    Division,
    random_states,
    seed_all,
    seed_of,
    set_random_states,
)
from reshape_sidecar.pytorch.optimizers import with_inner
from reshape_sidecar.verdict.watch import LOOKS, Watch

UNOPENED = (
    "the record says `batch: micro`, so a step has several micro-batches: write `for part in"
    " job.micro_batches(batch)` around the forward and backward pass"
)
NOT_TRAINED = (
    "`batch: micro` needs each micro-batch of a step: write forward and backward pass into the body"
    " of `for part in job.micro_batches(batch)`, without break, and optimizer.step after it"
)


def weights_of(models: Iterable[Any], optimizers: Iterable[Any]) -> list[Any]:
    """Return the weights of models and optimizers, each once."""
    found = [weight for model in models for weight in model.parameters()]
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    found += [weight for group in groups for weight in group["params"]]
    return list(dict.fromkeys(found))


class MicroBatches:
    """What ``job.batches`` yields under ``batch: micro``, for ``job.micro_batches``."""

    def __init__(
        self,
        parts: tuple[Any, ...],
        division: Division,
        models: list[Any],
        optimizers: list[Any],
        seed: tuple[object, ...],
        look: LookInside,
    ) -> None:
        self._parts, self._division = parts, division
        self._models, self._optimizers = models, optimizers
        self._seed, self._look = seed, look
        self._is_trained = False

    def __iter__(self) -> NoReturn:
        raise LoopError(UNOPENED)

    def __getitem__(self, _: object) -> NoReturn:
        raise LoopError(UNOPENED)

    def check_trained(self) -> None:
        """Raise LoopError if the body of the loop has left a micro-batch out."""
        if not self._is_trained:
            raise LoopError(NOT_TRAINED)

    def each(self) -> Iterator[Any]:
        """Yield the micro-batches, and average their gradients. Raises LoopError."""
        reached: list[None] = []
        numbered = list(zip(self._division.numbers, self._parts, strict=True))
        is_watched = len(numbered) > 1 or self._look.left > 0
        weights = weights_of(self._models, self._optimizers) if is_watched else ()
        with (
            averaged(weights, len(numbered), lambda: reached.append(None)),
            stepping_refused(self._optimizers),
        ):
            for number, part in reversed(numbered):
                reached.clear()
                is_own = number == self._division.rank
                with self._look(), trained_as(self._models, is_own=is_own):
                    seed_all(seed_of(*self._seed, number))
                    yield part
                if is_watched and not reached:
                    raise LoopError(NOT_TRAINED)
        self._is_trained = True


@contextlib.contextmanager
def averaged(
    weights: Iterable[Any], count: int, reached: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Divide by ``count`` what backward passes add to gradients, as DistributedDataParallel does by
    the number of ranks. Calls ``reached`` whenever a weight gets some."""

    def divide(gradients: tuple[Any, ...]) -> tuple[Any, ...] | None:
        reached()
        if count == 1:
            return None  # they stay as they are
        return tuple(None if gradient is None else gradient / count for gradient in gradients)

    # Of the nodes: a hook of the weight would also divide what torch.autograd.grad returns.
    nodes = [get_gradient_edge(weight).node for weight in weights if weight.requires_grad]
    hooks = [node.register_prehook(divide) for node in nodes]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextlib.contextmanager
def trained_as(models: list[Any], *, is_own: bool) -> Iterator[None]:
    """Train one micro-batch: random numbers are as before afterwards, and if it is another GPU's,
    buffers too, and no gradients are exchanged."""
    states = random_states()
    buffers = [] if is_own else [(*place, place[-1].clone()) for place in _buffers(models)]
    with contextlib.ExitStack() as stack:
        for model in (getattr(model, "_orig_mod", model) for model in models):
            if isinstance(model, torch.nn.parallel.DistributedDataParallel):
                model.require_forward_param_sync = True  # buffers of rank 0, also after `no_sync`
                if not is_own:
                    stack.enter_context(model.no_sync())
        yield
    with torch.no_grad():
        for module, name, buffer, value in buffers:
            buffer.copy_(value)
            module._buffers[name] = buffer
    set_random_states(states)


@contextlib.contextmanager
def stepping_refused(optimizers: list[Any]) -> Iterator[None]:
    """Raise LoopError at a step of an optimizer, which would leave the other micro-batches out."""

    def refuse(*_: object) -> NoReturn:
        raise LoopError(NOT_TRAINED)

    hooks = [one.register_step_pre_hook(refuse) for one in with_inner(optimizers)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class LookInside:
    """Looks in the first micro-batches of a process what each of them changes of the script's."""

    def __init__(self, watch: Watch) -> None:
        self._watch, self.left = watch, LOOKS

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Look around one micro-batch."""
        before = self._watch.marks() if self.left else {}
        self.left = max(0, self.left - 1)
        yield
        if before:
            self._watch.changed_inside(before)


def _buffers(models: list[Any]) -> Iterator[tuple[Any, str, Any]]:
    for module in (inner for model in models for inner in model.modules()):
        for name, buffer in module._buffers.items():
            if buffer is not None:
                yield module, name, buffer
