"""The command submit: a job record from a file or stdin to the daemon.

Does: check the record before it is sent, and wait for the job's end on request. It is a module of
its own because the checks of records take longer to import than all other commands together.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from reshape_controller.cli.exits import CliError, Exit, failed
from reshape_controller.cli.jobs.following import exit_of
from reshape_controller.cli.options import HomeOption, OutputOption, client, form, settings
from reshape_controller.cli.output import Output, emit, note, write_text
from reshape_controller.cli.words import duration, one_line, state_word
from reshape_controller.core.model import Framework, JobSpec
from reshape_controller.core.phrases import gpus
from reshape_controller.records import RecordInvalid, load_yaml, parse_record
from reshape_controller.records.aliases import canonical
from reshape_controller.records.array import ARRAY, members
from reshape_gpu import requests
from reshape_gpu.client import Client
from reshape_gpu.errors import Problem, RecordRejected
from reshape_gpu.locations import resolved
from reshape_gpu.values import ArrayJobs, JobView, Trial
from reshape_sidecar import foreign
from reshape_sidecar.wire import Processes


def submit(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="Job records (YAML or JSON); - reads stdin."),
    ],
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the jobs end, and exit as they do.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be decided, and when it starts.")
    ] = False,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Submit job records and print the ids of the jobs."""
    config = settings(home, output)
    records = [(file, read_record(file, arrays=True)) for file in files]
    daemon, shown = client(config), form(config)
    if dry_run:
        for file, record in records:
            _try_out(daemon, file, record, shown)
        return
    if len(records) == 1 and ARRAY not in records[0][1]:
        _submit_one(daemon, *records[0], shown, wait=wait)
        return
    jobs: list[str] = []
    for file, record in records:
        found = _submitted(daemon, file, record)
        jobs += found
        if shown.for_people:
            write_text("".join(f"{job}\n" for job in found))
    if not shown.for_people:
        emit(ArrayJobs(tuple(jobs)), shown, lambda: "")
    if wait:
        ended = [daemon.wait(job) for job in jobs]
        _end_as([job for job in ended if job.state != "completed"])


def _submitted(daemon: Client, file: str, record: Any) -> tuple[str, ...]:
    """Submit a record; return the ids of its jobs. Raises CliError."""
    try:
        if ARRAY in record:
            return daemon.ask(requests.submit_array(record)).jobs
        return (daemon.ask(requests.submit(record)).id,)
    except RecordRejected as error:
        raise RecordRejected(*(_in_file(file, p) for p in error.problems)) from None


def _submit_one(daemon: Client, file: str, record: Any, shown: Output, *, wait: bool) -> None:
    try:
        job = daemon.ask(requests.submit(record))
    except RecordRejected as error:
        raise RecordRejected(*(_in_file(file, p) for p in error.problems)) from None
    if shown.for_people:
        note(f"submitted; watch it: reshape get --watch, its log: reshape logs -f {job.id}")
    if wait:
        job = daemon.wait(job.id)
    emit(job, shown, lambda: job.id)
    if wait and job.state != "completed":
        _end_as([job])


def _end_as(jobs: list[JobView]) -> None:
    """End with the code of the first of the jobs, which did not complete, and name each."""
    if not jobs:
        return
    problems = [
        Problem(
            f"{job.id} is {state_word(job.state)}: {one_line(job.reason)}",
            job.log_folder or job.id,
            _after_failure(job),
        )
        for job in jobs
    ]
    raise CliError(exit_of(jobs[0]), *problems)


def _try_out(daemon: Client, file: str, record: Any, shown: Output) -> None:
    """Show what would be decided about a record; of an array, about its first member."""
    if ARRAY in record:
        record = members(record)[0]
    try:
        found = daemon.ask(requests.trial(record))
    except RecordRejected as error:
        raise RecordRejected(*(_in_file(file, p) for p in error.problems)) from None
    emit(found, shown, lambda: trial_text(found, daemon.now_s))


def trial_text(found: Trial, now_s: float) -> str:
    """Return what would be decided about a record, in lines."""
    lines = [f"{found.name} would wait: {one_line(found.reason)}"]
    if found.starts:
        where = f"{gpus(found.size)} of {' and '.join(found.hosts) or found.host}"
        lines = [f"{found.name} would start at once on {where}: {one_line(found.reason)}"]
    for change in found.changes:
        to = gpus(change.size_after) if change.size_after else "the queue (preempted)"
        lines.append(f"  {change.name}: {gpus(change.size_before)} to {to}")
    if found.position is not None:
        lines.append(f"  place in the queue: {found.position}")
    if found.predicted_start_at_s is not None and not found.starts:
        lines.append(f"  predicted start: in {duration(found.predicted_start_at_s - now_s)}")
    if found.predicted_end_at_s is not None:
        lines.append(f"  predicted end: in {duration(found.predicted_end_at_s - now_s)}")
    return "\n".join(lines)


def read_record(file: str, *, arrays: bool = False) -> Any:
    """Return a valid job record as plain values, with absolute folders.

    ``arrays``: it may stand for several jobs. Raises CliError (rejected).
    """
    source = "stdin" if file == "-" else file
    try:
        data = (
            foreign.bounded(sys.stdin.buffer, foreign.SETTINGS_BYTES_MAX, source)
            if file == "-"
            else foreign.read(file, foreign.SETTINGS_BYTES_MAX)
        )
        text = data.decode("utf-8")
    except FileNotFoundError:
        raise failed(Exit.USAGE, "the file does not exist", file, "give a job record") from None
    except UnicodeDecodeError:
        raise failed(
            Exit.REJECTED, "the record is not UTF-8 text", source, "save it as UTF-8"
        ) from None
    except OSError as error:
        what = f"the file cannot be read: {error.strerror}"
        remedy = "give a job record that you can read, or - to read it from standard input"
        raise failed(Exit.USAGE, what, file, remedy) from None
    folder = Path.cwd() if file == "-" else Path(file).absolute().parent
    try:
        value = load_yaml(text, source=source)
        if arrays and isinstance(value, dict) and ARRAY in value:
            return _array(value, folder)
        spec = parse_record(value, folder=folder)
    except RecordInvalid as error:
        found = [Problem(e.message, e.path, e.hint) for e in error.errors]
        raise CliError(Exit.REJECTED, *(_in_file(file, problem) for problem in found)) from None
    fields, _ = canonical(cast(dict[object, object], value))
    places = {"code": spec.code, "dataset": spec.dataset, "checkpoints": spec.checkpoints}
    return {**fields, **places, **_program((spec,))}


def _program(specs: Sequence[JobSpec]) -> dict[str, str]:
    """Return what the scripts of all ``specs`` say, for a daemon that may not read them."""
    if any(spec.framework is not Framework.PYTORCH for spec in specs):
        return {}
    is_per_gpu = all(spec.processes is Processes.PER_GPU for spec in specs)
    processes = {"processes": Processes.PER_GPU.value} if is_per_gpu else {}
    return {"framework": Framework.PYTORCH.value, **processes}


def _array(value: dict[object, object], folder: Path) -> Any:
    """Return a record with ``array``; all its members are valid. Raises RecordInvalid."""
    rest = {key: each for key, each in value.items() if key != ARRAY}
    fields, _ = canonical(rest)
    specs = [parse_record(each, folder=folder) for each in members({**fields, **_axes(value)})]
    places = {"code": specs[0].code, "dataset": specs[0].dataset}
    checkpoints = fields.get("checkpoints")
    if isinstance(checkpoints, str):
        places["checkpoints"] = resolved(checkpoints, folder)
    return {**fields, **places, **_program(specs), **_axes(value)}


def _axes(value: dict[object, object]) -> dict[str, object]:
    return {ARRAY: value[ARRAY]}


def _in_file(file: str, problem: Problem) -> Problem:
    """Return the problem of a field with the record's file in it."""
    source, path = ("stdin" if file == "-" else file), problem.where
    if not path or path.startswith(source):
        return Problem(problem.what, path or source, problem.remedy)
    return Problem(f"{path}: {problem.what}", source, problem.remedy)


def _after_failure(job: JobView) -> str:
    if job.is_paused_for_error:
        return f"repair the program, then: reshape resume {job.id} (or: reshape cancel {job.id})"
    return f"reshape logs {job.id}, reshape describe {job.id}"
