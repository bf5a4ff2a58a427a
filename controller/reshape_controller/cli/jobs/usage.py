"""The command usage: GPU-hours by user, job, type or host, as a table or CSV."""

from __future__ import annotations

import csv
import io
from dataclasses import fields
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.options import client, form, options_from
from reshape_controller.cli.output import emit, grid, write_text
from reshape_controller.cli.words import moment, seconds_of
from reshape_controller.core.phrases import lost_text
from reshape_gpu import requests
from reshape_gpu.client import Client
from reshape_gpu.config import Config
from reshape_gpu.usage import By, Usage, UsageRow

HOUR_S = 3600.0
TIMES = ("%Y-%m-%d", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S")
NO_JOB = "(no job)"
NO_PRICE = "-"


@options_from("home", "output", "prices")
def usage(
    config: Config,
    begin: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Begin: 2026-01-31, or 7d for 7 days ago."),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option("--to", metavar="TIME", help="End, in the same forms; default: now."),
    ] = None,
    by: Annotated[By, typer.Option(help="A row for each of these.")] = By.USER,
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="Count only the jobs of this user.")
    ] = None,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Write CSV, in GPU-seconds, with a line of names.")
    ] = False,
) -> None:
    """Show who used how many GPU-hours, and how many no job held."""
    prices, daemon = prices_of(config), client(config)
    from_s, to_s = _time(begin, "--from", daemon), _time(end, "--to", daemon)
    if from_s is not None and to_s is not None and from_s > to_s:
        raise failed(Exit.USAGE, f"{begin} is after {end}", "--from", "give the earlier time first")
    found = daemon.usage(from_s, to_s, by=by, user=user)
    if as_csv:
        write_text(csv_of(found, prices))
        return
    emit(found, form(config), lambda: table_of(found, prices))


def prices_of(config: Config) -> dict[str, float]:
    """Return the price of a GPU-hour by GPU type. Raises CliError."""
    prices = {}
    for part in filter(None, (config.text("prices") or "").split(",")):
        name, equals, text = part.rpartition("=")
        try:
            prices[name.strip()] = float(text)
        except ValueError:
            equals = ""
        if not equals or not name.strip() or not 0 <= prices[name.strip()] < float("inf"):
            what = f"{part!r} is no price of a GPU type"
            raise failed(Exit.USAGE, what, config.source("prices"), "for example H100=2.50,A100=1")
    return prices


def _time(text: str | None, flag: str, daemon: Client) -> float | None:
    """Return Unix seconds; a span counts back from the daemon's time. Raises CliError."""
    if text is None:
        return None
    span_s = seconds_of(text)
    if span_s is not None:
        daemon.ask(requests.status())  # for the daemon's time
        return max(0.0, daemon.now_s - span_s)
    for pattern in TIMES:
        try:
            return datetime.strptime(text, pattern).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    remedy = "for example 2026-01-31, '2026-01-31 14:00' (UTC), or 7d for 7 days ago"
    raise failed(Exit.USAGE, f"{text!r} is not a time", flag, remedy)


def table_of(found: Usage, prices: dict[str, float]) -> RenderableType:
    """Return the table in GPU-hours, with all GPU-hours and the cost below it."""
    if not found.rows:
        return Text("no GPU has been in the inventory in this time")
    by_type = found.by == By.TYPE
    first = found.by.upper().replace("-", " ")
    columns = [first, *([] if by_type else ["GPU TYPE"])]
    figures = ["TRAINED", "STARTING", "SAVING", "WAITING", "HELD"]
    figures += ["COST"] if prices else []
    table = grid(*columns, *figures, right=tuple(figures))
    table.columns[0].no_wrap, table.columns[0].overflow = False, "fold"
    held = [row for row in found.rows if row.held_gpu_s > 0]
    for row in held:
        name = row.name or NO_JOB
        table.add_row(*[name, *([] if by_type else [row.gpu_type])], *_figures(row, prices))
    rest = Text(_rest(found))
    return Group(table, Text(), rest) if held else rest


def _figures(row: UsageRow, prices: dict[str, float]) -> list[str]:
    parts = (row.trained_gpu_s, row.starting_gpu_s, row.saving_gpu_s, row.waiting_gpu_s)
    cost = cost_of(row, prices)
    shown = [hours(gpu_s) for gpu_s in (*parts, row.held_gpu_s)]
    return shown + ([NO_PRICE if cost is None else f"{cost:.2f}"] if prices else [])


def _rest(found: Usage) -> str:
    """Return what no job held, and the sum, as a sentence."""
    free = sum(row.free_gpu_s for row in found.rows)
    quarantined = sum(row.quarantined_gpu_s for row in found.rows)
    silent = sum(row.silent_gpu_s for row in found.rows)
    held = sum(row.held_gpu_s for row in found.rows)
    repeated = sum(row.repeated_gpu_s for row in found.rows)
    again = f", and {hours(repeated)} of the GPU-hours trained were repeated" if repeated else ""
    return (
        f"GPU-hours from {moment(found.from_s)} to {moment(found.to_s)} UTC: "
        f"{hours(found.all_gpu_s)} in all, of which jobs held {hours(held)}; "
        f"free {hours(free)}, quarantined {hours(quarantined)}, host silent {hours(silent)}. "
        f"These jobs have lost {lost_text(found.steps_lost, known=found.steps_lost_known)}{again}."
    )


def hours(gpu_s: float) -> str:
    """Return GPU-seconds as GPU-hours."""
    return f"{gpu_s / HOUR_S:.3f}" if gpu_s < 10 * HOUR_S else f"{gpu_s / HOUR_S:,.1f}"


def cost_of(row: UsageRow, prices: dict[str, float]) -> float | None:
    """Return the price of the held GPU-hours; None if the GPU type has no price."""
    price = prices.get(row.gpu_type)
    return None if price is None else price * row.held_gpu_s / HOUR_S


def csv_of(found: Usage, prices: dict[str, float]) -> str:
    """Return the rows as CSV, in GPU-seconds."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [each.name for each in fields(UsageRow)]
    writer.writerow([found.by, *names[1:], "cost"])
    for row in found.rows:
        cost = cost_of(row, prices)
        figures = [_cell(getattr(row, name)) for name in names]
        writer.writerow([*figures, "" if cost is None else f"{cost:.4f}"])
    return text.getvalue()


def _cell(value: str | float) -> str:
    """Return a cell; no spreadsheet takes its text for a formula."""
    if not isinstance(value, str):
        return f"{value:.3f}"
    return f"'{value}" if value.startswith(("=", "+", "-", "@")) else value
