"""A recording of one training process, for ``reshape verify`` to compare with another.

Does: appends a line of JSON to the file in ``RESHAPE_RECORDING`` for each step and each finished
``fit`` call, and requests a stop after the step in ``RESHAPE_STOP_AFTER``. Numbers are recorded to
the last bit. A process without that variable records nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

from reshape_sidecar.contract import ENV_RECORDING, ENV_STOP_AFTER
from reshape_sidecar.hook.script_code import outer_names
from reshape_sidecar.hook.stop import Stop

KERAS_OWN = frozenset({"History", "ProgbarLogger"})
"""Callbacks of Keras that hold a History, which is recorded by itself, or only what was shown."""
NOT_RECORDED = frozenset({"_model", "model", "params", "_params", "validation_data"})
ENTRIES_MAX, DEPTH_MAX = 10_000, 4
WEIGHT_NUMBERS_MAX = 32
"""Numbers of a tensor of weights that are recorded, evenly spaced."""


class Recording:
    """The recording of this process; without a file it does nothing."""

    def __init__(self, path: Path | None, stop_after: int | None, stop: Stop) -> None:
        self._file = path.open("a", encoding="utf-8") if path is not None else None
        self._stop_after, self._stop = stop_after, stop
        self.weights: Callable[[], dict[str, Any]] | None = None
        """Returns portraits of the weights after a step; None: they are not recorded."""

    def step_ended(self, step: int, logs: Mapping[str, Any] | None) -> None:
        """Record the values of a step, and request the stop if this step is the last one."""
        if self._file is None:
            return
        if self.weights is not None:
            self._write({"weights_after": step, "weights": self.weights()})
        values = {name: portrait(value) for name, value in (logs or {}).items()}
        self._write({"step": step, "logs": values})
        if self._stop_after is not None and step >= self._stop_after:
            self._stop.request()

    def fit_ended(self, number: int, history: Any, callbacks: Iterable[Any]) -> None:
        """Record the History and the attributes of the callbacks of a finished ``fit`` call."""
        if self._file is None:
            return
        self._write({"fit": number, "history": portrait(getattr(history, "history", None))})
        for index, callback in enumerate(callbacks):
            if type(callback).__name__ not in KERAS_OWN:
                name = f"{type(callback).__name__}[{index}]"
                self._write({"fit": number, "callback": name, "attributes": attributes(callback)})

    def _write(self, line: dict[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()  # the process may end without closing its files


def is_asked() -> bool:
    """Return whether a chief records this run: the answer is the same on every rank."""
    return ENV_RECORDING in os.environ


def from_environment(stop: Stop, chief: bool = True) -> Recording:
    """Return the recording that the environment asks for; only a chief records."""
    if not chief:
        return Recording(None, None, stop)
    path, after = os.environ.get(ENV_RECORDING), os.environ.get(ENV_STOP_AFTER)
    return Recording(Path(path) if path else None, int(after) if after else None, stop)


def attributes(callback: Any) -> dict[str, Any]:
    """Return a portrait of each attribute of a callback, and of the objects of its functions."""
    found: dict[str, Any] = {}
    for name, value in vars(callback).items():
        if name in NOT_RECORDED:
            continue
        if isinstance(value, FunctionType):
            for inner, held in _objects_of(value).items():
                found[f"{name}: {inner}"] = portrait(held)
        else:
            found[name] = portrait(value)
    for name, value in vars(type(callback)).items():
        if isinstance(value, FunctionType) and not type(callback).__module__.startswith("keras."):
            for inner, held in _objects_of(value).items():
                found[f"{name}: {inner}"] = portrait(held)
    return {name: value for name, value in found.items() if value is not None}


def _objects_of(function: FunctionType) -> dict[str, Any]:
    """Return the collections and numbers of the script that a function uses, by name."""
    values = {place.name: place.value() for place in outer_names(function)}
    kinds = (list, dict, set, int, float)
    return {name: value for name, value in values.items() if isinstance(value, kinds)}


def portrait(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON that differs if the value differs; None for unknown objects."""
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, list | tuple) and depth < DEPTH_MAX:
        return [portrait(item, depth + 1) for item in value[:ENTRIES_MAX]]
    if isinstance(value, dict) and depth < DEPTH_MAX:
        items = list(value.items())[:ENTRIES_MAX]
        return {str(name): portrait(item, depth + 1) for name, item in items}
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    return _array(value)


def weight_portrait(data: bytes, norm: float, numbers: Iterable[float]) -> dict[str, Any]:
    """Return what is recorded of a tensor of weights.

    Runs on the same devices must agree in the digest of all its bits, ``data``. ``numbers``: some
    of its numbers (``evenly``), so that a recording of a large model stays small.
    """
    return {
        "digest": hashlib.sha256(data).hexdigest()[:16],
        "norm": norm.hex(),
        "numbers": [number.hex() for number in numbers],
    }


def evenly(count: int) -> slice:
    """Return which of ``count`` numbers of a tensor are recorded."""
    return slice(None, None, max(1, -(-count // WEIGHT_NUMBERS_MAX)))


def _array(value: Any) -> Any:
    """Return a number, or the digest of an array, of a tensor, array or variable."""
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return None
    try:
        array = value.numpy() if hasattr(value, "numpy") else value
        if array.shape == ():
            return portrait(array.item())
        digest = hashlib.sha256(array.tobytes()).hexdigest()[:16]
        return f"{array.dtype}{list(array.shape)} {digest}"
    except Exception:
        return None  # an object that only looks like an array
