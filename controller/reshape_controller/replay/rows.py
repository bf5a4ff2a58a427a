"""One row of a comparison: a policy and a seed with their metrics; and what many rows say.

Does: rows, medians over seeds with their intervals, and how much one policy saves against another
seed by seed. Never: replays. State: none.

The interval of a median is that of order statistics: the ranks between which the true median lies
with a probability of at least 95 %, whatever the distribution. With fewer than six seeds no ranks
reach 95 %; then it is the lowest and the highest value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from reshape_controller.replay.shell import Result

CONFIDENCE = 0.95
SEEDS_MIN = 6

Row = dict[str, float | int | str | None]
"""Keys ``policy``, ``seed``, then the metrics by their names (docs/replay.md)."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A median over seeds; the true one lies between ``low`` and ``high``."""

    median: float
    low: float
    high: float


def over(seeds: int) -> str:
    """What figures over so many seeds are, in words."""
    if seeds == 1:
        return "one seed"
    ranges = "95 % intervals" if seeds >= SEEDS_MIN else "the lowest and the highest"
    return f"medians over {seeds} seeds with {ranges}"


def row_of(label: str, result: Result, lower_bound_s: float) -> Row:
    """The row of a replay."""
    row: Row = {"policy": label, "seed": result.seed}
    row.update(asdict(result.metrics))
    row["lower_bound_makespan_s"] = lower_bound_s
    row["length_error_ratio"] = length_error(result)
    return row


def length_error(result: Result) -> float | None:
    """Median of the absolute error of predicted lengths, over every curve that was fitted to a
    running job; None without such jobs."""
    errors = [abs(error) for error in result.length_errors]
    return median(errors) if errors else None


def metric_names(rows: Sequence[Row]) -> list[str]:
    """Names of the figures that every row has."""
    if not rows:
        return []
    first = [name for name in rows[0] if name not in ("policy", "seed")]
    return [name for name in first if all(isinstance(row[name], (int, float)) for row in rows)]


def interval(values: Sequence[float]) -> Interval:
    """Median with its 95 % interval."""
    ordered = sorted(values)
    count = len(ordered)
    rank = _rank(count)
    return Interval(median(ordered), ordered[rank], ordered[count - 1 - rank])


def _rank(count: int) -> int:
    """How many values may be left out at each end."""
    below, rank = 0.0, 0
    while count >= SEEDS_MIN:
        below += math.comb(count, rank) / 2.0**count
        if 2.0 * below > 1.0 - CONFIDENCE:
            break
        rank += 1
    return max(0, rank - 1)


def summary(rows: Sequence[Row]) -> dict[str, dict[str, Interval]]:
    """For each policy, each metric's median and interval."""
    found: dict[str, dict[str, Interval]] = {}
    for policy in dict.fromkeys(str(row["policy"]) for row in rows):
        own = [row for row in rows if row["policy"] == policy]
        found[policy] = {
            name: interval([_number(row, name) for row in own]) for name in metric_names(own)
        }
    return found


def savings(
    rows: Sequence[Row], ours: str, other: str, metrics: Sequence[str]
) -> dict[str, Interval]:
    """How much lower ``ours`` is than ``other``, as a part of the latter, seed by seed."""
    by_seed: dict[object, dict[str, Row]] = {}
    for row in rows:
        by_seed.setdefault(row["seed"], {})[str(row["policy"])] = row
    pairs = [pair for pair in by_seed.values() if ours in pair and other in pair]
    found = {}
    for name in metrics:
        values = [
            1.0 - _number(pair[ours], name) / _number(pair[other], name)
            for pair in pairs
            if _number(pair[other], name) > 0.0
        ]
        if values:
            found[name] = interval(values)
    return found


def _number(row: Mapping[str, float | int | str | None], name: str) -> float:
    value = row[name]
    assert isinstance(value, (int, float))
    return float(value)
