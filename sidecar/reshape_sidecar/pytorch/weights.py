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


def _portrait(tensor: torch.Tensor) -> dict[str, Any]:
    flat = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    flat = flat.detach().reshape(-1)
    data = flat.cpu().contiguous().view(torch.uint8).numpy().tobytes()
    norm, numbers = float(flat.double().norm()), flat[evenly(len(flat))].double().tolist()
    return weight_portrait(data, norm, numbers)
