"""Whose code something is. Never: runs it. State: none."""

from __future__ import annotations

from typing import Any


def of_keras(code: Any) -> bool:
    """Whether a class or a function is one of Keras's own."""
    return str(getattr(code, "__module__", "")).split(".")[0] == "keras"
