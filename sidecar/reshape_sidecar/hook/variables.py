"""The variables of a Keras model: everything that training changes, captured and restored exactly.

Does: collects model, optimizer, metric and seed variables in a fixed order, then further variables
and generators in attributes of the model and its layers; reads and assigns them, also if the number
of replicas has changed. A variable that does not fit is an error (``StateMismatch``); one of an
attribute is only named in the log.

A variable that is summed over replicas on reading (a metric) is stored per replica: with the same
number of replicas it is restored bit by bit; with another, its sum goes to the first replica.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from reshape_sidecar.hook.log import complain
from reshape_sidecar.hook.values import Reader, Writer

PLAIN = frozenset({str, int, float, bool, type(None)})
"""Types of most attributes; they hold no variable."""
BOOKKEEPING = "_self_"
"""Prefix of the attributes in which TensorFlow lists the others."""


def attribute_variables(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield every variable in an attribute of ``model`` or of one of its layers, with its name.

    The name is the same in every process. Many of the variables are the model's own.
    """
    for number, layer in enumerate(model._flatten_layers()):
        for attribute, value in list(vars(layer).items()):
            if not attribute.startswith(BOOKKEEPING):
                for index, variable in enumerate(_variables(value)):
                    yield f"{number}.{attribute}.{index}", variable


def _variables(value: Any) -> Iterator[Any]:
    import keras
    import tensorflow

    if type(value) in PLAIN or isinstance(value, keras.Layer):
        return
    if isinstance(value, (keras.Variable, tensorflow.Variable)):
        kind = tensorflow.as_dtype(value.dtype)
        if kind.is_floating or kind.is_integer or kind.is_complex or kind.is_bool:
            yield value
    elif isinstance(value, (keras.Optimizer, tensorflow.Module)):
        yield from _variables(tuple(value.variables))
    elif isinstance(value, tensorflow.random.Generator):
        yield value.state
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _variables(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _variables(item)


GROUPS = ("model", "optimizer", "metrics", "seed", "attributes")
Entry = tuple[str, str, Any]
"""Group, name and variable."""
BY_NAME = "attributes"
"""Group whose variables depend on what the script does; each is restored by its name."""


class StateMismatch(RuntimeError):
    """A checkpoint does not fit the script; the message names the first difference."""


def collect(model: Any) -> list[tuple[str, str, Any]]:
    """Return group, name and variable of everything that ``model`` holds, each once, in order."""
    groups: list[tuple[str, list[Any]]] = [("model", list(model.variables))]
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:
        groups.append(("optimizer", list(optimizer.variables)))
    groups.append(("metrics", list(model.metrics_variables)))
    groups.append(("seed", list(global_seed())))
    known = [(group, _name(one), one) for group, variables in groups for one in variables]
    others = [(BY_NAME, name, one) for name, one in attribute_variables(model)]
    return each_once([*known, *others])


def each_once(entries: Iterable[Entry]) -> list[Entry]:
    """Return ``entries`` without those whose variable another one before has."""
    backings: set[int] = set()
    once = []
    for entry in entries:
        backing = id(_backing(entry[2]))
        if backing not in backings:
            backings.add(backing)
            once.append(entry)
    return once


def size_bytes(model: Any) -> int:
    """Estimate the bytes that the variables of ``model`` take in a checkpoint."""
    total = 0
    for _, _, variable in collect(model):
        total += 4 * math.prod(_shape(variable))
    return total


@dataclass(frozen=True, slots=True)
class VariableState:
    """The value of one variable: one array, or one per replica, aggregated by ``how``."""

    group: str
    name: str
    how: str
    values: list[Any]


def capture(model: Any, groups: Container[str] = GROUPS) -> list[VariableState]:
    """Copy the variables of ``model`` in ``groups`` to memory."""
    return capture_entries([entry for entry in collect(model) if entry[0] in groups])


def capture_entries(entries: list[Entry]) -> list[VariableState]:
    """Copy the variables of ``entries`` to memory."""
    out = []
    for group, name, variable in entries:
        how, copies = _copies(variable)
        out.append(VariableState(group, name, how, [copy.numpy() for copy in copies]))
    return out


END_GROUPS = ("model", "seed", "attributes")
END_ITEMS_MAX = 16
"""Largest variable of an optimizer in an end state without slots: iterations, learning rate."""


def of_end(states: list[VariableState], *, slots: bool) -> list[VariableState]:
    """Return the states that code after a ``fit`` reads, with the optimizer's ``slots`` or not."""
    return [
        state
        for state in states
        if state.group in END_GROUPS
        or (state.group == "optimizer" and (slots or state.values[0].size <= END_ITEMS_MAX))
    ]


def restore_end(model: Any, states: list[VariableState]) -> None:
    """Assign the states that ``of_end`` returned. Raises StateMismatch."""
    restore(model, states, END_GROUPS)
    optimizer = {state.name: state for state in states if state.group == "optimizer"}
    for group, name, variable in collect(model):
        state = optimizer.get(name) if group == "optimizer" else None
        if state is not None and _fits(state, variable):
            _assign(variable, state.how, state.values)


def encode(states: list[VariableState], writer: Writer) -> list[Any]:
    """Encode ``states`` for a state document."""
    return [[s.group, s.name, s.how, [writer.encode(value) for value in s.values]] for s in states]


def decode(saved: list[Any], reader: Reader) -> list[VariableState]:
    """Return the states that ``encode`` encoded."""
    return [
        VariableState(group, name, how, [reader.decode(value) for value in values])
        for group, name, how, values in saved
    ]


def restore(model: Any, states: list[VariableState], groups: Container[str] = GROUPS) -> None:
    """Assign those of ``states`` that are in ``groups``. Raises StateMismatch.

    Nothing is assigned unless all of the model's own variables fit.
    """
    entries = [entry for entry in collect(model) if entry[0] in groups]
    restore_entries(entries, [state for state in states if state.group in groups])


def restore_entries(entries: list[Entry], states: list[VariableState]) -> None:
    """Assign ``states`` to the variables of ``entries``. Raises StateMismatch, as ``restore``."""
    stored, targets = _matched(entries, states)
    for state, (_, _, variable) in zip(stored, targets, strict=True):
        _assign(variable, state.how, state.values)
    _restore_by_name(
        {name: variable for group, name, variable in entries if group == BY_NAME},
        [state for state in states if state.group == BY_NAME],
    )


def check(model: Any, states: list[VariableState]) -> None:
    """Raise StateMismatch if ``restore`` would."""
    _matched(collect(model), states)


def _matched(
    entries: list[Entry], states: list[VariableState]
) -> tuple[list[VariableState], list[Entry]]:
    """Return the states and the variables that belong together by their order."""
    targets = [entry for entry in entries if entry[0] != BY_NAME]
    stored = [state for state in states if state.group != BY_NAME]
    if len(targets) != len(stored):
        raise StateMismatch(
            f"the checkpoint has {len(stored)} variables, the script's model {len(targets)}. "
            "The script or its versions changed since: restore the old script, or start the job in "
            "an empty `checkpoints` folder."
        )
    for state, (group, name, variable) in zip(stored, targets, strict=True):
        if group != state.group or not _fits(state, variable):
            raise StateMismatch(
                f"variable {state.name} of the checkpoint ({state.group}, shape "
                f"{state.values[0].shape}) meets {name} ({group}, shape {_shape(variable)}). The "
                "script changed since: restore the old script, or start in an empty "
                "`checkpoints` folder."
            )
    return stored, targets


def _restore_by_name(entries: dict[str, Any], states: list[VariableState]) -> None:
    missing = []
    for state in states:
        variable = entries.get(state.name)
        if variable is None or not _fits(state, variable):
            missing.append(state.name)
        else:
            _assign(variable, state.how, state.values)
    if missing:
        complain(f"attributes of the model whose state was not found: {', '.join(missing)}")


def restore_if_it_fits(model: Any, states: list[VariableState]) -> None:
    """Restore the weights alone; do nothing if the model no longer fits."""
    try:
        restore(model, states, ("model",))
    except StateMismatch:
        return


def in_order(states: list[VariableState]) -> list[VariableState]:
    """Sort the states of several captures into the order of one."""
    return sorted(states, key=lambda state: GROUPS.index(state.group))


def handles(model: Any) -> set[int]:
    """Return the ids by which a trace names the captured variables of ``model``, per device."""
    return handles_of(collect(model))


def handles_of(entries: list[Entry]) -> set[int]:
    """Return the same of the variables of ``entries``."""
    backings = [_backing(variable) for _, _, variable in entries]
    parts = [part for one in backings for part in _parts(one) or (one,)]
    return {id(part.handle) for part in parts if hasattr(part, "handle")}


def _fits(state: VariableState, variable: Any) -> bool:
    return all(tuple(value.shape) == _shape(variable) for value in state.values)


def _shape(variable: Any) -> tuple[int, ...]:
    return tuple(int(dimension) for dimension in variable.shape)


def _name(variable: Any) -> str:
    return str(getattr(variable, "path", variable.name))


def _copies(variable: Any) -> tuple[str, list[Any]]:
    value = _backing(variable)
    parts = _parts(value)
    if not parts:
        return "one", [value]
    if "SyncOnRead" not in type(value).__name__:
        return "one", [parts[0]]
    return str(value.aggregation).rsplit(".", 1)[-1].lower(), parts


def one_copy(variable: Any) -> Any:
    """Return the TensorFlow variable that one device has of ``variable``."""
    return _copies(variable)[1][0]


def sum_of(variable: Any) -> float:
    """Return the number that a metric's variable holds, of all devices together."""
    return math.fsum(float(copy.numpy()) for copy in _copies(variable)[1])


def _parts(value: Any) -> list[Any]:
    """Return the per-device parts of a distributed variable; empty for any other."""
    parts = getattr(value, "values", None)
    return list(parts) if isinstance(parts, (tuple, list)) else []


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
    rest = total
    if how == "sum":
        # Equal parts: a step reports the mean of the values on each device.
        whole = total.dtype.kind != "f"
        total = total if whole else (total / copies).astype(total.dtype)
        rest = total * 0 if whole else total
    yield total
    for _ in range(copies - 1):
        yield rest


def _backing(variable: Any) -> Any:
    """Return the TensorFlow variable of a Keras variable."""
    return getattr(variable, "_value", None) if hasattr(variable, "_value") else variable


def global_seed() -> Iterator[Any]:
    from keras.src.backend.common import global_state
    from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR

    generator = global_state.get_global_attribute(GLOBAL_SEED_GENERATOR)
    if generator is not None:
        yield generator.state
