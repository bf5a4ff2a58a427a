"""The weights of PyTorch models as ``reshape verify`` compares them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from reshape_sidecar.hook.recording import evenly, weight_portrait


def portraits(models: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """Return digest, norm and some numbers of each tensor in the states of ``models``, by name."""
    found: dict[str, dict[str, Any]] = {}
    for number, model in enumerate(models):
        for name, value in model.state_dict().items():
            if isinstance(value, torch.Tensor):
                found[f"{number}.{name}" if number else name] = _portrait(value)
    return found


class TrainedWeights:
    """Which weights of a model are trained: at the begin of a process, and now."""

    def __init__(self, model: Any) -> None:
        self._model, self.first = model, trained(model)

    def reason(self, ranks: int) -> str | None:
        """Return why ``ranks`` processes differ, if some weights are trained since the begin."""
        if ranks == 1:
            return None
        later = [name for name, trains in trained(self._model).items() if trains]
        later = [name for name in later if not self.first.get(name, True)]
        if not later:
            return None
        return (
            f"{later[0]} is trained since a later step, and DistributedDataParallel averages the"
            " gradients of the weights that were trained when it was made"
        )


def trained(model: Any) -> dict[str, bool]:
    """Return of each weight whether it is trained, by name."""
    return {name: parameter.requires_grad for name, parameter in model.named_parameters()}


def set_trained(model: Any, flags: dict[str, bool]) -> None:
    """Set which weights are trained."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(flags.get(name, parameter.requires_grad))


def _portrait(tensor: torch.Tensor) -> dict[str, Any]:
    flat = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    flat = flat.detach().reshape(-1)
    data = flat.cpu().contiguous().view(torch.uint8).numpy().tobytes()
    norm, numbers = float(flat.double().norm()), flat[evenly(len(flat))].double().tolist()
    return weight_portrait(data, norm, numbers)
