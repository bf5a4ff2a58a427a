"""Training's output on the log of its pod: every line in order, and never a wait."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reshape_sidecar.init.echo import BEHIND_BYTES_MAX, Echo


class Pipe:
    """Init's output, as the runtime reads it."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)

    def read(self) -> bytes:
        found = b""
        while True:
            try:
                part = os.read(self.reader, 1 << 16)
            except BlockingIOError:
                return found
            found += part


@pytest.fixture
def pipe() -> Pipe:
    return Pipe()


def append(log: Path, data: bytes) -> None:
    with log.open("ab") as file:
        file.write(data)


def test_what_training_prints_is_copied_in_order(tmp_path: Path, pipe: Pipe) -> None:
    log = tmp_path / "training.log"
    echo = Echo(log, pipe.writer)
    assert not echo.copy(), "there is no file yet"
    append(log, b"epoch 1\n")
    echo.copy()
    append(log, b"epoch 2\n")
    echo.copy_all()
    assert pipe.read() == b"epoch 1\nepoch 2\n"
    assert not echo.copy()


def test_what_an_earlier_container_printed_is_not_repeated(tmp_path: Path, pipe: Pipe) -> None:
    log = tmp_path / "training.log"
    append(log, b"before\n")
    echo = Echo(log, pipe.writer)
    append(log, b"after\n")
    echo.copy_all()
    assert pipe.read() == b"after\n"


def test_a_reader_that_hangs_costs_init_no_time_and_the_file_no_line(
    tmp_path: Path, pipe: Pipe
) -> None:
    log = tmp_path / "training.log"
    echo = Echo(log, pipe.writer)
    lines = b"".join(b"%07d\n" % number for number in range(3 * BEHIND_BYTES_MAX // 8))
    append(log, lines)
    echo.copy_all()  # it would wait here for ever
    assert log.read_bytes() == lines
    copied = pipe.read()
    while True:
        echo.copy_all()
        part = pipe.read()
        if not part:
            break
        copied += part
    assert b"bytes are only in training.log" in copied, "it says what it left out"
    assert copied.endswith(lines[-800:])


def test_a_log_that_was_emptied_is_copied_from_its_beginning(tmp_path: Path, pipe: Pipe) -> None:
    log = tmp_path / "training.log"
    echo = Echo(log, pipe.writer)
    append(log, b"a long line before\n")
    echo.copy_all()
    log.write_bytes(b"new\n")
    echo.copy_all()
    assert pipe.read().endswith(b"new\n")


def test_a_hole_is_not_copied_as_zeros(tmp_path: Path, pipe: Pipe) -> None:
    log = tmp_path / "training.log"
    echo = Echo(log, pipe.writer)
    with log.open("wb") as file:
        file.truncate(1 << 18)
        file.seek(1 << 18)
        file.write(b"the end\n")
    echo.copy_all()
    assert b"\0" not in pipe.read()
