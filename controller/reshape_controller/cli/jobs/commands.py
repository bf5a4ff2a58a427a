"""Commands about jobs: describe, logs, cancel, pause, resume.

Each command sends requests to the daemon and prints the responses.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Annotated

import typer

from reshape_controller.cli.jobs import tables as job_tables
from reshape_controller.cli.jobs.following import end_as
from reshape_controller.cli.jobs.selection import Choice, act, confirm, jobs_of
from reshape_controller.cli.options import (
    HomeOption,
    JobArgument,
    OutputOption,
    client,
    form,
    settings,
)
from reshape_controller.cli.output import emit, note
from reshape_controller.cli.safe_text import LogFilter
from reshape_controller.cli.words import one_line, state_word
from reshape_controller.http.profile_views import ProfileList
from reshape_gpu import requests
from reshape_gpu.client import Client
from reshape_gpu.requests import Request
from reshape_gpu.values import JobView
from reshape_profiles.schema import Verification

BAR_EVERY_S = 10.0
"""A followed log shows the state of a progress bar at most so often until its line ends."""


def describe(job: JobArgument, home: HomeOption = None, output: OutputOption = None) -> None:
    """Show everything about a job: GPUs, progress, errors, history."""
    config = settings(home, output)
    daemon = client(config)
    view = daemon.get(job)
    if not form(config).for_people:
        emit(view, form(config), lambda: "")
        return
    events = daemon.ask(requests.history(view.id)).events
    measured = _verification(daemon, view.job_type)
    emit(view, form(config), lambda: job_tables.describe(view, events, daemon.now_s, measured))


def _verification(daemon: Client, job_type: str | None) -> Verification | None:
    """Return the measured verdict of a job type (``reshape verify``); None if there is none."""
    if job_type is None:
        return None
    rows = daemon.ask(Request("GET", "/v1/profiles", ProfileList)).profiles
    profiles = [row.profile for row in rows if row.profile is not None]
    return next((p.verification for p in profiles if p.job_type == job_type), None)


def logs(
    job: JobArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the log until the job ends.")
    ] = False,
    tail: Annotated[
        int, typer.Option("--tail", "-n", min=0, help="Number of lines to begin with.")
    ] = 200,
    file: Annotated[
        str,
        typer.Option(
            "--file",
            help="Log file to show; agent.log, init.log and zygote.log are the SideCar's.",
        ),
    ] = "training.log",
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Write the log's own bytes, which a terminal may obey."),
    ] = False,
    home: HomeOption = None,
) -> None:
    """Show the log of a job, also after it ended or crashed."""
    daemon = client(settings(home))
    text, bar_at_s = LogFilter(), time.monotonic()
    if follow:  # by its id, because another job may get its name
        job = daemon.get(job).id
    for part in daemon.log_parts(job, follow=follow, tail=tail, file=file):
        if part.missed != 0:
            missed = "unknown" if part.missed is None else part.missed
            note(f"here {missed} bytes are missing: this log has freed its oldest part")
        shown = text.feed(part.data, last=part.is_last)
        if follow and not shown and time.monotonic() >= bar_at_s + BAR_EVERY_S:
            shown = text.newest_state()
        bar_at_s = time.monotonic() if shown else bar_at_s
        sys.stdout.buffer.write(part.data if raw else shown.encode())
        sys.stdout.buffer.flush()
    if follow:
        end_as(daemon.wait(job))


JobsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[JOB]...", help="Job ids, names, or patterns such as 'lr-*'."),
]
AllOption = Annotated[
    bool, typer.Option("--all", help="All jobs that have not ended; with a user's token their own.")
]
StateOption = Annotated[
    str | None, typer.Option("--state", metavar="STATE,...", help="All jobs in these states.")
]
UserOption = Annotated[
    str | None, typer.Option("--user", metavar="NAME", help="All jobs of this user.")
]


def cancel(
    jobs: JobsArgument = None,
    every: AllOption = False,
    state: StateOption = None,
    user: UserOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Cancel jobs for good. Their checkpoints stay. Asks if they are several."""
    config, choice = settings(home, output), Choice(jobs or (), every, state, user)
    daemon = client(config)
    found = jobs_of(daemon, choice, "cancel")
    if choice.is_open or len(found) > 1:
        confirm(found, "cancel", yes=yes)
    act(found, _asker(daemon, "cancel"), form(config), _said)


def pause(
    jobs: JobsArgument = None,
    every: AllOption = False,
    state: StateOption = None,
    user: UserOption = None,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Pause jobs: save a checkpoint and release their GPUs."""
    config, choice = settings(home, output), Choice(jobs or (), every, state, user)
    daemon = client(config)
    found = jobs_of(daemon, choice, "pause")
    act(found, _asker(daemon, "pause"), form(config), _paused)


def resume(
    jobs: JobsArgument = None,
    every: Annotated[bool, typer.Option("--all", help="All paused jobs.")] = False,
    state: StateOption = None,
    user: UserOption = None,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Resume paused jobs from their checkpoints: queue them again."""
    config = settings(home, output)
    choice = Choice(jobs or (), every, state or ("halted" if every or user else None), user)
    daemon = client(config)
    found = jobs_of(daemon, choice, "resume")
    act(found, _asker(daemon, "resume"), form(config), _said)


def _asker(daemon: Client, action: str) -> Callable[[str], JobView]:
    return lambda job: daemon.ask(requests.act(job, action))


def _said(view: JobView) -> str:
    return one_line(view.reason) or state_word(view.state)


def _paused(view: JobView) -> str:
    if view.state == "halted":
        return _said(view)
    return f"pause requested; now {view.state}: {_said(view)}"  # its reason may be an older one
