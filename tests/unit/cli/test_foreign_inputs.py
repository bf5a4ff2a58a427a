"""A path that leads to no regular file, or to an endless one, is an error at once and names it."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from reshape_controller.cli.exits import CliError
from reshape_controller.cli.show.runs import runs_in
from reshape_controller.http import logs
from reshape_controller.replay import trace_rows
from reshape_gpu.errors import ClientError
from tests.support.replay_bed import reshape

ANSWER_S = 5.0
"""The commands answer within milliseconds; a busy machine gets more."""


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(4 << 30)


def refused(found: Result, text: str) -> None:
    """Fail unless a command ended with an error for users that has this text."""
    assert isinstance(found.exception, ClientError), found.output
    shown = " ".join(f"{p.where} {p.what}" for p in found.exception.problems)
    assert text in shown


COMMANDS = {
    "submit": ["submit"],
    "workload": ["replay", "--workload"],
    "profiles": ["replay", "--workload", "one", "--profiles"],
    "costs": ["replay", "--workload", "one", "--costs"],
    "device-truth": ["replay", "--workload", "one", "--device-truth"],
    "convert": ["workload", "convert", *("--submit", "a", "--gpus", "b", "--duration", "c")],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("make", [fifo, endless, huge])
def test_a_command_refuses_what_it_could_wait_for_or_read_for_ever(
    tmp_path: Path, command: str, make: Callable[[Path], None]
) -> None:
    path = tmp_path / "input.csv"
    make(path)
    began_s = time.monotonic()
    found = reshape(*COMMANDS[command], str(path))
    assert time.monotonic() - began_s < ANSWER_S
    refused(found, "input.csv")


@pytest.mark.parametrize("name", ["store.sqlite", "log/adaptive-0.jsonl"])
def test_show_follows_no_link_that_leaves_the_folder(tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside.sqlite"
    sqlite3.connect(outside).close()
    path = tmp_path / "shown" / name
    path.parent.mkdir(parents=True)
    path.symlink_to(outside)
    with pytest.raises(CliError, match="leaves the folder") as refused:
        runs_in(tmp_path / "shown")
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("name", ["store.sqlite", "log/adaptive-0.jsonl"])
def test_show_refuses_a_fifo_at_once(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    began_s = time.monotonic()
    found = reshape("show", str(tmp_path))
    assert time.monotonic() - began_s < ANSWER_S
    refused(found, str(path))


def test_show_reads_the_logs_of_no_linked_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    sqlite3.connect(tmp_path / "store.sqlite").close()
    (tmp_path / "jobs").symlink_to(tmp_path / "elsewhere")
    (run,) = runs_in(tmp_path)
    assert run.logs is None


def test_a_log_is_not_read_through_a_link_of_its_job(tmp_path: Path) -> None:
    """A job's user may write its folder, and the daemon may read what that user may not."""
    home = tmp_path / "home"
    other = home / "jobs" / "job-2" / "attempt-1" / "logs"
    other.mkdir(parents=True)
    (other / "training.log").write_text("another user's\n")
    own = home / "jobs" / "job-1" / "attempt-1" / "logs"
    own.mkdir(parents=True)
    (own / "training.log").write_text("own\n")
    (tmp_path / "link").symlink_to(home)  # of the home itself, by whom the daemon belongs to
    reached = tmp_path / "link" / "jobs" / "job-1" / "attempt-1" / "logs"

    def read() -> bytes | None:
        within = logs.without_links(reached, "job-1")
        chunk = logs.read(reached / "training.log", 1, None, 10, within)
        return None if chunk is None else chunk.data

    assert read() == b"own\n"
    own.rename(own.with_name("old"))
    own.symlink_to(other)
    assert read() is None


def test_a_line_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_rows, "LINE_CHARS_MAX", 1000)
    path = tmp_path / "jobs.jsonl"
    path.write_text('{"a": "' + "x" * 2000)
    found = reshape(*COMMANDS["convert"], str(path))
    refused(found, "a line of more than 1000 characters")
