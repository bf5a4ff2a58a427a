"""Values as the JSON text of the API.

Does: dataclasses, enums and tuples to JSON with every field, in the order of declaration.
``reshape_sidecar.codec`` parses such texts.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from typing import Any

_SCALARS = (str, int, float, bool)
_FIELDS: dict[type[Any], tuple[str, ...] | None] = {}


def plain(value: object) -> Any:
    """Convert a value into dicts, lists, strings, numbers and None."""
    if value is None or type(value) in _SCALARS:
        return value
    if isinstance(value, enum.Enum):
        return value.value
    names = _names(type(value))
    if names is not None:
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return value


def _names(kind: type[Any]) -> tuple[str, ...] | None:
    """Return the names of a dataclass's fields; None for another type."""
    if kind not in _FIELDS:
        known = dataclasses.is_dataclass(kind)
        _FIELDS[kind] = tuple(each.name for each in dataclasses.fields(kind)) if known else None
    return _FIELDS[kind]


def to_json(value: object, indent: int | None = None, *, ascii_only: bool = False) -> str:
    """Write a value as JSON text."""
    return json.dumps(plain(value), ensure_ascii=ascii_only, allow_nan=False, indent=indent)
