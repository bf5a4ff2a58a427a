"""Values as the JSON text of the API.

Does: dataclasses, enums and tuples to JSON with every field, in the order of declaration.
``reshape_sidecar.codec`` parses such texts.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from typing import Any


def plain(value: object) -> Any:
    """Convert a value into dicts, lists, strings, numbers and None."""
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return value


def to_json(value: object, indent: int | None = None, *, ascii_only: bool = False) -> str:
    """Write a value as JSON text."""
    return json.dumps(plain(value), ensure_ascii=ascii_only, allow_nan=False, indent=indent)
