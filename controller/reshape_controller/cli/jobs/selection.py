"""The jobs that a request is for: named ones, patterns, or all in some states.

Does: finds them, asks before several are destroyed, sends the request for each, and reports every
refusal.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import typer

from reshape_controller.cli.exits import CliError, Exit, code_of, failed
from reshape_controller.cli.jobs.listing import LIVE_STATES, Wanted, listed
from reshape_controller.cli.output import Output, emit, note, write_json
from reshape_gpu.client import Client
from reshape_gpu.errors import ClientError, Problem, Unreachable
from reshape_gpu.values import KEY, JobView

PATTERN = re.compile(r"[A-Za-z0-9._*?-]{1,128}")
SHOWN = 10
"""Number of jobs that a question names."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The jobs that a command was given."""

    names: Sequence[str] = ()
    every: bool = False
    state: str | None = None
    user: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether the daemon decides which jobs these are."""
        return self.every or bool(self.state or self.user) or any(map(_is_pattern, self.names))


def jobs_of(daemon: Client, choice: Choice, command: str) -> tuple[str, ...]:
    """Return ids and names of the chosen jobs, each once. Raises CliError if there is none."""
    if choice.names and (choice.every or choice.state or choice.user):
        what = "jobs are named, and chosen by an option as well"
        raise failed(Exit.USAGE, what, "JOB", "give names, or --all, --state, --user")
    if not choice.names and not choice.is_open:
        remedy = f"reshape {command} JOB..., or --all, --state or --user; reshape get lists jobs"
        raise failed(Exit.USAGE, "no job is named", "JOB", remedy)
    found: dict[str, None] = {}
    user = choice.user or (own_user(daemon) if choice.is_open else None)
    for name in choice.names:
        if not _is_pattern(name):
            _check(name)
            found[name] = None
            continue
        wanted = Wanted(state=LIVE_STATES, user=user, name=name, every=True)
        ids = [job.id for job in listed(daemon, wanted).jobs]
        if not ids:
            what = f"no job that has not ended fits {name!r}"
            raise failed(Exit.NOT_FOUND, what, "JOB", "reshape get lists the jobs")
        found |= dict.fromkeys(ids)
    if not choice.names:
        wanted = Wanted(state=choice.state or LIVE_STATES, user=user, every=True)
        found = dict.fromkeys(job.id for job in listed(daemon, wanted).jobs)
    return tuple(found)


def own_user(daemon: Client) -> str | None:
    """Return the user whose jobs alone a token may change; None: those of all users."""
    identity = daemon.whoami()
    return identity.name if identity.role == "user" else None


def _is_pattern(name: str) -> bool:
    return PATTERN.fullmatch(name) is not None and ("*" in name or "?" in name)


def _check(name: str) -> None:
    if not re.fullmatch(KEY, name):
        what = f"{name!r:.80} is not a valid job name, id or pattern"
        raise failed(Exit.NOT_FOUND, what, "JOB", "reshape get lists the jobs")


def confirm(jobs: Sequence[str], what: str, *, yes: bool) -> None:
    """Ask before something is done that cannot be undone. Raises CliError without a yes."""
    if yes or not jobs:
        return
    shown = ", ".join(jobs[:SHOWN]) + (f" and {len(jobs) - SHOWN} more" if jobs[SHOWN:] else "")
    question = f"{what} {len(jobs)} job{'s' if len(jobs) > 1 else ''}: {shown}?"
    if not sys.stdin.isatty():
        raise failed(Exit.USAGE, question, "stdin is no terminal", "give --yes to do it")
    note(question)
    if not typer.confirm("Go on?", err=True):
        raise typer.Exit(Exit.FAILED)


def act(
    jobs: Sequence[str],
    ask: Callable[[str], JobView],
    shown: Output,
    said: Callable[[JobView], str],
) -> None:
    """Send a request for each job and print the responses. Raises CliError with every refusal."""
    views: list[JobView] = []
    problems: list[Problem] = []
    code: int = Exit.OK
    for job in jobs:
        try:
            views.append(ask(job))
        except ClientError as error:
            if isinstance(error, Unreachable) or len(jobs) == 1:
                raise
            code = code or code_of(error)
            problems += error.problems
    _print(views, shown, said, one=len(jobs) == 1)
    if problems:
        raise CliError(code, *problems)


def _print(
    views: list[JobView], shown: Output, said: Callable[[JobView], str], *, one: bool
) -> None:
    lines = "\n".join(f"{view.id}: {said(view)}" for view in views) or "no job"
    if shown is Output.JSONL:
        for view in views:
            write_json(view)
    elif one:
        emit(views[0], shown, lambda: lines)
    else:
        emit(tuple(views), shown, lambda: lines)
