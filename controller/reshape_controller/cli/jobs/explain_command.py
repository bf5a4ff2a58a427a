"""The command explain. Asks the daemon and draws. State: none."""

from __future__ import annotations

from typing import Annotated

import typer

from reshape_controller.cli.jobs.explain import explain as draw
from reshape_controller.cli.options import (
    HomeOption,
    JobArgument,
    OutputOption,
    client,
    form,
    settings,
)
from reshape_controller.cli.output import emit
from reshape_controller.http.views import Decisions, JobView


def explain(
    job: JobArgument,
    every: Annotated[bool, typer.Option("--all", "-a", help="Every decision in full.")] = False,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Show why a job has its GPUs: the decisions about it and what was weighed."""
    config = settings(home, output)
    asked = client(config)
    view = asked.get(JobView, f"/v1/jobs/{job}")
    found = asked.get(Decisions, f"/v1/jobs/{view.id}/decisions")
    emit(found, form(config), lambda: draw(view, found.decisions, every=every))
