"""The weights of models as ``reshape verify`` compares them: some numbers of each variable.

The form is that of ``reshape_sidecar.pytorch.weights``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from reshape_sidecar.hook.recording import WEIGHT_NUMBERS_MAX
from reshape_sidecar.hook.variables import Entry


def portraits(entries: Iterable[Entry]) -> dict[str, dict[str, Any]]:
    """Return digest, norm and some numbers of each variable of floating point, by its name."""
    found: dict[str, dict[str, Any]] = {}
    for group, name, variable in entries:
        value = tf.convert_to_tensor(variable)
        if value.dtype.is_floating:
            found[f"{group}.{name}"] = _portrait(value)
    return found


def _portrait(tensor: tf.Tensor) -> dict[str, Any]:
    numbers = tf.reshape(tf.cast(tensor, tf.float64), [-1])
    step = max(1, -(-len(numbers) // WEIGHT_NUMBERS_MAX))
    return {
        "digest": hashlib.sha256(tensor.numpy().tobytes()).hexdigest()[:16],
        "norm": float(tf.norm(numbers)).hex(),
        "numbers": [number.hex() for number in numbers[::step].numpy().tolist()],
    }
