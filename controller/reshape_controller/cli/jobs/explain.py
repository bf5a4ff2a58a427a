"""Why a job has the GPUs that it has: the decisions about it, with what was weighed. Pure."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from reshape_controller.cli.output import grid
from reshape_controller.cli.words import clock, one_line
from reshape_controller.http.views import DecisionView, JobView


def explain(job: JobView, decisions: tuple[DecisionView, ...], *, every: bool) -> RenderableType:
    """The newest decision in full (all of them with ``every``), the earlier ones in a line each."""
    parts: list[RenderableType] = [
        Text.assemble(
            (job.id, "bold"), f"  {job.state}: {one_line(job.reason) or 'nothing is pending'}"
        )
    ]
    if not decisions:
        parts += [Text(), Text("no decision about it was made yet")]
        return Group(*parts)
    full = decisions if every else decisions[-1:]
    earlier = decisions[: len(decisions) - len(full)]
    if earlier:
        parts += [Text(), Text("earlier decisions (UTC); --all shows them in full", "bold")]
        parts.append(_lines(earlier))
    for decision in full:
        parts += [Text(), Text(decision.explanation)]
    return Group(*parts)


def _lines(decisions: tuple[DecisionView, ...]) -> Table:
    table = grid("AT", "CODE", "WHAT", rest="WHAT")
    table.show_header = False
    for decision in decisions:
        at = f"  {clock(decision.event.at_s)}"
        table.add_row(at, decision.reason_code, Text(decision.text, "dim"))
    return table
