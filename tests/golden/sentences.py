"""Golden values are compared without their sentences: a version may word these differently."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


def without_sentences(value: Any, names: Collection[str]) -> Any:
    """Return a JSON value without the texts under these names."""
    if isinstance(value, list):
        return [without_sentences(each, names) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: without_sentences(each, names)
        for name, each in value.items()
        if not (name in names and isinstance(each, str))
    }
