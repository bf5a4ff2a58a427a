"""The commands pin and unpin: fix the GPU count of jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from reshape_controller.cli.jobs.selection import Choice, act, jobs_of
from reshape_controller.cli.options import HomeOption, OutputOption, client, form, settings
from reshape_controller.core.phrases import gpus
from reshape_gpu.values import JobView

JobsArgument = Annotated[
    list[str],
    typer.Argument(metavar="JOB...", help="Job ids, names, or patterns such as 'lr-*'."),
]
SizeArgument = Annotated[
    int, typer.Argument(metavar="SIZE", help="GPU count; one of the job's optional_gpus.")
]


def pin(
    jobs: JobsArgument,
    size: SizeArgument,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Fix the GPU count of jobs."""
    _pin(jobs, size, home, output)


def unpin(jobs: JobsArgument, home: HomeOption = None, output: OutputOption = None) -> None:
    """Undo pin: let jobs use all their GPU counts again."""
    _pin(jobs, None, home, output)


def _pin(jobs: list[str], size: int | None, home: str | None, output: str | None) -> None:
    config = settings(home, output)
    daemon = client(config)
    found = jobs_of(daemon, Choice(jobs), "pin")
    act(found, lambda job: daemon.pin(job, size), form(config), _said)


def _said(view: JobView) -> str:
    if view.pinned is None:
        *fewer, most = view.optional_gpus
        return "may use " + " or ".join([*map(str, fewer), gpus(most)])
    said = f"is fixed at {gpus(view.pinned)}"
    if view.size in (0, view.pinned):
        return said
    if view.fixed_because:
        return f"{said}; it keeps {view.size}: {view.fixed_because}"
    if view.stage != "training":
        return f"{said}; it goes from {view.size} to {view.pinned}"
    waits = f", and gets them once {view.host} has them idle" if view.size < view.pinned else ""
    return f"{said}; it has {view.size} now{waits}"
