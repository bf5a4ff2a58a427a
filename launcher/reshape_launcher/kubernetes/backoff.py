"""Pauses that double with each failure in a row."""

from __future__ import annotations

DOUBLINGS_MAX = 8
"""No pause here doubles more often before it is at its longest."""


def pause_s(least_s: float, most_s: float, doublings: int) -> float:
    """Return the shortest pause after so many doublings, at most the longest."""
    return min(most_s, least_s * 2.0 ** min(max(0, doublings), DOUBLINGS_MAX))
