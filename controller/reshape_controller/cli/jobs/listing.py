"""The command get: jobs as a list, once or kept up to date."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import RenderableType

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.jobs import tables as job_tables
from reshape_controller.cli.jobs.following import end_as
from reshape_controller.cli.options import HomeOption, OutputOption, client, form, one_of, settings
from reshape_controller.cli.output import Output, console, emit, note, write_json
from reshape_controller.cli.signals import ended_in_order
from reshape_gpu import flows
from reshape_gpu.client import Client
from reshape_gpu.flows import PATIENCE_S
from reshape_gpu.values import ENDED, JobPage, JobView

LIVE_STATES = "submitted,initialized,running,adjusting,halted"
SHOW_MAX = 200
"""Largest number of jobs in a list; with more, jobs that have not ended come first."""
WATCH_S = 1.0


class Sort(StrEnum):
    """Order of a list."""

    AGE = "age"
    NAME = "name"
    USER = "user"
    STATE = "state"
    GPUS = "gpus"
    PRIORITY = "priority"
    POSITION = "position"
    ETA = "eta"


NEVER = float("inf")
KEYS: dict[Sort, Callable[[JobView], tuple[float | str, ...]]] = {
    Sort.AGE: lambda job: (-job.submitted_at_s,),
    Sort.NAME: lambda job: (job.name, job.submitted_at_s),
    Sort.USER: lambda job: (job.user, job.submitted_at_s),
    Sort.STATE: lambda job: (job.state, job.submitted_at_s),
    Sort.GPUS: lambda job: (-job.size, job.submitted_at_s),
    Sort.PRIORITY: lambda job: (-(job.priority or 0), job.submitted_at_s),
    Sort.POSITION: lambda job: (job.position or NEVER, job.submitted_at_s),
    Sort.ETA: lambda job: (job.predicted_end_at_s or NEVER, job.submitted_at_s),
}
"""Youngest, largest and highest first; jobs without a position or a predicted end last."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The jobs that a list shall have, as the options of ``get`` say."""

    state: str | None = None
    user: str | None = None
    name: str | None = None
    sort: Sort | None = None
    limit: int | None = None
    every: bool = False
    after: str | None = None

    @property
    def filters(self) -> dict[str, str | None]:
        """The queries that choose jobs."""
        return {"state": self.state, "user": self.user, "name": self.name}

    @property
    def chooses(self) -> bool:
        """Whether the list leaves out jobs on request."""
        return any(self.filters.values())


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
        bool,
        typer.Option(
            "--watch", "-w", help="Keep the list up to date until Ctrl-C, or the job's end."
        ),
    ] = False,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="STATE,...", help="List jobs in these states, such as running,paused."
        ),
    ] = None,
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="List the jobs of this user.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="PATTERN", help="List jobs whose name or id fits, such as 'lr-*'."),
    ] = None,
    sort: Annotated[Sort | None, typer.Option(help="Order; default: by submission.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="List at most N jobs.")
    ] = None,
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
    shown, daemon = form(config), client(config)
    wanted = Wanted(state, user, name, sort, limit, every, after)
    if job is not None and (wanted.chooses or sort or limit):
        raise failed(Exit.USAGE, f"{job} is one job", "JOB", "leave it out to list jobs")
    if watch and shown in (Output.TABLE, Output.WIDE, Output.JSONL):
        _watch(daemon, job, wanted, shown)
        return
    if job is not None:
        view = daemon.get(job)
        emit(view, shown, lambda: job_tables.jobs_table((view,), daemon.now_s, wide=_wide(shown)))
        return
    page = listed(daemon, wanted)
    if shown is Output.JSONL:
        for each in page.jobs:
            write_json(each)
    else:
        emit(page, shown, lambda: _table(page.jobs, daemon, wanted, shown))
    if not every and limit is None and len(page.jobs) < page.total:
        note(_what_else(page, wanted))


def _wide(shown: Output) -> bool:
    return shown is Output.WIDE


def _table(
    jobs: tuple[JobView, ...], daemon: Client, wanted: Wanted, shown: Output
) -> RenderableType:
    if not jobs and wanted.chooses:
        return "no job fits"
    return job_tables.jobs_table(jobs, daemon.now_s, wide=_wide(shown))


def listed(daemon: Client, wanted: Wanted) -> JobPage:
    """Return the wanted jobs; of many that nothing chooses, a page of those that have not ended.

    The total is that of all jobs, or of those that are chosen.
    """
    if wanted.sort is not None:
        page = _pages(daemon, wanted, None)
        jobs = sorted(page.jobs, key=KEYS[wanted.sort])
        limit = wanted.limit or (len(jobs) if wanted.every else SHOW_MAX)
        return JobPage(tuple(jobs[:limit]), page.total, None)
    if wanted.every or wanted.limit is not None:
        return _pages(daemon, wanted, wanted.limit)
    filters = wanted.filters
    if wanted.chooses:
        return daemon.page(limit=SHOW_MAX, after=wanted.after, **filters)
    total = daemon.page(limit=1).total
    states = LIVE_STATES if total > SHOW_MAX else None
    page = daemon.page(limit=SHOW_MAX, state=states, after=wanted.after)
    return JobPage(page.jobs, total, page.next_after)


def _what_else(page: JobPage, wanted: Wanted) -> str:
    """Return what the list omits, and how to see it."""
    if page.next_after is not None:
        return (
            f"{len(page.jobs)} of {page.total} jobs are shown; "
            f"the next: reshape get --after {page.next_after}; all: reshape get --all"
        )
    if wanted.sort is not None or wanted.chooses:
        return f"{len(page.jobs)} of {page.total} jobs are shown; --all shows them"
    if wanted.after is not None:
        return f"no further jobs that have not ended; {page.total} jobs in all"
    return f"{page.total - len(page.jobs)} ended jobs are not shown; --all shows them"


def _pages(daemon: Client, wanted: Wanted, limit: int | None) -> JobPage:
    """Return all jobs that are chosen, or the first ``limit`` of them."""
    return daemon.run(flows.all_jobs(**wanted.filters, limit=limit, after=wanted.after))


def _watch(daemon: Client, job: str | None, wanted: Wanted, shown: Output) -> None:
    """Update the list: in place on a terminal, and in a pipe again after each change of a state; as
    JSON lines one for each job that changed."""
    from rich.live import Live  # here, because a list does not need it

    out = console()
    before: dict[str, tuple[str, int, str]] | None = None
    daemon.patience_s = PATIENCE_S
    in_place = out.is_terminal and shown is not Output.JSONL
    shows = Live(console=out, auto_refresh=False) if in_place else nullcontext()
    with ended_in_order(), shows as live:  # restores the terminal's cursor
        while True:
            jobs = listed(daemon, wanted).jobs if job is None else (daemon.get(job),)
            states = {one.id: (one.state, one.size, one.reason) for one in jobs}
            if shown is Output.JSONL:
                for one in jobs:
                    if before is None or before.get(one.id) != states[one.id]:
                        write_json(one)
                sys.stdout.flush()
            else:
                table = _table(jobs, daemon, wanted, shown)
                if live is not None:
                    live.update(table, refresh=True)
                elif states != before:
                    emit(jobs, shown, lambda table=table: table)  # type: ignore[misc]
                    sys.stdout.flush()
            before = states
            if job is not None and jobs[0].state in ENDED:
                break
            time.sleep(WATCH_S)
    end_as(jobs[0])
