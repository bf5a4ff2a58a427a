"""The output of ``replay --workload case-study``: the paper's Figure 3, its times and ours."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import RenderableType
from rich.table import Table

from reshape_controller.cli.output import FittingTable, Output, emit, grid
from reshape_controller.core.model import Mechanism
from reshape_controller.policies import make_policy
from reshape_controller.replay.case_study import PANELS, PRINTED, Panel, scene
from reshape_controller.replay.shell import replay

NAME = "case-study"


@dataclass(frozen=True, slots=True)
class PanelRow:
    """A job of a panel; times are seconds of the replay."""

    panel: str
    job: str
    first_step_s: float
    completed_s: float
    paper_completed_s: float


def show(shown: Output) -> None:
    """Replay the three panels and print them."""
    lines = [line for panel in PANELS for line in _lines(panel)]
    emit(lines, shown, lambda: _table(lines))


def _lines(panel: Panel) -> list[PanelRow]:
    fixed = panel.policy == "default"
    policy = make_policy(panel.policy, **({"sizes": "largest"} if fixed else {}))
    given = scene(panel.costs, sizes=((4,), (2,)) if fixed else ((1, 2, 4), (2,)))
    result = replay(given, policy, Mechanism(panel.mechanism))
    return [
        PanelRow(
            panel.name,
            row.job,
            row.first_step_s or 0.0,
            row.finished_s,
            PRINTED[panel.name][row.job],
        )
        for row in result.jobs
    ]


def _table(lines: list[PanelRow]) -> RenderableType:
    return FittingTable(_columns(lines, narrow=False), _columns(lines, narrow=True))


def _columns(lines: list[PanelRow], *, narrow: bool) -> Table:
    headings = ("FIRST STEP", "COMPLETED", "PAPER", "DIFFERENCE")[narrow:]
    table = grid("PANEL", "JOB", *headings, right=headings)
    for line in lines:
        away = line.completed_s - line.paper_completed_s
        times = (line.first_step_s, line.completed_s, line.paper_completed_s)[narrow:]
        table.add_row(line.panel, line.job, *(f"{one:,.0f} s" for one in times), f"{away:+,.0f}")
    return table
