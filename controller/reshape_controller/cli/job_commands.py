"""Commands about jobs: submit, get, describe, logs, cancel, halt, resume.

Does: asks the daemon and prints. Never: decides, or touches the store. State: none.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.live import Live

from reshape_controller.cli import job_tables
from reshape_controller.cli.client import PATIENCE_S, Client, RecordRefused
from reshape_controller.cli.exits import CliError, Exit, Problem, failed
from reshape_controller.cli.options import (
    HomeOption,
    JobArgument,
    OutputOption,
    client,
    form,
    settings,
)
from reshape_controller.cli.output import Output, console, emit, note
from reshape_controller.cli.words import one_line
from reshape_controller.http.views import History, JobPage, JobView
from reshape_controller.records import RecordInvalid, load_yaml, parse_record
from reshape_controller.records.aliases import canonical

LIVE_STATES = "submitted,initialized,running,adjusting,halted"
PAGE = 500
SHOW_ALL_MAX = 200
"""So many jobs are listed without being asked; of more, only those that live."""
WATCH_S = 1.0
WAIT_POLL_S = 0.5
FOLLOW_WAIT_S = 20.0


def submit(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Job record; - reads stdin.")],
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for its end; exit 1 if it fails.")
    ] = False,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Submit a job."""
    config = settings(home, output)
    record = read_record(file)
    asked = client(config)
    try:
        job = asked.post(JobView, "/v1/jobs", record)
    except RecordRefused as error:
        raise CliError(error.code, *(_in_file(file, p) for p in error.problems)) from None
    if form(config) is Output.TABLE:
        note(f"submitted; watch it: reshape get --watch, its log: reshape logs -f {job.id}")
    if wait:
        asked.patience_s = PATIENCE_S
        job = _until_ended(asked, job)
    emit(job if form(config) is not Output.TABLE else job.id, form(config), lambda: job.id)
    if wait and job.state != "completed":
        what = f"{job.id} is {job.state}: {one_line(job.reason)}"
        raise failed(Exit.FAILED, what, job.log_folder or job.id, _after_failure(job))


def get(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Id or name.")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep showing it.")] = False,
    every: Annotated[
        bool, typer.Option("--all", "-a", help="Ended jobs too, however many.")
    ] = False,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """List jobs, or one."""
    config = settings(home, output)
    asked = client(config)
    if watch and form(config) is Output.TABLE:
        _watch(asked, job, every)
        return
    if job is not None:
        view = asked.get(JobView, f"/v1/jobs/{job}")
        emit(view, form(config), lambda: job_tables.jobs_table((view,), time.time()))
        return
    page = _list(asked, every)
    emit(page, form(config), lambda: job_tables.jobs_table(page.jobs, time.time()))
    if len(page.jobs) < page.total:
        note(f"{page.total - len(page.jobs)} ended jobs are not shown; --all shows them")


def describe(job: JobArgument, home: HomeOption = None, output: OutputOption = None) -> None:
    """Show everything about a job."""
    config = settings(home, output)
    asked = client(config)
    view = asked.get(JobView, f"/v1/jobs/{job}")
    if form(config) is not Output.TABLE:
        emit(view, form(config), lambda: "")
        return
    events = asked.get(History, f"/v1/jobs/{view.id}/history").events
    emit(view, form(config), lambda: job_tables.describe(view, events, time.time()))


def logs(
    job: JobArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until its end.")] = False,
    tail: Annotated[
        int, typer.Option("--tail", "-n", min=0, help="Begin with so many lines.")
    ] = 200,
    file: Annotated[str, typer.Option("--file", help="Which of its log files.")] = "training.log",
    home: HomeOption = None,
) -> None:
    """Show a job's log, also of one that has ended or crashed."""
    asked = client(settings(home))
    query: dict[str, object] = {"file": file, "tail": tail}
    asked.patience_s = PATIENCE_S if follow else 0.0
    wait_s = FOLLOW_WAIT_S if follow else 0.0
    while True:
        answer = asked.ask("GET", f"/v1/jobs/{job}/logs", query={**query, "wait_s": wait_s})
        sys.stdout.buffer.write(answer.body)
        sys.stdout.buffer.flush()
        attempt, following = (
            int(answer.headers[f"reshape-log-{name}"]) for name in ("attempt", "next")
        )
        more = following < int(answer.headers["reshape-log-size"])
        if answer.headers["reshape-log-ended"] == "true" or not (follow or more):
            return
        if attempt:
            query = {"file": file, "offset": following, "attempt": attempt}


def cancel(job: JobArgument, home: HomeOption = None, output: OutputOption = None) -> None:
    """Cancel a job."""
    _act("cancel", job, home, output)


def halt(job: JobArgument, home: HomeOption = None, output: OutputOption = None) -> None:
    """Have a job save, give its GPUs back and wait."""
    _act("halt", job, home, output)


def resume(job: JobArgument, home: HomeOption = None, output: OutputOption = None) -> None:
    """Queue a halted job again."""
    _act("resume", job, home, output)


def read_record(file: str) -> Any:
    """A valid job record as plain values, its folders absolute. Raises CliError (rejected)."""
    source = "stdin" if file == "-" else file
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        text = data.decode("utf-8")
    except FileNotFoundError:
        raise failed(Exit.USAGE, "there is no such file", file, "name a job record") from None
    except UnicodeDecodeError:
        raise failed(Exit.REJECTED, "the record is not UTF-8 text", source, "save it so") from None
    except OSError as error:
        what = f"the file cannot be read: {error.strerror}"
        raise failed(Exit.USAGE, what, file, "name a job record that you may read") from None
    folder = Path.cwd() if file == "-" else Path(file).absolute().parent
    try:
        value = load_yaml(text, source=source)
        spec = parse_record(value, folder=folder)
    except RecordInvalid as error:
        found = [Problem(e.message, e.path, e.hint) for e in error.errors]
        raise CliError(Exit.REJECTED, *(_in_file(file, problem) for problem in found)) from None
    fields, _ = canonical(cast(dict[object, object], value))
    return {**fields, "code": spec.code, "dataset": spec.dataset, "checkpoints": spec.checkpoints}


def _in_file(file: str, problem: Problem) -> Problem:
    """The problem of a field, with the file that has it."""
    source, path = ("stdin" if file == "-" else file), problem.where
    if not path or path.startswith(source):
        return Problem(problem.what, path or source, problem.remedy)
    return Problem(f"{path}: {problem.what}", source, problem.remedy)


def _act(action: str, job: str, home: str | None, output: str | None) -> None:
    config = settings(home, output)
    view = client(config).post(JobView, f"/v1/jobs/{job}/{action}")
    emit(view, form(config), lambda: f"{view.id}: {one_line(view.reason) or view.state}")


def _list(asked: Client, every: bool) -> JobPage:
    """All jobs; only those that live where there are very many."""
    first = asked.get(JobPage, "/v1/jobs", limit=PAGE)
    if every or first.total <= SHOW_ALL_MAX:
        return _all_pages(asked, first, None)
    live = asked.get(JobPage, "/v1/jobs", limit=PAGE, state=LIVE_STATES)
    found = _all_pages(asked, live, LIVE_STATES)
    return JobPage(found.jobs, first.total, None)


def _all_pages(asked: Client, page: JobPage, states: str | None) -> JobPage:
    jobs, total = page.jobs, page.total
    while page.next_after is not None:
        page = asked.get(JobPage, "/v1/jobs", limit=PAGE, state=states, after=page.next_after)
        jobs += page.jobs
    return JobPage(jobs, total, None)


def _watch(asked: Client, job: str | None, every: bool) -> None:
    with Live(console=console(), auto_refresh=False) as live:
        while True:
            jobs = (
                _list(asked, every).jobs
                if job is None
                else (asked.get(JobView, f"/v1/jobs/{job}"),)
            )
            live.update(job_tables.jobs_table(jobs, time.time()), refresh=True)
            if job is not None and jobs[0].state in job_tables.ENDED:
                return
            time.sleep(WATCH_S)


def _until_ended(asked: Client, job: JobView) -> JobView:
    while job.state not in job_tables.ENDED:
        time.sleep(WAIT_POLL_S)
        job = asked.get(JobView, f"/v1/jobs/{job.id}")
    return job


def _after_failure(job: JobView) -> str:
    return f"reshape logs {job.id}, reshape describe {job.id}"
