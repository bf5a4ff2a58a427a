"""Commands about jobs: get, describe, logs, cancel, pause, resume.

Each command sends requests to the daemon and prints the responses.
"""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from typing import Annotated

import typer
from rich.live import Live

from reshape_controller.cli.client import PATIENCE_S, Client
from reshape_controller.cli.jobs import tables as job_tables
from reshape_controller.cli.options import (
    HomeOption,
    JobArgument,
    OutputOption,
    client,
    form,
    one_of,
    settings,
)
from reshape_controller.cli.output import Output, console, emit, note
from reshape_controller.cli.safe_text import LogFilter
from reshape_controller.cli.signals import ended_in_order
from reshape_controller.cli.words import one_line, state_word
from reshape_controller.http.views import History, JobPage, JobView, ProfileList
from reshape_profiles.schema import Verification

LIVE_STATES = "submitted,initialized,running,adjusting,halted"
PAGE = 500
SHOW_MAX = 200
"""Largest number of jobs in a list; with more, jobs that have not ended come first."""
WATCH_S = 1.0
FOLLOW_WAIT_S = 20.0


def get(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB]",
            help="Job id or name; default: all jobs.",
            callback=one_of("job", "get", "JOB"),
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep the table up to date until Ctrl-C.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", "-a", help="List all jobs, without the limit of 200.")
    ] = False,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="List the jobs below this one: the next page of a long list.",
            callback=one_of("job", "get", "--after"),
        ),
    ] = None,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """List all jobs, or show one."""
    config = settings(home, output)
    daemon = client(config)
    if watch and form(config) is Output.TABLE:
        _watch(daemon, job, every, after)
        return
    if job is not None:
        view = daemon.get(JobView, f"/v1/jobs/{job}")
        emit(view, form(config), lambda: job_tables.jobs_table((view,), daemon.now_s))
        return
    page = _list(daemon, every, after)
    emit(page, form(config), lambda: job_tables.jobs_table(page.jobs, daemon.now_s))
    if not every and len(page.jobs) < page.total:
        note(_what_else(page, after))


def describe(job: JobArgument, home: HomeOption = None, output: OutputOption = None) -> None:
    """Show everything about a job: GPUs, progress, errors, history."""
    config = settings(home, output)
    daemon = client(config)
    view = daemon.get(JobView, f"/v1/jobs/{job}")
    if form(config) is not Output.TABLE:
        emit(view, form(config), lambda: "")
        return
    events = daemon.get(History, f"/v1/jobs/{view.id}/history").events
    measured = _verification(daemon, view.job_type)
    emit(view, form(config), lambda: job_tables.describe(view, events, daemon.now_s, measured))


def _verification(daemon: Client, job_type: str | None) -> Verification | None:
    """Return the measured verdict of a job type (``reshape verify``); None if there is none."""
    rows = daemon.get(ProfileList, "/v1/profiles").profiles if job_type is not None else ()
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
    query: dict[str, object] = {"file": file, "tail": tail}
    daemon.patience_s = PATIENCE_S if follow else 0.0
    wait_s = FOLLOW_WAIT_S if follow else 0.0
    text = LogFilter()
    while True:
        answer = daemon.ask("GET", f"/v1/jobs/{job}/logs", query={**query, "wait_s": wait_s})
        missed = answer.headers.get("reshape-log-missed", "0")
        if missed != "0":
            note(f"here {missed} bytes are missing: this log has freed its oldest part")
        attempt, following = (
            int(answer.headers[f"reshape-log-{name}"]) for name in ("attempt", "next")
        )
        more = following < int(answer.headers["reshape-log-size"])
        last = answer.headers["reshape-log-ended"] == "true" or not (follow or more)
        sys.stdout.buffer.write(answer.body if raw else text.feed(answer.body, last=last).encode())
        sys.stdout.buffer.flush()
        if last:
            return
        if attempt:
            query = {"file": file, "offset": following, "attempt": attempt}


def cancel(job: JobArgument, home: HomeOption = None, output: OutputOption = None) -> None:
    """Cancel a job for good. Its checkpoints stay."""
    _act("cancel", job, home, output)


def pause(job: JobArgument, home: HomeOption = None, output: OutputOption = None) -> None:
    """Pause a job: save a checkpoint and release its GPUs."""
    _act("pause", job, home, output)


def resume(job: JobArgument, home: HomeOption = None, output: OutputOption = None) -> None:
    """Resume a paused job from its checkpoint: queue it again."""
    _act("resume", job, home, output)


def _act(action: str, job: str, home: str | None, output: str | None) -> None:
    config = settings(home, output)
    view = client(config).post(JobView, f"/v1/jobs/{job}/{action}")
    text = one_line(view.reason) or state_word(view.state)
    if action == "pause" and view.state != "halted":  # its reason may be an older one
        text = f"pause requested; now {view.state}: {text}"
    emit(view, form(config), lambda: f"{view.id}: {text}")


def _list(daemon: Client, every: bool, after: str | None) -> JobPage:
    """Return all jobs if they are few or requested; if not, a page of those that have not ended.

    The total is that of all jobs.
    """
    total = daemon.get(JobPage, "/v1/jobs", limit=1).total
    if every:
        return _all_pages(daemon, daemon.get(JobPage, "/v1/jobs", limit=PAGE, after=after))
    states = LIVE_STATES if total > SHOW_MAX else None
    page = daemon.get(JobPage, "/v1/jobs", limit=SHOW_MAX, state=states, after=after)
    return JobPage(page.jobs, total, page.next_after)


def _what_else(page: JobPage, after: str | None) -> str:
    """Return what the list omits, and how to see it."""
    if page.next_after is not None:
        return (
            f"{len(page.jobs)} of {page.total} jobs are shown; "
            f"the next: reshape get --after {page.next_after}; all: reshape get --all"
        )
    if after is not None:
        return f"no further jobs that have not ended; {page.total} jobs in all"
    return f"{page.total - len(page.jobs)} ended jobs are not shown; --all shows them"


def _all_pages(daemon: Client, page: JobPage) -> JobPage:
    jobs, total = page.jobs, page.total
    while page.next_after is not None:
        page = daemon.get(JobPage, "/v1/jobs", limit=PAGE, after=page.next_after)
        jobs += page.jobs
    return JobPage(jobs, total, None)


def _watch(daemon: Client, job: str | None, every: bool, after: str | None) -> None:
    """Update the list: in place on a terminal, and in a pipe again after each change of a state."""
    out = console()
    shown: tuple[tuple[object, ...], ...] | None = None
    daemon.patience_s = PATIENCE_S
    shows = Live(console=out, auto_refresh=False) if out.is_terminal else nullcontext()
    with ended_in_order(), shows as live:  # restores the terminal's cursor
        while True:
            jobs = (
                _list(daemon, every, after).jobs
                if job is None
                else (daemon.get(JobView, f"/v1/jobs/{job}"),)
            )
            table = job_tables.jobs_table(jobs, daemon.now_s)
            states = tuple((one.id, one.state, one.size, one.reason) for one in jobs)
            if live is not None:
                live.update(table, refresh=True)
            elif states != shown:
                emit(jobs, Output.TABLE, lambda table=table: table)  # type: ignore[misc]
                sys.stdout.flush()
            shown = states
            if job is not None and jobs[0].state in job_tables.ENDED:
                return
            time.sleep(WATCH_S)
