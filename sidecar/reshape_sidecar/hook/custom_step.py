"""Whether the loss of a script's own ``train_step`` is divided by the devices, as far as it shows.

Does: looks which names the code of an own ``train_step`` or ``compute_loss`` uses, and what they
stand for. Never: runs any of it, or knows what an unknown name does. State: none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

DIVIDING = frozenset(
    {
        "scale_loss_for_distribution",
        "compute_average_loss",
        "scale_regularization_loss",
        "num_replicas_in_sync",
    }
)
"""What divides a loss by the devices, or says how many there are."""
OF_KERAS = frozenset({"compute_loss", "_compute_loss", "compiled_loss", "train_step"})
"""Keras's own, which divide. An own ``compute_loss`` calls that of Keras and adds something."""
FUNCTIONS_MAX = 50


def of_keras(code: Any) -> bool:
    """Whether a class or a function is one of Keras's own."""
    return str(getattr(code, "__module__", "")).split(".")[0] == "keras"


def reasons(model: Any) -> Iterator[str]:
    """What speaks against an exact trajectory on another number of devices."""
    if model._distribute_strategy is None:
        return
    for name, dividing in (("train_step", DIVIDING | OF_KERAS), ("compute_loss", DIVIDING)):
        function = _own(model, name)
        if function is not None and not _divides(model, function, dividing):
            yield f"the {name} of the script may add its loss up over the devices"


def _divides(model: Any, function: FunctionType, dividing: frozenset[str]) -> bool:
    """Whether ``function``, or a method of the script that it uses, divides or uses a Loss."""
    waiting, seen = [function], {function.__name__}
    for _ in range(FUNCTIONS_MAX):
        if not waiting:
            return False
        one = waiting.pop()
        places = _places(model, one)
        for name in _names(one.__code__):
            if name in dividing or any(_is_loss(place.get(name)) for place in places):
                return True
            method = _own(model, name)
            if method is not None and name not in seen:
                seen.add(name)
                waiting.append(method)
    return True


def _own(model: Any, name: str) -> FunctionType | None:
    """The method of the script's class under ``name``."""
    for kind in type(model).__mro__:
        if name in vars(kind):
            found = getattr(vars(kind)[name], "python_function", vars(kind)[name])
            return found if not of_keras(kind) and isinstance(found, FunctionType) else None
    return None


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    yield from code.co_freevars
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _places(model: Any, function: FunctionType) -> tuple[Mapping[str, Any], ...]:
    """Where a name in the code of the function may stand for a Loss."""
    import keras

    return (vars(model), function.__globals__, vars(keras.losses), _enclosed(function))


def _is_loss(value: Any) -> bool:
    import keras

    kind = value if isinstance(value, type) else type(value)
    return issubclass(kind, keras.Loss)


def _enclosed(function: FunctionType) -> dict[str, Any]:
    """What the function has from the function around it, as far as that is set already."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # the cell is empty
            found[name] = cell.cell_contents
    return found
