"""Log files stay within their bound and keep their newest lines; whatever is gone is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reshape_sidecar.init import logs

BOUND = 2 * logs.HOLE_BYTES


@pytest.fixture
def without_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_free_oldest", lambda log, bytes_max: False)


def test_of_a_long_log_the_oldest_part_is_freed_and_its_writer_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "training.log"
    writer = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    written = os.urandom(5 * BOUND + 7)
    os.write(writer, written)
    logs.rotate(tmp_path, BOUND)
    os.write(writer, b"new")
    size = len(written) + 3
    assert path.stat().st_size == size, "offsets stay"
    begin = logs.data_begin(writer, size)
    assert size - 3 - BOUND - logs.HOLE_BYTES < begin <= size - 3 - BOUND
    assert path.read_bytes()[begin:] == (written + b"new")[begin:]
    assert path.stat().st_blocks * 512 < 2 * BOUND
    assert [entry.name for entry in tmp_path.iterdir()] == ["training.log"]
    os.close(writer)


def test_without_holes_a_long_log_is_copied_and_says_what_is_gone(
    tmp_path: Path, without_holes: None
) -> None:
    path = tmp_path / "training.log"
    writer = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(writer, b"x" * 100)
    logs.rotate(tmp_path, 60)
    os.write(writer, b"new")
    os.close(writer)
    assert (tmp_path / "training.log.1").read_bytes() == b"x" * 60
    line, _, rest = path.read_bytes().partition(b"\n")
    assert rest == b"new"
    assert line.decode() == (
        "[reshape] the 100 bytes before this line were moved: bytes 40 to 100 are in "
        "training.log.1, at least 0 newer ones are lost"
    )


def test_lines_that_are_written_during_the_copy_are_counted(
    tmp_path: Path, without_holes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "training.log"
    path.write_bytes(b"x" * 100)
    copy_end = logs._copy_end

    def slow(log: Path, copy: Path, bytes_max: int) -> int:
        end = copy_end(log, copy, bytes_max)
        with path.open("ab") as writer:
            writer.write(b"y" * 17)
        return end

    monkeypatch.setattr(logs, "_copy_end", slow)
    logs.rotate(tmp_path, 60)
    assert b"the 117 bytes before this line" in path.read_bytes()
    assert b"at least 17 newer ones are lost" in path.read_bytes()


def test_at_the_end_a_log_that_grew_since_the_newest_look_keeps_its_end(
    tmp_path: Path, without_holes: None
) -> None:
    path = tmp_path / "training.log"
    path.write_bytes(b"old" * 100 + b"new")
    path.chmod(0o640)
    logs.keep_end(tmp_path, 3)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640
    logs.keep_end(tmp_path, 3)
    assert [entry.name for entry in tmp_path.iterdir()] == ["training.log"]


@pytest.mark.parametrize("bound", [logs.rotate, logs.keep_end])
def test_a_log_within_its_bound_is_left_alone(tmp_path: Path, bound: object) -> None:
    (tmp_path / "agent.log").write_bytes(b"x" * 100)
    assert callable(bound)
    bound(tmp_path, 100)
    assert (tmp_path / "agent.log").read_bytes() == b"x" * 100
    assert [entry.name for entry in tmp_path.iterdir()] == ["agent.log"]
