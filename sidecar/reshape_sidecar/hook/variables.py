"""The variables of a Keras model: all that training changes, captured and put back exactly.

Does: collects model, optimizer, metric and seed variables in a fixed order, reads and assigns
them, also when the number of replicas has changed. Never: builds a model, or skips a variable that
does not fit (``StateMismatch``). State: none.

A variable that is summed over replicas on reading (a metric) is kept per replica: with the same
number of replicas it comes back bit by bit; with another, its sum goes to the first replica.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reshape_sidecar.hook.values import Reader, Writer


class StateMismatch(RuntimeError):
    """A checkpoint does not fit the script; the message names the first difference."""


def collect(model: Any) -> list[tuple[str, Any]]:
    """Every variable of ``model`` with its group, each once, in an order that never changes."""
    groups: list[tuple[str, list[Any]]] = [("model", list(model.variables))]
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:
        groups.append(("optimizer", list(optimizer.variables)))
    groups.append(("metrics", list(model.metrics_variables)))
    groups.append(("seed", list(_global_seed())))
    seen: set[int] = set()
    found = []
    for group, variables in groups:
        for variable in variables:
            if id(variable) not in seen:
                seen.add(id(variable))
                found.append((group, variable))
    return found


def size_bytes(model: Any) -> int:
    """Bytes that the variables of ``model`` take in a checkpoint, about."""
    total = 0
    for _, variable in collect(model):
        count = 1
        for dimension in variable.shape:
            count *= int(dimension)
        total += 4 * count
    return total


def capture(model: Any, writer: Writer) -> list[Any]:
    """Encoded values of all variables of ``model``."""
    out = []
    for group, variable in collect(model):
        how, copies = _copies(variable)
        out.append(
            {
                "group": group,
                "name": str(getattr(variable, "path", variable.name)),
                "how": how,
                "values": [writer.encode(copy.numpy()) for copy in copies],
            }
        )
    return out


def restore(model: Any, saved: list[Any], reader: Reader) -> None:
    """Put ``saved`` back. Raises StateMismatch.

    Nothing is assigned unless everything fits.
    """
    targets = collect(model)
    if len(targets) != len(saved):
        raise StateMismatch(
            f"the checkpoint has {len(saved)} variables, the script's model {len(targets)}. "
            "The script or its versions changed since: restore the old script, or start the job in "
            "an empty `checkpoints` folder."
        )
    work = []
    for entry, (group, variable) in zip(saved, targets, strict=True):
        values = [reader.decode(value) for value in entry["values"]]
        shape = tuple(int(dimension) for dimension in variable.shape)
        if group != entry["group"] or any(tuple(value.shape) != shape for value in values):
            raise StateMismatch(
                f"variable {entry['name']} of the checkpoint ({entry['group']}, shape "
                f"{values[0].shape}) meets {variable.name} ({group}, shape {shape}). The script "
                "changed since: restore the old one, or start in an empty `checkpoints` folder."
            )
        work.append((variable, entry["how"], values))
    for variable, how, values in work:
        _assign(variable, how, values)


def _copies(variable: Any) -> tuple[str, list[Any]]:
    value = _backing(variable)
    parts = getattr(value, "values", None)
    if not isinstance(parts, (tuple, list)) or not parts:
        return "one", [value]
    if "SyncOnRead" not in type(value).__name__:
        return "one", [parts[0]]
    return str(value.aggregation).rsplit(".", 1)[-1].lower(), list(parts)


def _assign(variable: Any, how: str, values: list[Any]) -> None:
    now, copies = _copies(variable)
    if now == "one" and how == "one":
        _backing(variable).assign(values[0])
        return
    for copy, value in zip(copies, _spread(how, values, len(copies)), strict=True):
        copy.assign(value)


def _spread(how: str, values: list[Any], copies: int) -> Iterator[Any]:
    if len(values) == copies:
        yield from values
        return
    total = values[0].copy()
    if how in ("sum", "mean"):
        for value in values[1:]:
            total += value
    if how == "mean":
        total = (total / len(values)).astype(values[0].dtype)
    yield total
    for _ in range(copies - 1):
        yield total * 0 if how == "sum" else total


def _backing(variable: Any) -> Any:
    """The TensorFlow variable of a Keras variable."""
    return getattr(variable, "_value", None) if hasattr(variable, "_value") else variable


def _global_seed() -> Iterator[Any]:
    from keras.src.backend.common import global_state
    from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR

    generator = global_state.get_global_attribute(GLOBAL_SEED_GENERATOR)
    if generator is not None:
        yield generator.state
