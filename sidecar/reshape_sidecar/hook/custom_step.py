"""Whether a script's own ``train_step`` divides its loss by the number of devices.

Does: tells a script's own code from Keras's, and inspects which names the code of an own
``train_step`` or ``compute_loss`` uses and what they stand for, without running it.
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
"""Names that divide a loss by the number of devices, or return that number."""
OF_KERAS = frozenset({"compute_loss", "_compute_loss", "compiled_loss", "train_step"})
"""Keras's own methods, which divide. An own ``compute_loss`` calls Keras's and adds to it."""
FUNCTIONS_MAX = 50


def of_keras(code: Any) -> bool:
    """Return whether a class or a function is one of Keras's own."""
    return str(getattr(code, "__module__", "")).split(".")[0] == "keras"


def reasons(model: Any) -> Iterator[str]:
    """Yield reasons against an exact trajectory on another number of devices."""
    if model._distribute_strategy is None:
        return
    for name, dividing in (("train_step", DIVIDING | OF_KERAS), ("compute_loss", DIVIDING)):
        function = _own(model, name)
        if function is not None and not _divides(model, function, dividing):
            yield f"the {name} of the script may add its loss up over the devices"


def _divides(model: Any, function: FunctionType, dividing: frozenset[str]) -> bool:
    """Return whether ``function``, or a method of the script that it uses, divides or uses a Loss.

    A search that exceeds FUNCTIONS_MAX counts as yes.
    """
    waiting, names = [function], {function.__name__}
    for _ in range(FUNCTIONS_MAX):
        if not waiting:
            return False
        one = waiting.pop()
        namespaces = _namespaces(model, one)
        for name in names_in(one.__code__):
            if name in dividing or any(_is_loss(namespace.get(name)) for namespace in namespaces):
                return True
            method = _own(model, name)
            if method is not None and name not in names:
                names.add(name)
                waiting.append(method)
    return True


def _own(model: Any, name: str) -> FunctionType | None:
    """Return the method ``name`` of the script's class; None if it is Keras's."""
    for kind in type(model).__mro__:
        if name in vars(kind):
            method = getattr(vars(kind)[name], "python_function", vars(kind)[name])
            return method if not of_keras(kind) and isinstance(method, FunctionType) else None
    return None


def names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    yield from code.co_freevars
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


def _namespaces(model: Any, function: FunctionType) -> tuple[Mapping[str, Any], ...]:
    """Return the namespaces in which a name of the function's code may stand for a Loss."""
    import keras

    return (vars(model), function.__globals__, vars(keras.losses), _enclosed(function))


def _is_loss(value: Any) -> bool:
    import keras

    kind = value if isinstance(value, type) else type(value)
    return issubclass(kind, keras.Loss)


def _enclosed(function: FunctionType) -> dict[str, Any]:
    """Return the variables of the enclosing function that are set already."""
    values = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # the cell is empty
            values[name] = cell.cell_contents
    return values
