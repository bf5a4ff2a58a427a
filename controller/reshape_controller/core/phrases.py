"""Figures as words, in decisions, reasons and tables. It imports nothing of the engine, so that a
command that prints them starts quickly."""

from __future__ import annotations

from collections.abc import Sequence

from reshape_sidecar.wire import StartKind

UNKNOWN_STEPS = "an unknown number of steps"


def duration(seconds: float) -> str:
    """Return a time span as text, in the units that suit it."""
    whole = round(seconds)
    if whole < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def seconds_text(seconds: float) -> str:
    """Return the time of a phase as text; one of a fraction of a second to 10 ms."""
    return f"{seconds:.2f} s" if seconds < 1.0 else f"{seconds:.1f} s"


def gpus(number: int) -> str:
    """Return a number of GPUs as text."""
    return f"{number} GPU" if number == 1 else f"{number} GPUs"


def how_text(how: StartKind | None, fallback: str | None) -> str:
    """Return how a process was started, and why not faster; empty if that is not known."""
    if how is None:
        return ""
    return f"{how.value} ({fallback})" if fallback else how.value


def lost_text(steps: int, *, known: bool) -> str:
    """Return how many steps are lost, of which ``steps`` are known; ``known``: these are all."""
    if not known and not steps:
        return UNKNOWN_STEPS
    counted = f"{steps} step" if steps == 1 else f"{steps} steps"
    return counted if known else f"at least {counted}"


def lost_count(steps: int, *, known: bool) -> str:
    """Return the same as a cell of a table."""
    if known:
        return str(steps)
    return f"≥{steps}" if steps else "unknown"


def each_gpus(numbers: Sequence[int]) -> str:
    """Several numbers of GPUs: ``4, 2 and 1 GPUs``."""
    *others, last = numbers
    return f"{', '.join(map(str, others))} and {last} GPUs" if others else gpus(last)
