"""The command explain: the decisions about a job, from the daemon, as text for a terminal."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from reshape_controller.cli.options import (
    HomeOption,
    JobArgument,
    OutputOption,
    client,
    form,
    settings,
)
from reshape_controller.cli.output import emit, grid
from reshape_controller.cli.words import clock, moment, one_day, one_line, state_word
from reshape_controller.core.phrases import gpus
from reshape_gpu import requests
from reshape_gpu.values import DecisionView, JobView


def explanation_of(
    job: JobView, decisions: tuple[DecisionView, ...], *, every: bool
) -> RenderableType:
    """Return the newest decision in full (with ``every`` all), and earlier ones in a line each."""
    parts: list[RenderableType] = [
        Text.assemble(
            (job.id, "bold"),
            f"  {state_word(job.state)}{_what(job)}",
        )
    ]
    if job.not_larger and not job.fixed_because:
        parts.append(Text(f"  not larger: {one_line(job.not_larger)}"))
    if job.fixed_because:
        parts.append(Text(f"  not reshaped: {one_line(job.fixed_because)}"))
    if job.proof_result:
        parts.append(Text(f"  proof: {one_line(job.proof_result)}"))
    if not decisions:
        parts += [Text(), Text("the policy has not decided about this job yet")]
        return Group(*parts)
    full = decisions if every else decisions[-1:]
    earlier = decisions[: len(decisions) - len(full)]
    if earlier:
        day = one_day(decision.event.at_s for decision in earlier)
        parts += [Text(), Text(f"earlier decisions (UTC{day}); --all shows them in full", "bold")]
        parts.append(_lines(earlier))
    for decision in full:
        parts += [Text(), Text(decision.explanation)]
    return Group(*parts)


def _what(job: JobView) -> str:
    """Return the reason of the job's state; of one that trains, its GPUs."""
    if job.reason:
        return f": {one_line(job.reason)}"
    on = f" of {' and '.join(job.hosts) or job.host}" if job.host else ""
    return f" on {gpus(job.size)}{on}" if job.size else ""


def _lines(decisions: tuple[DecisionView, ...]) -> Table:
    table = grid("AT", "CODE", "WHAT", rest="WHAT")
    table.show_header = False
    at = clock if one_day(decision.event.at_s for decision in decisions) else moment
    for decision in decisions:
        table.add_row(
            f"  {at(decision.event.at_s)}", decision.reason_code, Text(decision.text, "dim")
        )
    return table


def explain(
    job: JobArgument,
    every: Annotated[
        bool, typer.Option("--all", "-a", help="Show every decision in full.")
    ] = False,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Explain a job's GPU count: decisions and compared options."""
    config = settings(home, output)
    daemon = client(config)
    view = daemon.get(job)
    found = daemon.ask(requests.decisions(view.id))
    emit(found, form(config), lambda: explanation_of(view, found.decisions, every=every))
