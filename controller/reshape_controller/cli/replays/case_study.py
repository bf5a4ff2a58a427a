"""The output of ``replay --workload case-study``: the paper's Figure 3, its times and ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table

from reshape_controller.cli.output import FittingTable, Output, emit, grid, note
from reshape_controller.cli.replays.folder import locked_folder, unwritable
from reshape_controller.core.model import Mechanism
from reshape_controller.http.json_text import to_json
from reshape_controller.policies import make_policy
from reshape_controller.replay import case_figures
from reshape_controller.replay.case_study import PANELS, PRINTED, Panel, scene
from reshape_controller.replay.figures import NoMatplotlib
from reshape_controller.replay.shell import Result, replay

NAME = "case-study"


@dataclass(frozen=True, slots=True)
class PanelRow:
    """A job of a panel; times are seconds of the replay."""

    panel: str
    job: str
    first_step_s: float
    completed_s: float
    paper_completed_s: float


def show(shown: Output, out: Path | None) -> None:
    """Replay the three panels, print them, and draw them into ``out``. Raises CliError."""
    with locked_folder(out):
        results = {panel.name: _result(panel) for panel in PANELS}
        lines = [line for label, result in results.items() for line in _lines(label, result)]
        if out is not None:
            _keep(out, results, lines)
    emit(lines, shown, lambda: _table(lines))


def _keep(out: Path, results: Mapping[str, Result], lines: list[PanelRow]) -> None:
    """Write the output and the figures; without matplotlib a note instead of these."""
    try:
        (out / "summary.json").write_text(to_json(lines, indent=2) + "\n", encoding="utf-8")
        sizes = {"job-1": 4, "job-2": 2}
        case_figures.figure_1(out / "figures" / "figure-01", results, sizes)
        case_figures.figure_3(out / "figures" / "figure-03", results, sizes)
        case_figures.figure_4(out / "figures" / "figure-04", results)
    except NoMatplotlib as error:
        note(str(error))
    except OSError as error:
        raise unwritable(error, out) from None


def _result(panel: Panel) -> Result:
    fixed = panel.policy == "default"
    policy = make_policy(panel.policy, **({"sizes": "largest"} if fixed else {}))
    given = scene(panel.costs, sizes=((4,), (2,)) if fixed else ((1, 2, 4), (2,)))
    return replay(given, policy, Mechanism(panel.mechanism))


def _lines(label: str, result: Result) -> list[PanelRow]:
    return [
        PanelRow(
            label,
            row.job,
            row.first_step_s or 0.0,
            row.finished_s,
            PRINTED[label][row.job],
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
