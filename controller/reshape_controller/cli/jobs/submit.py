"""The command submit: a job record from a file or stdin to the daemon.

Does: check the record before it is sent, and wait for the job's end on request. It is a module of
its own because the checks of records take longer to import than all other commands together.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from reshape_controller.cli.client import PATIENCE_S, Client, RecordRejected
from reshape_controller.cli.exits import CliError, Exit, Problem, failed
from reshape_controller.cli.jobs import tables as job_tables
from reshape_controller.cli.jobs.following import exit_of, is_paused_for_error
from reshape_controller.cli.options import HomeOption, OutputOption, client, form, settings
from reshape_controller.cli.output import emit, note
from reshape_controller.cli.words import one_line, state_word
from reshape_controller.http.views import JobView
from reshape_controller.records import RecordInvalid, load_yaml, parse_record
from reshape_controller.records.aliases import canonical

WAIT_POLL_S = 0.5


def submit(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Job record (YAML or JSON); - reads stdin.")
    ],
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the job ends, and exit as it does.")
    ] = False,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Submit a job record and print the job's id."""
    config = settings(home, output)
    record = read_record(file)
    daemon = client(config)
    try:
        job = daemon.post(JobView, "/v1/jobs", record)
    except RecordRejected as error:
        raise CliError(error.code, *(_in_file(file, p) for p in error.problems)) from None
    if form(config).for_people:
        note(f"submitted; watch it: reshape get --watch, its log: reshape logs -f {job.id}")
    if wait:
        daemon.patience_s = PATIENCE_S
        job = _until_ended(daemon, job)
    emit(job, form(config), lambda: job.id)
    if wait and job.state != "completed":
        what = f"{job.id} is {state_word(job.state)}: {one_line(job.reason)}"
        raise failed(exit_of(job), what, job.log_folder or job.id, _after_failure(job))


def read_record(file: str) -> Any:
    """Return a valid job record as plain values, with absolute folders.

    Raises CliError (rejected).
    """
    source = "stdin" if file == "-" else file
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        text = data.decode("utf-8")
    except FileNotFoundError:
        raise failed(Exit.USAGE, "the file does not exist", file, "give a job record") from None
    except UnicodeDecodeError:
        raise failed(
            Exit.REJECTED, "the record is not UTF-8 text", source, "save it as UTF-8"
        ) from None
    except OSError as error:
        what = f"the file cannot be read: {error.strerror}"
        raise failed(Exit.USAGE, what, file, "give a job record that you can read") from None
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
    """Return the problem of a field with the record's file in it."""
    source, path = ("stdin" if file == "-" else file), problem.where
    if not path or path.startswith(source):
        return Problem(problem.what, path or source, problem.remedy)
    return Problem(f"{path}: {problem.what}", source, problem.remedy)


def _until_ended(daemon: Client, job: JobView) -> JobView:
    """Return the job once it has ended, or is paused for an error; people's pauses may end."""
    while job.state not in job_tables.ENDED and not is_paused_for_error(job):
        time.sleep(WAIT_POLL_S)
        job = daemon.get(JobView, f"/v1/jobs/{job.id}")
    return job


def _after_failure(job: JobView) -> str:
    if is_paused_for_error(job):
        return f"repair the program, then: reshape resume {job.id} (or: reshape cancel {job.id})"
    return f"reshape logs {job.id}, reshape describe {job.id}"
