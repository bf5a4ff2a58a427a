"""The commands pin and unpin: fix a job's GPU count. Ask the daemon. State: none."""

from __future__ import annotations

from typing import Annotated

import typer

from reshape_controller.cli.options import (
    HomeOption,
    JobArgument,
    OutputOption,
    client,
    form,
    settings,
)
from reshape_controller.cli.output import emit
from reshape_controller.core.explanation import gpus
from reshape_controller.http.views import JobView

SizeArgument = Annotated[
    int, typer.Argument(metavar="SIZE", help="GPU count; one of the job's optional_gpus.")
]


def pin(
    job: JobArgument,
    size: SizeArgument,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Fix a job's GPU count."""
    _pin(job, size, home, output)


def unpin(job: JobArgument, home: HomeOption = None, output: OutputOption = None) -> None:
    """Undo pin: let a job use all its GPU counts again."""
    _pin(job, None, home, output)


def _pin(job: str, size: int | None, home: str | None, output: str | None) -> None:
    config = settings(home, output)
    view = client(config).post(JobView, f"/v1/jobs/{job}/pin", {"size": size})
    emit(view, form(config), lambda: f"{view.id}: {_said(view)}")


def _said(view: JobView) -> str:
    if view.pinned is None:
        *fewer, most = view.optional_gpus
        return "may use " + " or ".join([*map(str, fewer), gpus(most)])
    now = f"; it has {view.size} now" if view.size not in (0, view.pinned) else ""
    return f"is fixed at {gpus(view.pinned)}{now}"
