"""Copies and constructors of frozen values, several times faster than those of ``dataclasses``.

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


def fast_init(cls: type[_Value]) -> type[_Value]:
    """Give a frozen dataclass with slots a constructor that sets each slot directly.

    That of ``dataclasses`` looks each field up by its name, and takes twice as long: a twentieth of
    a replay. Raises TypeError if a constructor does more, such as a ``default_factory``.
    """
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    makes_more = any(not each.init or callable(each.default_factory) for each in fields)
    if makes_more or hasattr(cls, "__post_init__"):
        raise TypeError(f"the constructor of {cls.__name__} does more than set its fields")
    names = [each.name for each in fields]
    lines = [f"set_{name}(self, {name})" for name in names]
    scope = {f"set_{name}": getattr(cls, name).__set__ for name in names}
    exec(f"def __init__(self, {', '.join(names)}):\n " + "\n ".join(lines), scope)
    scope["__init__"].__defaults__ = cls.__init__.__defaults__
    cls.__init__ = scope["__init__"]  # type: ignore[method-assign]
    return cls


if TYPE_CHECKING:
    from dataclasses import replace
else:

    def replace(value: Any, **changes: Any) -> Any:
        """Return a copy with other values in some fields. Raises TypeError for an unknown field."""
        return with_changes(value, changes)


__all__ = ["replace", "with_changes"]
