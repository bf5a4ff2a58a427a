"""The first picture of `make demo`: the paper's case study, replayed in virtual time.

    python examples/demo/first_look.py [--svg FILE]

Needs the controller's packages alone (no TensorFlow), and takes a second. Prints when both jobs are
done under each way of changing GPUs, and who had which GPU when. Starts no job. With
``--svg`` it writes the same as a picture; docs/figures/case-study.svg is that file.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import picture
from rich.console import Console, Group
from rich.table import Table
from scenario import PIPE_COLUMNS

from reshape_controller.cli.timeline import gantt
from reshape_controller.core.changes import ChangeSet
from reshape_controller.core.engine import Engine
from reshape_controller.core.model import Mechanism
from reshape_controller.core.state import State
from reshape_controller.http.timeline import Recorder, Timeline
from reshape_controller.policies import make_policy
from reshape_controller.replay.account import Account
from reshape_controller.replay.case_study import PANELS, Panel, scene
from reshape_controller.replay.shell import Shell

TEXTS = {
    "default": "never: job 2 waits until job 1 has ended",
    "termination": "ends the container and starts another",
    "sidecar": "inside the living container (Reshape)",
}
"""How each panel of the paper's Figure 3 changes the number of GPUs of a job."""


HEADINGS = {
    "termination": "End the container, start another",
    "sidecar": "Reshape, inside the living container",
}
"""Titles of the picture's panels."""


class RecordingAccount(Account):
    """An account that also writes down the lanes of GPUs and jobs."""

    recorder: Recorder

    def book(self, state: State, touched: ChangeSet, now_s: float) -> None:
        """Take in what one round changed."""
        # Both take the ended jobs out of the state, so the recorder gets a copy of them.
        copy = SimpleNamespace(
            jobs=state.jobs, gpus=state.gpus, hosts=state.hosts, ended=dict(state.ended)
        )
        view = SimpleNamespace(state=copy, drain_changes=lambda: touched)
        self.recorder.record(cast(Engine, view), self.recorder.seq + 1, now_s)
        super().book(state, touched, now_s)


@dataclass(frozen=True, slots=True)
class Look:
    """A replayed panel; times in seconds since job 1's submission."""

    name: str
    completed_s: dict[str, float]
    timeline: Timeline


def replayed(panel: Panel) -> Look:
    """Both jobs of the case study under one panel's policy and costs."""
    fixed = panel.policy == "default"
    policy = make_policy(panel.policy, **({"sizes": "largest"} if fixed else {}))
    given = scene(panel.costs, sizes=((4,), (2,)) if fixed else ((1, 2, 4), (2,)))
    shell = Shell(given, policy, Mechanism(panel.mechanism), seed=0)
    account = RecordingAccount(len(given.workload.jobs))
    account.since_s, account.recorder = shell.account.since_s, Recorder()
    shell.account = account
    shell.run()
    jobs = {str(row.job): row.finished_s for row in shell.result().jobs}
    return Look(panel.name, jobs, account.recorder.timeline())


def table(looks: list[Look]) -> Table:
    """When each job is done, and both, by panel."""
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("seconds", "job 1", "job 2", "both done"):
        drawn.add_column(heading, justify="left" if heading == "seconds" else "right")
    drawn.add_column("changes the number of GPUs of a job")
    for look in looks:
        first, second = look.completed_s.values()
        whole = max(job.ended_at_s or 0.0 for job in look.timeline.jobs)
        times = (f"{time_s:,.0f}" for time_s in (first, second, whole))
        drawn.add_row(look.name, *times, TEXTS[look.name])
    return drawn


def svg(looks: list[Look]) -> str:
    """The two panels that change GPUs, as the text of an SVG file."""
    title = "Two jobs on four GPUs: the paper's case study, replayed with the paper's costs"
    panels = [picture.Panel(HEADINGS[look.name], look.timeline) for look in looks[1:]]
    return picture.draw(title, panels)


def lanes(timeline: Timeline, columns: int, *, unicode: bool) -> Group:
    """The chart and its legend, without the date (a replay has none) and the sums."""
    drawn = gantt.draw(timeline, columns, unicode=unicode)
    assert isinstance(drawn, Group)
    return Group(*drawn.renderables[2:-4])


def main() -> int:
    """Print two charts and the table; 0."""
    parser = argparse.ArgumentParser(description="Replay the paper's case study.")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write the picture there")
    options = parser.parse_args()
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else PIPE_COLUMNS
    console = Console(width=width, highlight=False)
    looks = [replayed(panel) for panel in PANELS]
    unicode = "utf" in (sys.stdout.encoding or "").lower()
    console.print(
        "[bold]The paper's case study, replayed[/bold] in virtual time with the paper's costs: two "
        "jobs, four GPUs.\nJob 1 may run on 1, 2 or 4 GPUs. Job 2 comes after 180 s and wants 2.\n"
    )
    for look in looks[1:]:
        console.rule(f"{look.name}: {TEXTS[look.name]}", align="left")
        console.print(lanes(look.timeline, console.width, unicode=unicode))
        console.print()
    console.print(table(looks))
    if options.svg is not None:
        options.svg.write_text(svg(looks))
        console.print(f"\nthe same as a picture: {options.svg}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
