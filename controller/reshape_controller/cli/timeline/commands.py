"""The command timeline: the job of each GPU over time, as text, picture or trace."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.options import HomeOption, OutputOption, client, form, settings
from reshape_controller.cli.output import console, emit, takes_unicode
from reshape_controller.cli.timeline import chart, gantt
from reshape_controller.cli.timeline.trace_events import trace_events
from reshape_controller.cli.words import seconds_of
from reshape_controller.http.json_text import to_json
from reshape_controller.http.timeline import Timeline
from reshape_gpu import requests
from reshape_gpu.client import Client
from reshape_gpu.requests import Request

PIPE_COLUMNS = 100
COLUMNS_MAX = 160


def timeline(
    last: Annotated[
        str | None,
        typer.Option("--last", metavar="SPAN", help="Show only the last 90s, 10m, 2h or 3d."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--chart", metavar="FILE", help="Write a chart: .svg or .png.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a Trace Event file for Perfetto.")
    ] = None,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Show which job held each GPU over time, and each job's phases."""
    config = settings(home, output)
    daemon = client(config)
    found = daemon.ask(Request("GET", "/v1/timeline", Timeline, {"from_s": from_s(last, daemon)}))
    if picture is not None:
        chart.save(found, picture, "GPUs by job over time")
    if trace is not None:
        _write(trace, to_json(trace_events(found, {}), indent=1) + "\n")
    unicode = takes_unicode()
    columns = min(console().width, COLUMNS_MAX) if sys.stdout.isatty() else columns_of_a_pipe()
    emit(found, form(config), lambda: gantt.draw(found, columns, unicode=unicode))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        what = f"the file cannot be written: {error.strerror}"
        raise failed(Exit.FAILED, what, str(path), "name a file in an existing folder") from None


def from_s(last: str | None, daemon: Client) -> float | None:
    """Return the begin of ``--last`` by the daemon's clock. Raises CliError."""
    if last is None:
        return None
    span_s = seconds_of(last)
    if span_s is None:
        raise failed(Exit.USAGE, f"{last!r} is not a time span", "--last", "for example 10m or 2h")
    daemon.ask(requests.status())  # for the daemon's time
    return max(0.0, daemon.now_s - span_s)


def columns_of_a_pipe() -> int:
    """Return COLUMNS if it is set, or a width that reads well in a file."""
    text = os.environ.get("COLUMNS", "")
    return int(text) if text.isdigit() and int(text) >= gantt.CHART_LEAST else PIPE_COLUMNS
