"""What ``exact`` promises beside its word: for which losses, and to which rounding.

Another number of GPUs divides the samples of a step otherwise. A loss that is a mean over samples
does not change by that. A loss that couples samples does, unless ``batch: micro`` keeps them
together, and a loss that the library does not compute may be one. Rounding is that of the type in
which the model computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from reshape_sidecar.hook.exactness import EXACT, OF_MEANS, Verdict, rounding_note
from reshape_sidecar.pytorch.data import STEP_DRAWS
from reshape_sidecar.verdict import origin, rewritten

OF_MICRO_BATCHES = "for losses that are means over micro-batches"
"""Note on ``exact`` under ``batch: micro`` where the script computes the loss."""
ONE_BATCH = "sees the batch of one GPU"
OTHER_NUMBERS = "draws other numbers at another GPU count"
OWN_PACKAGES = ("transformers", "trl", "peft", "sentence_transformers")
"""Packages whose Trainers and models compute losses that are known."""


def verdict(
    *, owns_loss: bool, types: Iterable[str | None] = (), is_micro: bool = False
) -> Verdict:
    """Return ``exact`` with its notes.

    owns_loss: whether the loss is the script's own. types: those that the model computes in.
    is_micro: whether the record has ``batch: micro``.
    """
    of_loss = OF_MICRO_BATCHES if is_micro else OF_MEANS
    notes = (of_loss if owns_loss else None, rounding_note(types))
    return Verdict(EXACT, "; ".join(filter(None, notes)) or None)


def type_name(dtype: Any) -> str:
    """Return the name of a type of numbers, as ``bfloat16``."""
    return str(dtype).removeprefix("torch.")


def weight_types(models: Iterable[Any]) -> set[str]:
    """Return the names of the types of the models' weights."""
    return {type_name(parameter.dtype) for model in models for parameter in model.parameters()}


def owns_loss(trainer: Any) -> bool:
    """Return whether a ``transformers.Trainer`` or its model computes a loss of the script's."""
    model = trainer.model
    model = model.get_base_model() if hasattr(model, "get_base_model") else model
    owners = (type(trainer).compute_loss.__module__, type(model).__module__)
    known = all(owner.partition(".")[0] in OWN_PACKAGES for owner in owners)
    return not known or trainer.compute_loss_func is not None


def step_reasons(models: Iterable[Any], *, is_micro: bool) -> Iterator[str]:
    """Yield why layers of ``models`` compute otherwise on another number of GPUs."""
    if not is_micro:
        for reason in (*layer_reasons(models), *dropout_reasons(models)):
            yield f"{reason}, without `batch: micro`"
    elif any(type(inner).__name__ == "SyncBatchNorm" for one in models for inner in one.modules()):
        yield "SyncBatchNorm sees the micro-batches that GPUs train at once, and BatchNorm sees one"


def is_of_step(reason: str) -> bool:
    """Return whether a reason of a verdict is that the step itself, and no data, depends on the
    number of GPUs."""
    return any(part in reason for part in (STEP_DRAWS, ONE_BATCH, OTHER_NUMBERS))


def layer_reasons(models: Iterable[Any]) -> Iterator[str]:
    """Yield why layers of ``models``, in the mode of a step, use the samples of one GPU alone."""
    batch_norm = torch.nn.modules.batchnorm._BatchNorm
    for module in (inner for model in models for inner in model.modules()):
        name = type(module).__name__
        if not isinstance(module, batch_norm) or name == "SyncBatchNorm":
            continue
        if module.training or module.running_mean is None:  # a frozen one computes with its own
            yield f"{name} {ONE_BATCH}, and SyncBatchNorm sees that of all"


def dropout_reasons(models: Iterable[Any]) -> Iterator[str]:
    """Yield which layers of ``models`` draw random numbers."""
    for module in (inner for model in models for inner in model.modules()):
        is_dropout = isinstance(module, torch.nn.modules.dropout._DropoutNd)
        if is_dropout and module.p > 0 and module.training:
            yield f"{type(module).__name__} {OTHER_NUMBERS}"


def lost_reasons(models: Iterable[Any]) -> Iterator[str]:
    """Yield what no checkpoint holds of what ``models`` and the script keep elsewhere."""
    yield from communication_reasons(models)
    yield from rewritten.reasons(origin.files_of_script())


def communication_reasons(models: Iterable[Any]) -> Iterator[str]:
    """Yield which models have a communication hook with a state of its own."""
    for model in models:
        for _, state in getattr(model, "_comm_hooks", ()):
            if state is not None and type(state).__name__ != "ProcessGroup":
                yield "a communication hook of DDP has state that no checkpoint holds"


def compile_notes(models: Iterable[Any]) -> Iterator[str]:
    """Yield which of ``models`` under ``torch.compile`` the compiler gets nothing of.

    It leaves the code of PyTorch's own modules out, and that of DistributedDataParallel.
    """
    for model in models:
        wrapped = getattr(model, "_orig_mod", None)
        if not isinstance(wrapped, torch.nn.parallel.DistributedDataParallel):
            continue
        if all(_is_of_torch(inner) for inner in wrapped.module.modules()):
            yield (
                "torch.compile of DistributedDataParallel around"
                f" {type(wrapped.module).__name__} compiles nothing: compile first, then wrap"
            )


def _is_of_torch(module: Any) -> bool:
    return type(module).__module__.partition(".")[0] == "torch"


class AutocastLook:
    """Notes in which types a loop's models compute, by a hook in the middle of each."""

    def __init__(self, models: Iterable[Any]) -> None:
        self.types: set[str] = set()
        """Names of the types of autocast."""
        leaves = [
            inner
            for model in models
            if not any(hasattr(part, "_orig_mod") for part in model.modules())  # no recompilation
            for inner in model.modules()
            if not list(inner.children())
        ]
        self._hooks = [leaf.register_forward_pre_hook(self._look) for leaf in leaves]

    def end(self) -> None:
        """Look no more."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _look(self, module: Any, inputs: Any) -> None:
        given = next((value for value in inputs if isinstance(value, torch.Tensor)), None)
        if given is not None and torch.is_autocast_enabled(given.device.type):
            self.types.add(type_name(torch.get_autocast_dtype(given.device.type)))
