"""The output of ``compare --sensitivity``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.output import FittingTable, Output, emit, grid
from reshape_controller.cli.replays.folder import unwritable
from reshape_controller.cli.replays.options import SPREAD_MAX
from reshape_controller.cli.replays.runs import about, run_sweep
from reshape_controller.cli.replays.tables import share
from reshape_controller.http.json_text import to_json
from reshape_controller.replay import bundle
from reshape_controller.replay.report import spread, table
from reshape_controller.replay.rows import Interval, savings
from reshape_controller.replay.sensitivity import CHANGE, variations
from reshape_controller.replay.setup import Contender, Setup

METRICS = ("makespan_s", "mean_jct_s")
AS_IS = "as it is"


@dataclass(frozen=True, slots=True)
class VariationRow:
    """The saving of the first policy against another with a changed assumption."""

    assumption: str
    factor: float
    policy: str
    than: str
    makespan_s: Interval
    mean_jct_s: Interval


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The output of ``compare --sensitivity``."""

    workload: str
    costs: str
    seeds: int
    lines: list[VariationRow]


def variable(setup: Setup) -> Setup:
    """Return the setup if its assumptions can be changed. Raises CliError."""
    if setup.device is not None:
        what = "--sensitivity cannot be used with --device-truth, which leaves nothing to vary"
        raise failed(Exit.USAGE, what, "--sensitivity", "leave out --device-truth")
    most = SPREAD_MAX / (1.0 + CHANGE)
    if setup.spread > most:
        what = f"--spread {setup.spread:g} plus 25 % exceeds {SPREAD_MAX:g}"
        raise failed(Exit.USAGE, what, "--sensitivity", f"give a --spread of at most {most:g}")
    return setup


def show(
    setup: Setup,
    contenders: Sequence[Contender],
    seeds: Sequence[int],
    workers: int,
    out: Path | None,
    shown: Output,
) -> None:
    """Replay every variation and print the table."""
    lines = _lines(setup, contenders, seeds, workers, out, AS_IS, 1.0)
    for one in variations(setup):
        lines += _lines(one.setup, contenders, seeds, workers, out, one.assumption, one.factor)
    found = Sensitivity(setup.name, setup.costs.name, len(seeds), lines)
    if out is not None:
        config = bundle.configuration(setup, contenders, seeds)
        try:
            bundle.clear(out)
            (out / "config.json").write_text(to_json(config, indent=2) + "\n", "utf-8")
            (out / "sensitivity.json").write_text(to_json(found, indent=2) + "\n", "utf-8")
            text = f"# What is saved if an assumption is wrong\n\n{about(setup, seeds)}.\n\n"
            (out / "sensitivity.md").write_text(text + markdown(found), "utf-8")
        except OSError as error:
            raise unwritable(error, out) from None
    emit(found, shown, lambda: _table(found, about(setup, seeds)))


def _lines(
    setup: Setup,
    contenders: Sequence[Contender],
    seeds: Sequence[int],
    workers: int,
    out: Path | None,
    assumption: str,
    factor: float,
) -> list[VariationRow]:
    folder = out / "variations" / setup.fingerprint() if out is not None else None
    rows = [run.row for run in run_sweep(setup, contenders, seeds, folder, workers)]
    ours = contenders[0].label
    found = []
    for other in contenders[1:]:
        saved = savings(rows, ours, other.label, METRICS)
        found.append(VariationRow(assumption, factor, ours, other.label, **saved))
    return found


def rows_of(found: Sensitivity) -> list[tuple[str, str, list[VariationRow]]]:
    """Return the rows by assumption and factor, in order."""
    grouped: dict[tuple[str, float], list[VariationRow]] = {}
    for line in found.lines:
        grouped.setdefault((line.assumption, line.factor), []).append(line)
    shown = []
    for (assumption, factor), lines in grouped.items():
        change = "" if factor == 1.0 else f"{100 * (factor - 1):+.0f} %"
        shown.append((assumption, change, lines))
    first, rest = shown[0], shown[1:]
    order = list(dict.fromkeys(name for name, _, _ in rest))
    return [first, *sorted(rest, key=lambda row: order.index(row[0]))]


def markdown(found: Sensitivity) -> str:
    """Return the table as Markdown."""
    others = [line.than for line in rows_of(found)[0][2]]
    head = ["assumption", "changed by"]
    head += [f"{what} below {other}" for other in others for what in ("makespan", "mean JCT")]
    rows = [
        [
            assumption,
            change,
            *(spread(one) for line in lines for one in (line.makespan_s, line.mean_jct_s)),
        ]
        for assumption, change, lines in rows_of(found)
    ]
    return table(head, rows) + "\n"


def _table(found: Sensitivity, text: str) -> RenderableType:
    return Group(Text(text, style="bold"), FittingTable(_wide(found), _narrow(found)))


def _wide(found: Sensitivity) -> Table:
    others = [line.than for line in rows_of(found)[0][2]]
    headings = [f"{what} < {other}" for other in others for what in ("MAKESPAN", "JCT")]
    drawn = grid("ASSUMPTION", "BY", *headings, right=("BY", *headings))
    for assumption, change, lines in rows_of(found):
        cells = [share(one) for line in lines for one in (line.makespan_s, line.mean_jct_s)]
        drawn.add_row(assumption, change, *cells)
    return drawn


def _narrow(found: Sensitivity) -> Table:
    """Return a table with a row for each other policy, and intervals below the medians."""
    right = ("BY", "MAKESPAN", "JCT")
    drawn = grid("ASSUMPTION", "BY", "LESS THAN", *right[1:], right=right, rest="ASSUMPTION")
    for assumption, change, lines in rows_of(found):
        for number, line in enumerate(lines):
            cells = [share(one, "\n") for one in (line.makespan_s, line.mean_jct_s)]
            names = ("", "") if number else (assumption, change)
            drawn.add_row(*names, line.than, *cells)
    return drawn
