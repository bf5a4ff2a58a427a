"""Amounts of memory as people write them. Pure."""

from __future__ import annotations

import re

from pydantic_core import PydanticCustomError

_UNITS = {
    "": 1,
    **{unit: 1000**power for power, unit in enumerate("KMGT", 1)},
    **{f"{unit}i": 1024**power for power, unit in enumerate("KMGT", 1)},
}
_FORM = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([KMGT]i?)?", re.ASCII)


def memory_bytes(value: object) -> object:
    """Bytes of a text such as ``8Gi``; any other value is returned as it is, for the next check."""
    if not isinstance(value, str):
        return value
    match = _FORM.fullmatch(value.strip())
    if match is None:
        raise PydanticCustomError(
            "memory", "is not a memory size", {"hint": "write a number and a unit, as in 8Gi"}
        )
    return int(float(match[1]) * _UNITS[match[2] or ""])
