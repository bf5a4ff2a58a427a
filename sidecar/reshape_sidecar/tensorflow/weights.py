"""The weights of TensorFlow models as ``reshape verify`` compares them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from reshape_sidecar.hook.recording import evenly, weight_portrait
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
    flat = tf.reshape(tf.cast(tensor, tf.float64), [-1])
    numbers = flat[evenly(len(flat))].numpy().tolist()
    return weight_portrait(tensor.numpy().tobytes(), float(tf.norm(flat)), numbers)
