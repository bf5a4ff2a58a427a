"""The command on terminals: narrow ones, without colour, in a pipe, with the daemon down."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
import unicodedata
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
import yaml

from tests.support.daemon_bed import Bed
from tests.support.daemon_bed import bed as make_bed
from tests.support.json_schema import problems

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
READS = (
    ("get",),
    ("describe", "elastic"),
    ("explain", "elastic"),
    ("explain", "elastic", "--all"),
    ("gpus",),
    ("timeline",),
    ("config", "show"),
)


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """A job that reshaped, and one that failed with much to say."""
    for made in make_bed(tmp_path_factory.mktemp("terminal")):
        made.up()
        elastic = made.submit("elastic", steps=100_000)
        made.reaches(elastic, "running")
        newcomer = made.submit("newcomer", steps=20, optional_gpus=[2], max_wait_s=1)
        made.reaches(newcomer, "completed")
        yield made
        made.reshape("cancel", elastic)
        made.reaches(elastic, "cancelled")


def on_terminal(bed: Bed, columns: int, *words: str, **environment: str) -> str:
    """Return the output of a command on a terminal of so many columns."""
    with _started(bed, columns, *words, **environment) as (process, ours):
        read = b"".join(_parts(ours))
    assert process.returncode == 0
    return read.decode().replace("\r\n", "\n")


@contextmanager
def _started(
    bed: Bed, columns: int, *words: str, **environment: str
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The command on a terminal of its own, and our end of that."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    env = bed.environment(TERM="xterm-256color", **environment)
    del env["COLUMNS"]
    command = [sys.executable, "-m", "reshape_controller.cli.main", *words]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, env=env, cwd=bed.folder
    ) as process:
        os.close(theirs)
        try:
            yield process, ours
        except BaseException:
            process.kill()  # else a test that fails waits for it for ever
            raise
    os.close(ours)


def _parts(ours: int) -> Iterator[bytes]:
    """Yield output as it comes, until the other end is closed."""
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:
            return
        if not more:
            return
        yield more


def width(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(glyph) in "WF" else 1 for glyph in line)


@pytest.mark.parametrize("columns", [60, 100])
@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_no_line_is_longer_than_the_terminal(
    bed: Bed, words: tuple[str, ...], columns: int
) -> None:
    lines = ESCAPE.sub("", on_terminal(bed, columns, *words)).splitlines()
    assert lines
    assert [line for line in lines if width(line) > columns] == []


@pytest.mark.parametrize("words", [("get",), ("gpus",), ("timeline",)], ids=" ".join)
def test_a_narrow_table_cuts_no_figure(bed: Bed, words: tuple[str, ...]) -> None:
    """Of a list only the words of its last column, WHY, may be cut."""
    lines = ESCAPE.sub("", on_terminal(bed, 60, *words)).splitlines()
    figures = lines[0].index("WHY") if "WHY" in lines[0] else None
    assert [line for line in lines if "…" in line[:figures]] == []


def test_a_narrow_list_still_has_ids_states_and_sizes(bed: Bed) -> None:
    text = ESCAPE.sub("", on_terminal(bed, 60, "get"))
    for job in bed.json("get")["jobs"]:
        (line,) = (line for line in text.splitlines() if line.startswith(job["id"]))
        assert job["state"] in line


@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_no_colour_is_used_where_none_is_wanted(bed: Bed, words: tuple[str, ...]) -> None:
    shown = on_terminal(bed, 100, *words, NO_COLOR="1")
    colours = re.findall(r"\x1b\[(?:\d+;)*(?:3[0-7]|38|4[0-7]|9[0-7])[;m]", shown)
    assert colours == []


def test_a_terminal_has_colour_and_a_pipe_has_none_and_the_words_are_the_same(bed: Bed) -> None:
    shown = on_terminal(bed, 100, "gpus")
    piped = bed.reshape("gpus").stdout
    assert "\x1b[" in shown
    assert "\x1b" not in piped
    assert ESCAPE.sub("", shown).split() == piped.split()


@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_a_pipe_gets_words_only_and_no_blanks_at_the_ends_of_lines(
    bed: Bed, words: tuple[str, ...]
) -> None:
    piped = bed.reshape(*words, TERM="xterm-256color").stdout
    assert "\x1b" not in piped
    assert [line for line in piped.splitlines() if line != line.rstrip()] == []


SCHEMAS = {
    ("get",): "JobPage",
    ("get", "elastic"): "JobView",
    ("describe", "elastic"): "JobView",
    ("explain", "elastic"): "Decisions",
    ("gpus",): "GpuList",
    ("timeline",): "Timeline",
}


@pytest.mark.parametrize("words", SCHEMAS, ids=" ".join)
def test_json_is_what_the_published_description_says(bed: Bed, words: tuple[str, ...]) -> None:
    address = json.loads((bed.home / "address.json").read_text())
    token = (bed.home / "token").read_text().strip()
    request = urllib.request.Request(
        f"{address['url']}/v1/openapi.json", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request) as answer:
        root = json.load(answer)
    schema = root["components"]["schemas"][SCHEMAS[words]]
    assert problems(bed.json(*words), schema, root) == []
    assert problems({"jobs": 3}, schema, root) != []


@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_yaml_and_json_are_the_same_document(bed: Bed, words: tuple[str, ...]) -> None:
    shown = yaml.safe_load(bed.reshape(*words, "-o", "yaml").stdout)
    assert type(shown) is type(bed.json(*words))
    assert _shape(shown) == _shape(bed.json(*words))


def _shape(value: object) -> object:
    """Names and nesting without values, which change from one look to the next."""
    if isinstance(value, dict):
        return {name: _shape(inner) for name, inner in value.items()}
    return None


def test_a_reader_that_leaves_early_is_no_error(bed: Bed) -> None:
    command = [sys.executable, "-m", "reshape_controller.cli.main", "get", "-o", "json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=bed.environment()
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()
    assert process.returncode == 0
    assert errors == b""


def test_a_watch_in_a_pipe_shows_the_table_at_once_and_without_escapes(bed: Bed) -> None:
    with bed.start("get", "--watch") as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().decode() for _ in range(3)]
        process.kill()
    assert lines[0].startswith("JOB")
    assert "\x1b" not in "".join(lines)
    assert any("elastic" in line for line in lines)


def test_the_version_is_a_command_and_an_option(bed: Bed) -> None:
    by_option, by_command = bed.reshape("--version"), bed.reshape("version")
    assert by_option.stdout == by_command.stdout != ""
    assert by_option.returncode == 0


def test_a_watch_outlives_a_restart_of_the_daemon(bed: Bed) -> None:
    address = json.loads((bed.home / "address.json").read_text())
    with bed.start("get", "--watch") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"JOB")
        bed.stop()
        time.sleep(2.0)  # it asks every second: it meets nobody
        assert process.poll() is None
        bed.up("--port", str(urlsplit(address["url"]).port))
        bed.submit("later", steps=1)
        shown = b""
        while b"later" not in shown and process.poll() is None:
            shown += process.stdout.readline()
        assert b"later" in shown
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_watch_that_is_ended_gives_the_terminal_its_cursor_back(
    bed: Bed, number: signal.Signals
) -> None:
    with _started(bed, 100, "get", "--watch") as (process, ours):
        read = b""
        while b"elastic" not in read:
            read += os.read(ours, 65536)
        process.send_signal(number)
        read += b"".join(_parts(ours))
    assert read.rfind(b"\x1b[?25h") > read.rfind(b"\x1b[?25l") >= 0
    assert process.returncode == 128 + number


def test_without_utf_8_the_timeline_is_plain_ascii(bed: Bed) -> None:
    piped = bed.reshape("timeline", PYTHONIOENCODING="ascii", LANG="C")
    assert piped.returncode == 0, piped.stderr
    assert piped.stdout.isascii()
    assert "#" in piped.stdout


def test_with_the_daemon_down_every_command_says_so_and_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    for bed in make_bed(tmp_path_factory.mktemp("down")):
        bed.up()
        bed.stop()
        record = bed.record("late", "print()", command=["python", "late.py"])
        before = sorted((path, path.stat().st_mtime_ns) for path in bed.home.rglob("*"))
        for words in (*READS[:-1], ("submit", str(record)), ("cancel", "x"), ("drain", "local")):
            done = bed.reshape(*words)
            assert done.returncode == 4, words
            assert done.stdout == ""
            assert "the daemon is not running" in done.stderr
            assert "remedy: start it: reshape up" in done.stderr
        assert sorted((p, p.stat().st_mtime_ns) for p in bed.home.rglob("*")) == before
