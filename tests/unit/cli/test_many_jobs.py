"""Requests for several jobs, lists in an order, and the exit code of a job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from reshape_controller.cli.exits import CliError, Exit
from reshape_controller.cli.jobs import commands, listing
from reshape_controller.cli.jobs.following import end_as, exit_of
from reshape_controller.cli.jobs.listing import Sort, Wanted, listed
from reshape_controller.cli.jobs.selection import Choice, jobs_of
from reshape_controller.cli.main import COMMANDS, EXAMPLES, GROUPS, SUMMARIES, build
from reshape_controller.http.json_text import to_json
from reshape_gpu.client import Client
from reshape_gpu.errors import NotFound
from reshape_gpu.requests import Request, Response
from reshape_gpu.target import Target
from reshape_gpu.values import IdentityView, JobPage, JobView

runner = CliRunner()


def job(name: str, state: str = "running", **fields: Any) -> JobView:
    return JobView(
        f"{name}-1", name, "ada", state, "none", "", 1, fields.pop("at_s", 0.0), **fields
    )


class Daemon(Client):
    """A daemon with some jobs, which notes what it is asked."""

    def __init__(self, *jobs: JobView) -> None:
        self._join(Target("http://127.0.0.1:1", "token", "", ""))
        self.found = jobs
        self.posts: list[str] = []
        self.queries: list[dict[str, Any]] = []
        self.refuses = ""
        self.role = "operator"

    def _exchange(self, request: Request[Any]) -> Response:
        if request.method == "POST":
            self.posts.append(request.path)
            if self.refuses and self.refuses in request.path:
                raise NotFound.of(f"unknown job in {request.path}")
            return Response(to_json(self.found[0]).encode(), {})
        if request.kind is IdentityView:
            return Response(
                to_json(IdentityView("ada", self.role, None, 0, True, True)).encode(), {}
            )
        query = {key: value for key, value in request.query.items() if value is not None}
        self.queries.append(query)
        found = self.found
        if query.get("name"):
            found = tuple(each for each in found if each.name.startswith("lr-"))
        return Response(to_json(JobPage(found, len(found), None)).encode(), {})


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    found = Daemon(job("lr-a"), job("lr-b"), job("other"))
    monkeypatch.setattr(commands, "client", lambda _: found)
    monkeypatch.setattr(listing, "client", lambda _: found)
    return found


def run(*words: str) -> Any:
    return runner.invoke(build(words[:1]), list(words))


def test_a_pattern_stands_for_each_job_that_fits_and_has_not_ended(daemon: Daemon) -> None:
    assert jobs_of(daemon, Choice(["lr-*", "lr-a-1", "x"]), "cancel") == ("lr-a-1", "lr-b-1", "x")
    assert daemon.queries[0]["name"] == "lr-*"
    assert daemon.queries[0]["state"] == listing.LIVE_STATES


def test_several_jobs_are_cancelled_only_after_a_yes(daemon: Daemon) -> None:
    refused = run("cancel", "lr-*")
    assert isinstance(refused.exception, CliError)
    assert "cancel 2 jobs: lr-a-1, lr-b-1?" in refused.exception.text()
    assert daemon.posts == []
    assert run("cancel", "lr-*", "--yes").exit_code == 0
    assert daemon.posts == ["/v1/jobs/lr-a-1/cancel", "/v1/jobs/lr-b-1/cancel"]


def test_a_single_named_job_is_cancelled_without_a_question(daemon: Daemon) -> None:
    assert run("cancel", "lr-a").exit_code == 0
    assert daemon.posts == ["/v1/jobs/lr-a/cancel"]


@pytest.mark.parametrize("words", [("--all",), ("--state", "running"), ("lr-*",)])
def test_with_a_users_token_several_jobs_are_the_users_own(
    daemon: Daemon, words: tuple[str, ...]
) -> None:
    daemon.role = "user"
    assert run("cancel", *words, "--yes").exit_code == 0
    assert daemon.queries[0]["user"] == "ada"
    daemon.role, daemon.queries = "operator", []
    assert run("cancel", *words, "--yes").exit_code == 0
    assert "user" not in daemon.queries[0]


def test_a_refusal_does_not_keep_the_request_from_the_other_jobs(daemon: Daemon) -> None:
    daemon.refuses = "one"
    done = run("pause", "one", "two", "-o", "json")
    assert daemon.posts == ["/v1/jobs/one/pause", "/v1/jobs/two/pause"]
    assert isinstance(done.exception, CliError)
    assert done.exception.code is Exit.NOT_FOUND
    assert [each["id"] for each in json.loads(done.stdout)] == ["lr-a-1"]


def test_resume_all_is_for_paused_jobs_alone(daemon: Daemon) -> None:
    assert run("resume", "--all").exit_code == 0
    assert daemon.queries[0]["state"] == "halted"


@pytest.mark.parametrize(
    ("choice", "code"),
    [
        (Choice(), Exit.USAGE),
        (Choice(["a"], every=True), Exit.USAGE),
        (Choice(["a/b"]), Exit.NOT_FOUND),
        (Choice(["?"]), None),
    ],
)
def test_a_choice_that_is_none_is_refused(
    daemon: Daemon, choice: Choice, code: Exit | None
) -> None:
    if code is None:
        assert jobs_of(daemon, choice, "cancel")
        return
    with pytest.raises(CliError) as refused:
        jobs_of(daemon, choice, "cancel")
    assert refused.value.code is code
    assert daemon.queries == []


def test_a_list_is_sorted_and_jobs_without_the_figure_come_last() -> None:
    jobs = (
        job("a", predicted_end_at_s=9.0, priority=1),
        job("b", priority=5),
        job("c", predicted_end_at_s=3.0, position=2),
    )
    names = {
        sort: [each.name for each in listed(Daemon(*jobs), Wanted(sort=sort)).jobs] for sort in Sort
    }
    assert names[Sort.ETA] == ["c", "a", "b"]
    assert names[Sort.PRIORITY] == ["b", "a", "c"]
    assert names[Sort.POSITION] == ["c", "a", "b"]
    assert [each.name for each in listed(Daemon(*jobs), Wanted(sort=Sort.NAME, limit=2)).jobs] == [
        *("a", "b")
    ]


def test_json_lines_have_a_job_each(daemon: Daemon) -> None:
    done = run("get", "--state", "running", "-o", "jsonl")
    assert [json.loads(line)["name"] for line in done.stdout.splitlines()] == [
        *("lr-a", "lr-b", "other")
    ]
    assert daemon.queries[0] == {"limit": listing.SHOW_MAX, "state": "running"}


def test_the_wide_table_has_user_priority_position_and_end(daemon: Daemon) -> None:
    daemon.found = (job("a", priority=7, position=3, predicted_end_at_s=daemon.now_s + 61),)
    done = runner.invoke(build(["get"]), ["get", "-o", "wide"], env={"COLUMNS": "120"})
    head, row = done.stdout.splitlines()
    assert [head.split()[at] for at in (6, 7, 8, 9)] == ["USER", "PRIORITY", "POSITION", "ETA"]
    assert " ada " in row
    assert " 7 " in row
    assert " 3 " in row
    assert "ends 1m01s" in row


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"state": "completed", "exit_code": 3}, 0),
        ({"state": "failed", "exit_code": 3}, 3),
        ({"state": "failed", "exit_code": 137, "signal": "SIGKILL"}, 137),
        ({"state": "failed", "exit_code": -9, "signal": "SIGKILL"}, 137),
        ({"state": "failed"}, 1),
        ({"state": "halted", "exit_code": 4}, 4),
        ({"state": "cancelled", "exit_code": 3}, 1),
    ],
)
def test_a_command_ends_as_its_job(fields: dict[str, Any], code: int) -> None:
    view = job("a", **fields)
    assert exit_of(view) == code
    with pytest.raises(typer.Exit) as ended:
        end_as(view)
    assert ended.value.exit_code == code


def test_h_shows_the_help_of_the_program_and_of_a_command() -> None:
    assert "Usage: reshape" in runner.invoke(build(), ["-h"]).stdout
    assert "Example: reshape cancel" in run("cancel", "-h").stdout


def test_every_command_and_subcommand_has_an_example() -> None:
    groups = {
        f"{group.name} {command.name}"
        for group in build().registered_groups
        for command in (group.typer_instance or typer.Typer()).registered_commands
    }
    assert {name.split()[0] for name in groups} == set(GROUPS)
    assert {*COMMANDS, *groups} == set(EXAMPLES)


def test_the_help_of_the_program_imports_no_command_and_is_the_same() -> None:
    whole, short = (runner.invoke(build(names_alone=each), ["-h"]).stdout for each in (False, True))
    assert whole == short
    loaded = (
        "import sys; print([name for name in sys.modules if 'reshape_controller.cli.' in name])"
    )
    code = f"from reshape_controller.cli.main import build; build(names_alone=True); {loaded}"
    names = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert ".about" in names
    assert ".jobs" not in names


def test_the_help_of_each_command_begins_with_its_summary() -> None:
    assert [*COMMANDS, *GROUPS] == list(SUMMARIES)
    for name, summary in SUMMARIES.items():
        text = " ".join(run(name, "-h").stdout.split())
        assert f"{summary} " in text


def test_a_command_behind_two_dashes_is_called() -> None:
    command = Path(sys.executable).with_name("reshape")
    assert subprocess.check_output([command, "--", "version"], text=True).startswith("reshape ")


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_help_of_each_command_has_an_example_of_options_that_it_has(name: str) -> None:
    words = name.split()
    example = EXAMPLES[name].partition(" -- ")[0].split()
    assert example[: len(words) + 1] == ["reshape", *words]
    text = run(*words, "-h").stdout
    assert f"Example: reshape {name}" in " ".join(text.split())
    options = [word for word in example if word.startswith("-")]
    assert [option for option in options if option not in text] == []


def test_a_shell_completes_the_commands() -> None:
    shell = {"_RESHAPE_COMPLETE": "complete_bash", "COMP_WORDS": "reshape ca", "COMP_CWORD": "1"}
    done = runner.invoke(build(), [], env=shell, prog_name="reshape")
    assert done.stdout.split() == ["cancel"]
    shell |= {"COMP_WORDS": "reshape logs --fol", "COMP_CWORD": "2"}
    command = Path(sys.executable).with_name("reshape")
    completed = subprocess.check_output([command], env=os.environ | shell, text=True)
    assert completed.split() == ["--follow"]
