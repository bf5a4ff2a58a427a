"""No text from elsewhere acts on a terminal, whichever command prints it."""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import re
import sys
import types
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from reshape_controller.cli import streams
from reshape_controller.cli.exits import CliError, Exit
from reshape_controller.cli.main import build
from reshape_controller.cli.safe_text import UNSAFE, LogFilter, safe
from reshape_controller.cli.serve.up import start_logging
from reshape_controller.http.json_text import to_json
from reshape_controller.store.protocol import ProfileRow
from reshape_gpu import answers
from reshape_gpu.client import Client
from reshape_gpu.errors import Problem
from reshape_gpu.requests import Request, Response
from reshape_gpu.target import Target
from reshape_sidecar import codec

CLI = Path(__file__).resolve().parents[3] / "controller" / "reshape_controller" / "cli"
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\rab\x00\x7f\u202egnp.exe\u2066\u200f\u061c\u2028z\b"
STYLE = re.compile("\x1b\\[[0-9;]*m")
"""The colours that the command itself gives a table on a terminal."""
READS = (
    ("get",),
    ("get", "-o", "json"),
    ("get", "-o", "yaml"),
    ("get", "job"),
    ("describe", "job"),
    ("explain", "job", "--all"),
    ("gpus",),
    ("status",),
    ("timeline",),
    ("logs", "job"),
    ("cancel", "job"),
    ("pause", "job"),
    ("resume", "job"),
    ("pin", "job", "1"),
    ("drain", "host"),
    ("clear", "gpu"),
)


def filled(kind: Any, name: str = "") -> Any:
    """Return a value of a type with hostile text in each of its texts."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is str:
        return "training" if name == "phase" else name and f"{name}{EVIL}"
    if origin in (typing.Union, types.UnionType):
        return filled(next(part for part in parts if part is not type(None)), name)
    if origin is tuple and parts[0] is ProfileRow:  # its values are checked when they are made
        return ()
    if origin is tuple:
        return () if parts[0] is str and parts[-1] is not ... else (filled(parts[0], name),)
    if origin is dict:
        return {}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        fields = dataclasses.fields(kind)
        return kind(**{each.name: filled(hints[each.name], each.name) for each in fields})
    if isinstance(kind, type) and issubclass(kind, bool):
        return True
    if isinstance(kind, type) and issubclass(kind, (int, float)):
        return kind(1)
    return next(iter(kind))  # an enum


class Terminal(io.TextIOWrapper):
    """A stream that says that it is a terminal, and takes any character."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return True

    def text(self) -> str:
        found: io.BytesIO = typing.cast(io.BytesIO, self.buffer)
        return found.getvalue().decode()


Streams = tuple[Terminal, Terminal]


@contextmanager
def terminal() -> Iterator[Streams]:
    """A terminal as stdout and stderr; pytest replaces those between a fixture and its test."""
    found = Terminal(), Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", found[0])
        patch.setattr(sys, "stderr", found[1])
        yield found


@pytest.fixture(autouse=True)
def hostile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A daemon whose every text is hostile."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm-256color")

    def exchange(self: Client, _: Request[Any]) -> Response:
        head = {"reshape-log-attempt": "1", "reshape-log-next": "1", "reshape-log-size": "1"}
        return Response(EVIL.encode(), {**head, "reshape-log-ended": "true"})

    def value(_: Target, request: Request[Any], found: Response) -> Any:
        if request.kind is Response:
            return found
        return codec.from_value(request.kind, json.loads(to_json(filled(request.kind))))

    monkeypatch.setattr(Client, "_exchange", exchange)
    monkeypatch.setattr(answers, "value", value)
    there = Target("http://127.0.0.1:1", "token", "", "")
    monkeypatch.setattr("reshape_controller.cli.options.found", lambda *_: there)


@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_no_command_lets_a_text_of_the_daemon_act_on_the_terminal(
    words: tuple[str, ...],
) -> None:
    with terminal() as streams_of_command:
        build(words)(list(words), standalone_mode=False)
    for stream in streams_of_command:
        assert UNSAFE.findall(STYLE.sub("", stream.text())) == []
    shows_no_text = words[0] in ("status", "timeline", "pin", "logs")
    assert "owned" in streams_of_command[0].text() or shows_no_text


@pytest.mark.parametrize(("form", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_json_and_yaml_keep_the_value_of_a_hostile_text(form: str, load: Any) -> None:
    with terminal() as (out, _):
        build(["gpus"])(["gpus", "-o", form], standalone_mode=False)
    assert load(out.text())["gpus"][0]["reason"] == f"reason{EVIL}"


def test_an_error_shows_no_hostile_text() -> None:
    with terminal() as (_, err):
        streams.say(CliError(Exit.REJECTED, Problem(EVIL, EVIL, EVIL)).text())
    text = err.text()
    assert UNSAFE.findall(text) == []
    assert text.count("owned") == 3


def test_the_daemons_own_log_shows_no_hostile_text() -> None:
    with terminal() as (_, err):
        start_logging("info")
        try:
            structlog.get_logger().warning("inbox-refused", kind=EVIL)
            try:
                raise ValueError(EVIL)
            except ValueError:
                structlog.get_logger().exception("request-failed")
        finally:
            structlog.reset_defaults()
    text = err.text()
    assert text.count("owned") == 2
    assert UNSAFE.findall(STYLE.sub("", text)) == []


def test_no_text_makes_a_line_of_the_daemons_own_log_nor_does_a_strangers_handshake() -> None:
    forged = "x\n2026-01-01T00:00:00.000000Z [info     ] token-created user=eve"
    with terminal() as (_, err):
        start_logging("info")
        try:
            structlog.get_logger().warning("inbox-refused", reason=forged)
            logging.getLogger("tornado.general").warning("SSL Error on %s", EVIL)
        finally:
            structlog.reset_defaults()
    (line,) = err.text().strip().splitlines()
    assert "inbox-refused" in line
    assert "token-created" in line


@given(st.text())
def test_safe_text_has_no_unsafe_character_and_loses_no_other(text: str) -> None:
    found = safe(text)
    assert UNSAFE.search(found) is None
    assert found == "".join(each for each in text if not UNSAFE.match(each))


PARTS = st.lists(
    st.sampled_from(["a", "é", "\n", "\r", "\x1b", "\x1b[1m", "\x1b]0;t", "\x07", "[", "\u202e"])
)


@example(["\r", "\x1b[1m", "\n"], [2])
@example(["\r", "\x1b[1m", "\n"], [5])
@example(["\x1b]0;t", "\x1b[1m", "\x07"], [9])
@given(PARTS, st.lists(st.integers(0, 60)))
def test_a_log_reads_the_same_however_it_is_cut(parts: list[str], cuts: list[int]) -> None:
    data = "".join(parts).encode()
    whole = LogFilter().feed(data, last=True)
    log, found, begin = LogFilter(), "", 0
    for cut in sorted({min(cut, len(data)) for cut in cuts}):
        found += log.feed(data[begin:cut])
        begin = cut
    found += log.feed(data[begin:], last=True)
    assert found == whole
    assert UNSAFE.search(found) is None


def test_a_log_loses_colours_titles_and_overwriting() -> None:
    data = b"\x1b[1mEpoch 1\x1b[0m\r\n\x1b]0;title\x07 10%\r 20%\rdone \xff\n\x08\x1bc"
    assert LogFilter().feed(data, last=True) == "Epoch 1\n 10%\ndone \ufffd\nc"


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"\r 0%\r 50%\r100%\nsaved\n", "100%\nsaved\n"),
        (b"loading\r 0%\r 50%", "loading\n 50%"),
        (b"\r 50%\r     \rsaved\n", "saved\n"),
        (b"\r 50%\r     \n", " 50%\n"),
        (b"a\r\nb\r\n\r\nc", "a\nb\n\nc"),
        (b"a\r", "a\n"),
        (b"\r\r\n", "\n"),
        (b"a\r \r\nb", "a\nb"),
    ],
)
def test_a_progress_bar_is_one_line_with_its_last_state(data: bytes, shown: str) -> None:
    assert LogFilter().feed(data, last=True) == shown


def test_a_bar_that_is_followed_can_be_looked_at_and_no_state_comes_twice() -> None:
    log = LogFilter()
    assert log.newest_state() == ""
    assert (log.feed(b"\r 0%"), log.feed(b"\r 10%")) == ("", "")
    assert (log.newest_state(), log.newest_state()) == (" 10%\n", "")
    assert log.feed(b"\r100%\rdone") == ""
    assert log.feed(b"\nsaved\n") == "done\nsaved\n"
    assert log.feed(b"\r 0%") == ""
    assert log.newest_state() == " 0%\n"
    assert log.feed(b"\nsaved\n") == "saved\n"


def test_a_log_that_is_followed_waits_for_no_more_than_a_sequence() -> None:
    log = LogFilter()
    assert log.feed(b"ready\x1bc more") == "readyc more"
    assert log.feed(b"next \x1b[3") == "next "
    assert log.feed(b"1mred") == "red"


def test_only_one_place_writes_to_the_terminal() -> None:
    """A command that writes by itself would write unsafe text."""
    writes = re.compile(r"std(out|err)\.(buffer\.)?write|\bprint\(|typer\.(s?echo)|Console\(")
    found = {
        str(path.relative_to(CLI))
        for path in CLI.rglob("*.py")
        if writes.search(path.read_text().replace("out.print(", "").replace(").print(", ""))
    }
    files_and_figures = {"profiles/commands.py", "profiles/exchange.py", "replays/workload.py"}
    assert found == {"output.py", "streams.py", "jobs/commands.py"} | files_and_figures
