"""What ``dataclasses``, ``inspect`` and ``typing`` ask of a class, for one that is written out.

Does: gives a class the attributes that ``@dataclass`` would have left there, and changes new
copies. Each package with translated modules has a copy of this module, called ``_dressing``.
Never: imports more than the standard library. State: none.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from typing import Any


def dressed(kind: Any, fields: list[Any], *, frozen: bool) -> None:
    """``kind`` becomes a dataclass for all who ask; ``fields`` as in ``make_dataclass``.

    A compiled class that is frozen refuses changes, except by ``object.__setattr__``. A class that
    is not compiled takes them, for its own constructor would be refused as well."""
    twin = dataclasses.make_dataclass(kind.__name__, fields, frozen=frozen)
    for name in ("__dataclass_fields__", "__dataclass_params__", "__annotations__"):
        setattr(kind, name, getattr(twin, name))
    kind.__signature__ = inspect.signature(twin)
    if frozen and not isinstance(kind.__init__, types.FunctionType):
        _freeze(kind)


def _freeze(kind: Any) -> None:
    # Inner functions: what is compiled and of a module takes no ``self``.
    def refuse(value: object, name: str, other: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def refuse_to_delete(value: object, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    kind.__setattr__ = refuse
    kind.__delattr__ = refuse_to_delete


def field(**said: Any) -> Any:
    """``dataclasses.field``, which a compiler takes for a value of the field's type."""
    return dataclasses.field(**said)


def signed(kind: Any, keywords: list[str], defaults: dict[str, Any]) -> None:
    """``kind`` gets the signature of its constructor, whose arguments all have defaults."""
    of_any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    kind.__signature__ = inspect.Signature(
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY if name in keywords else of_any,
                default=default,
            )
            for name, default in defaults.items()
        ]
    )


def changed(copy: object, given: frozenset[str], changes: dict[str, Any]) -> None:
    """Put other values into a new copy that nobody has seen. Raises TypeError for a field that is
    none, or that no constructor is given."""
    for name, value in changes.items():
        if name not in given:
            kind = type(copy).__name__
            raise TypeError(f"{kind} has not all of the fields {', '.join(changes)}")
        object.__setattr__(copy, name, value)
