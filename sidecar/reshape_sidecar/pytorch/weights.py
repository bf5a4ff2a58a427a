"""The weights of models as ``reshape verify`` compares them: some numbers of each tensor.

The numbers are few, so that a recording of a large model stays small; the digest covers all of
them, and runs on the same devices must agree in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import torch

from reshape_sidecar.hook.recording import WEIGHT_NUMBERS_MAX


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
    step = max(1, -(-len(flat) // WEIGHT_NUMBERS_MAX))
    return {
        "digest": hashlib.sha256(data).hexdigest()[:16],
        "norm": float(flat.double().norm()).hex(),
        "numbers": [float(number).hex() for number in flat[::step].double().tolist()],
    }
