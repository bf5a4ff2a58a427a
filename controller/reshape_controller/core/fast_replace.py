"""``dataclasses.replace`` for values with many fields, several times faster.

A job has some 50 fields, and changes several times with each event. ``dataclasses.replace`` passes
all of them through ``__init__``: 8 microseconds. Copying one dictionary takes 1, and a replay
that does so takes a third less time. Therefore ``Job``, ``Gpu``, ``Observed``, ``Plan`` and
``Learned`` have no slots.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

_new, _set = object.__new__, object.__setattr__
_Value = TypeVar("_Value")


def with_changes(value: _Value, changes: Mapping[str, Any]) -> _Value:
    """Return a copy with other values in the fields that ``changes`` names. Raises TypeError for an
    unknown field."""
    try:
        before = value.__dict__
    except AttributeError:  # it has slots
        return dataclasses.replace(value, **changes)  # type: ignore[type-var]
    cls = type(value)
    # Of a class with few fields the copy shares their names with all others.
    fields: dict[str, Any] = before | changes  # type: ignore[operator]
    if len(fields) != len(before):
        unknown = ", ".join(changes.keys() - before.keys())
        raise TypeError(f"{cls.__name__} has no field {unknown}")
    copy = _new(cls)
    _set(copy, "__dict__", fields)
    return copy


if TYPE_CHECKING:
    from dataclasses import replace
else:

    def replace(value: Any, **changes: Any) -> Any:
        """Return a copy with other values in some fields. Raises TypeError for an unknown field."""
        return with_changes(value, changes)


__all__ = ["replace", "with_changes"]
