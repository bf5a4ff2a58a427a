"""Rows of a comparison (the metrics of a policy and a seed), their medians and savings.

The interval of a median comes from order statistics: the ranks between which the true median lies
with a probability of at least 95 %, for any distribution. With fewer than six seeds no ranks reach
95 %; the interval then has the lowest and the highest value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from reshape_controller.replay.fairness import fairness
from reshape_controller.replay.shell import Result, Scene

CONFIDENCE = 0.95
SEEDS_MIN = 6

Row = dict[str, float | int | str | None]
"""The keys ``policy`` and ``seed``, then the metrics by their names (docs/replay.md)."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A median over seeds; the true median lies between ``low`` and ``high``."""

    median: float
    low: float
    high: float


def over(seeds: int) -> str:
    """Describe the values over a number of seeds."""
    if seeds == 1:
        return "one seed"
    ranges = "95 % intervals" if seeds >= SEEDS_MIN else "the lowest and the highest"
    return f"medians over {seeds} seeds with {ranges}"


def row_of(label: str, result: Result, scene: Scene, lower_bound_s: float) -> Row:
    """Return the row of a replay."""
    row: Row = {"policy": label, "seed": result.seed}
    row.update(asdict(result.metrics))
    row.update(fairness(scene, result.jobs))
    row["lower_bound_makespan_s"] = lower_bound_s
    row["length_error_ratio"] = length_error(result)
    return row


def length_error(result: Result) -> float | None:
    """Return the median absolute error of predicted lengths over all curves of running jobs.

    None without such curves.
    """
    errors = [abs(error) for error in result.length_errors]
    return median(errors) if errors else None


def metric_names(rows: Sequence[Row]) -> list[str]:
    """Return the names of the metrics that every row has."""
    if not rows:
        return []
    first = [name for name in rows[0] if name not in ("policy", "seed")]
    return [name for name in first if all(isinstance(row[name], (int, float)) for row in rows)]


def interval(values: Sequence[float]) -> Interval:
    """Return the median with its 95 % interval."""
    ordered = sorted(values)
    count = len(ordered)
    rank = _rank(count)
    return Interval(median(ordered), ordered[rank], ordered[count - 1 - rank])


def _rank(count: int) -> int:
    """Return the number of values outside the interval at each end."""
    below, rank = 0.0, 0
    while count >= SEEDS_MIN:
        below += math.comb(count, rank) / 2.0**count
        if 2.0 * below > 1.0 - CONFIDENCE:
            break
        rank += 1
    return max(0, rank - 1)


def summary(rows: Sequence[Row]) -> dict[str, dict[str, Interval]]:
    """Return each metric's median and interval, by policy."""
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
    """Return the saving of ``ours`` relative to ``other`` over common seeds, by metric."""
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
