"""The answer to a question about a cluster, for ``reshape doctor``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to a question. ``remedy`` is empty if nothing is wrong."""

    check: str
    ok: bool
    detail: str
    remedy: str = ""
