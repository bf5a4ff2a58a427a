"""Replays as tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from reshape_controller.cli.output import FittingTable, grid
from reshape_controller.replay.difference import Difference
from reshape_controller.replay.rows import Interval, Row

SHOWN: tuple[tuple[str, str, str], ...] = (
    ("makespan_s", "MAKESPAN", "s"),
    ("mean_jct_s", "MEAN JCT", "s"),
    ("median_jct_s", "MEDIAN", "s"),
    ("p95_jct_s", "P95", "s"),
    ("mean_wait_s", "WAIT", "s"),
    ("gpu_use_ratio", "GPU USE", "%"),
    ("overhead_ratio", "OVERHEAD", "%"),
    ("reshape_ups", "UPS", ""),
    ("reshape_downs", "DOWNS", ""),
    ("pending_at_last_submission", "PENDING", ""),
    ("worst_slowdown", "SLOWEST", "x"),
    ("longest_wait_s", "LONGEST WAIT", "s"),
)
"""Metric, heading and unit."""
SAVED = ("makespan_s", "mean_jct_s")


def cell(value: float, unit: str) -> str:
    """Return a value as text."""
    if unit == "s":
        return f"{value:,.0f}"
    if unit == "%":
        return f"{100 * value:.1f}%"
    if unit == "x":
        return f"{value:.1f}"
    return f"{value:g}" if value % 1.0 else f"{value:.0f}"  # a long seed keeps all its digits


def one(row: Row, about: str) -> RenderableType:
    """Return the table of a replay."""
    table = grid("METRIC", "VALUE", right=("VALUE",))
    for name, value in row.items():
        if value is None:
            continue
        unit = "s" if name.endswith("_s") else "%" if name.endswith("_ratio") else ""
        shown = cell(value, unit) if isinstance(value, (int, float)) else str(value)
        table.add_row(name, shown + (" s" if unit == "s" else ""))
    return Group(Text(about, style="bold"), table)


def many(
    summary: dict[str, dict[str, Interval]],
    saved: Sequence[tuple[str, str, dict[str, Interval]]],
    about: str,
    seeds: int,
) -> RenderableType:
    """Return the tables of a comparison and of its savings."""
    parts: list[RenderableType] = [
        Text(about, style="bold"),
        FittingTable(_by_policy(summary, seeds), _by_metric(summary, seeds)),
    ]
    if saved:
        parts += [Text(""), FittingTable(_savings(saved), _savings(saved, "\n"))]
    return Group(*parts)


def _by_policy(summary: dict[str, dict[str, Interval]], seeds: int) -> Table:
    """Return a table of medians with the intervals below them."""
    metrics_shown = _shown(summary)
    headings = [heading for _, heading, _ in metrics_shown]
    table = grid("POLICY", *headings, right=tuple(headings))
    for policy, metrics in summary.items():
        medians = (cell(metrics[name].median, unit) for name, _, unit in metrics_shown)
        table.add_row(policy, *medians)
        if seeds > 1:
            table.add_row("", *(_range(metrics[name], unit) for name, _, unit in metrics_shown))
    return table


def _shown(summary: dict[str, dict[str, Interval]]) -> list[tuple[str, str, str]]:
    """Return the metrics of ``SHOWN`` that every policy has."""
    return [entry for entry in SHOWN if all(entry[0] in metrics for metrics in summary.values())]


def _by_metric(summary: dict[str, dict[str, Interval]], seeds: int) -> Table:
    """Return the same table for a narrow terminal, with a row for each policy and metric."""
    table = grid("METRIC", "POLICY", "MEDIAN", "INTERVAL", right=("MEDIAN", "INTERVAL"))
    for name, heading, unit in _shown(summary):
        for number, (policy, metrics) in enumerate(summary.items()):
            found = metrics[name]
            within = _range(found, unit) if seeds > 1 else ""
            table.add_row("" if number else heading, policy, cell(found.median, unit), within)
    return table


def share(found: Interval, between: str = " ") -> str:
    """Return a ratio with its interval, or without an interval that has no width.

    ``between``: a blank, or the end of a line on a narrow terminal.
    """
    median = cell(found.median, "%")
    return median if found.low == found.high else f"{median}{between}({_range(found, '%')})"


def _range(found: Interval, unit: str) -> str:
    return f"{cell(found.low, unit)}..{cell(found.high, unit)}"


def _savings(saved: Sequence[tuple[str, str, dict[str, Interval]]], between: str = " ") -> Table:
    table = grid("LESS THAN", "BY", "MAKESPAN", "MEAN JCT", right=("MAKESPAN", "MEAN JCT"))
    for ours, other, metrics in saved:
        cells = []
        for name in SAVED:
            found = metrics.get(name)
            cells.append("-" if found is None else share(found, between))
        table.add_row(other, ours, *cells)
    return table


def differences(found: Difference) -> RenderableType:
    """Return tables of the differences of two bundles: inputs, then metrics."""
    inputs = grid("INPUT", "BUNDLE", "VALUE", rest="VALUE")
    for name, first, second in found.inputs:
        inputs.add_row(name, "first", first)
        inputs.add_row("", "second", second)
    head = Text(f"{found.first} and {found.second}", style="bold")
    parts: list[RenderableType] = [head]
    parts += [inputs, Text("")] if found.inputs else [Text("the inputs are the same")]
    parts.append(FittingTable(_changes(found), _changes(found, values=False)))
    for name, alone in ((found.first, found.only_first), (found.second, found.only_second)):
        if alone:
            parts.append(Text(f"only in {name}: {', '.join(alone)}"))
    return Group(*parts)


def _changes(found: Difference, *, values: bool = True) -> Table:
    """Return a table of the changed metrics; without ``values``, only the changes."""
    headings = ("FIRST", "SECOND", "CHANGE") if values else ("CHANGE",)
    table = grid("POLICY", "METRIC", *headings, "CLEAR", right=headings)
    units = {name: (heading, unit) for name, heading, unit in SHOWN}
    for one in found.metrics:
        if one.metric not in units:
            continue
        heading, unit = units[one.metric]
        change = "-" if one.ratio is None else f"{100 * one.ratio:+.1f}%"
        clear = "one seed" if one.clear is None else "yes" if one.clear else "no"
        medians = (cell(one.first, unit), cell(one.second, unit)) if values else ()
        table.add_row(one.policy, heading, *medians, change, clear)
    return table
