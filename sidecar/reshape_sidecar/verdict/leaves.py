"""A value that a script keeps: what can be done with it, where it is, and its mark."""

from __future__ import annotations

import itertools
import re
import types
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from reshape_sidecar.hook.script_objects import position
from reshape_sidecar.verdict import forms, marks

EAGER_TENSOR = "EagerTensor"
"""TensorFlow's tensor: a loop that carries one gets another one each step."""


class Kind(Enum):
    """What can be done with a value."""

    DATA = auto()
    """It has an exact form."""
    STATE = auto()
    """It saves and restores itself: ``state_dict`` and ``load_state_dict``."""
    OPAQUE = auto()
    """A look sees that it changes, and nothing restores it: an iterator, the length of a list."""
    CODE = auto()
    """A function, or a part of a model without weights: it matters if it becomes another one."""


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """A value, and where the script keeps it."""

    path: str
    kind: Kind
    value: Any
    owner_path: str
    owner: Any
    key: Any
    same_as: str = ""
    """The first path to the object, if this is another one."""


def names_of(path: str) -> list[str]:
    """Return the names in a path, without what stands in brackets; attributes with their dots."""
    return re.findall(r"\.?[^\W\d]\w*", re.sub(r"\[.*?\]|\(.*?\)", "", path))


def is_below(path: str, others: Mapping[str, None]) -> bool:
    """Return whether a path leads through one of ``others``."""
    names = path.split(".")
    return any(".".join(names[:length]) in others for length in range(1, len(names)))


def free(path: str, taken: Mapping[str, Any]) -> str:
    """Return ``path``, with a number if another object has it already."""
    if path not in taken:
        return path
    numbers = (f"{path} ({number})" for number in itertools.count(2))
    return next(one for one in numbers if one not in taken)


def rebind(owner: Any, key: Any, value: Any) -> None:
    """Let ``owner`` hold ``value`` by ``key``. Raises NoData if it cannot."""
    try:
        if isinstance(owner, types.CellType):
            owner.cell_contents = value
        elif isinstance(owner, (MutableMapping, list)):
            owner[key] = value
        else:
            setattr(owner, key, value)
    except (AttributeError, TypeError, IndexError, ValueError) as error:
        raise forms.NoData(str(error)) from error


def mark_of(leaf: Leaf, marker: marks.Marker) -> Any:
    """Return a mark that differs once the value of a leaf has changed."""
    value = leaf.value
    if leaf.same_as:
        return leaf.same_as
    if leaf.kind is Kind.DATA:
        return marker.mark(value)
    if leaf.kind is Kind.STATE:
        return marker.mark(_state_of(value))
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return value
    if leaf.kind is Kind.CODE:
        code = value.__code__ if isinstance(value, types.FunctionType) else None
        return value.__qualname__, code and (code.co_filename, code.co_firstlineno)
    if type(value).__name__ == EAGER_TENSOR:
        return id(value)  # it never changes, and the walk keeps it alive
    if (count := getattr(value, "_num_yielded", None)) is not None:
        return id(value), count
    if (content := marker.content(value)) is not None:
        return type(value).__name__, content
    return type(value).__name__, repr(position(value, lambda one: _shown(one, marker)))


def _shown(value: Any, marker: marks.Marker) -> Any:
    """Return what a look compares of a value that an iterator holds."""
    return marker.mark(value) if forms.is_data(value) else type(value).__name__


def _state_of(value: Any) -> Any:
    state = value.state_dict()
    return dict(state) if isinstance(state, dict) else state
