"""Spans of time as a row of columns. Pure: no glyphs, no colours, no clock.

Does: give each column the phase that fills most of it, and a phase shorter than a column a column
of its own if a longer neighbour has room. No phase moves by more than a column.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from reshape_controller.http.timeline import Span


@dataclass(frozen=True, slots=True)
class Scale:
    """A scale of ``columns`` of equal length from ``from_s`` to ``to_s``."""

    from_s: float
    to_s: float
    columns: int

    @property
    def column_s(self) -> float:
        return (self.to_s - self.from_s) / self.columns

    def position(self, at_s: float) -> float:
        """Return the position of a time in columns, clamped to the scale."""
        where = (at_s - self.from_s) / self.column_s
        return max(0.0, min(float(self.columns), where))


Lane = tuple[Span | None, ...]


def fill(spans: tuple[Span, ...], scale: Scale) -> Lane:
    """Return the span of each column; None without a span."""
    lane: list[Span | None] = [None] * scale.columns
    longest = [0.5] * scale.columns  # a span that fills less than half leaves the column empty
    for span in spans:
        begin, end = _ends(span, scale)
        for column in range(int(begin), min(scale.columns, int(end) + 1)):
            share = min(end, column + 1) - max(begin, column)
            if share > longest[column]:
                lane[column], longest[column] = span, share
    for span in spans:
        if not any(entry is span for entry in lane):
            _squeeze_in(span, int(_ends(span, scale)[0]), lane)
    return tuple(lane)


def _squeeze_in(span: Span, column: int, lane: list[Span | None]) -> None:
    """Give a short span a column if the span there keeps another one."""
    count = Counter(id(entry) for entry in lane)
    for candidate in (column, column + 1):
        if candidate < len(lane):
            there = lane[candidate]
            if there is None or count[id(there)] > 1:
                lane[candidate] = span
                return


def _ends(span: Span, scale: Scale) -> tuple[float, float]:
    return scale.position(span.from_s), scale.position(
        scale.to_s if span.to_s is None else span.to_s
    )


def runs(lane: Lane) -> list[tuple[Span | None, int]]:
    """Return the runs of columns with the same span, and their lengths."""
    found: list[tuple[Span | None, int]] = []
    for entry in lane:
        if found and found[-1][0] is entry:
            found[-1] = (entry, found[-1][1] + 1)
        else:
            found.append((entry, 1))
    return found


_STEPS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400)
_DAY_S = 86400.0


def tick_step_s(scale: Scale, columns_least: int) -> float:
    """Return the shortest round interval with ticks at least ``columns_least`` columns apart."""
    for step_s in _STEPS_S:
        if step_s / scale.column_s >= columns_least:
            return float(step_s)
    days = 1.0
    while days * _DAY_S / scale.column_s < columns_least:
        days *= 2
    return days * _DAY_S
