"""The files in which a process leaves its step: what is read, and what is passed over."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reshape_sidecar import step_file
from reshape_sidecar.agent.process_exit import saved_by_itself
from reshape_sidecar.agent.spec import AttemptSpec, DeviceMode


def test_the_step_of_the_newest_process_is_read_back(tmp_path: Path) -> None:
    step_file.create(tmp_path, None)
    assert (tmp_path / step_file.NAME).stat().st_size == step_file.BYTES
    assert step_file.newest_step(tmp_path) == 0
    step_file.write(tmp_path, 3, 484)
    step_file.create(tmp_path, None)  # a later agent
    assert (step_file.step_of(tmp_path, 3), step_file.step_of(tmp_path, 4)) == (484, 0)
    assert step_file.newest_step(tmp_path) == 484


@pytest.mark.parametrize(
    ("generation", "step"), [(1, 1 << step_file.STEP_BITS), (1 << step_file.GENERATION_BITS, 1)]
)
def test_a_number_that_has_no_room_is_not_written(
    tmp_path: Path, generation: int, step: int
) -> None:
    step_file.create(tmp_path, None)
    step_file.write(tmp_path, generation, step)
    assert step_file.newest_step(tmp_path) == 0


def test_a_process_whose_agent_made_no_file_makes_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        step_file.write(tmp_path, 1, 1)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_someone_cut_is_no_step_and_can_be_written_again(tmp_path: Path) -> None:
    step_file.create(tmp_path, None)
    (tmp_path / step_file.NAME).write_bytes(b"12")
    assert step_file.newest_step(tmp_path) == 0
    step_file.write(tmp_path, 1, 7)
    assert step_file.step_of(tmp_path, 1) == 7


@pytest.mark.parametrize(
    ("text", "step"),
    [
        (b"20\n", 20),
        (b"20", 20),
        (b"0\n", 0),
        (b"9" * 18 + b"\n", 10**18 - 1),
        (b"9" * 19, None),
        (b"", None),
        (b"\n", None),
        (b"-1\n", None),
        (b"1e3\n", None),
        (b" 20\n", None),
        (b"20\n30\n", None),
        ("\u0661\u0662\n".encode(), None),
        (b"\xff\n", None),
        (b"20\n" + bytes(1 << 20), None),
    ],
)
def test_a_saved_step_is_a_decimal_number_and_a_newline(
    tmp_path: Path, text: bytes, step: int | None
) -> None:
    (tmp_path / step_file.NAME).write_bytes(text)
    assert step_file.saved(tmp_path) == step


@pytest.mark.parametrize("kind", ["nothing", "a link", "a pipe", "a folder", "no right to read"])
def test_nothing_but_a_regular_file_is_read_and_nobody_waits(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "checkpoints"
    place.mkdir()
    path = place / step_file.NAME
    if kind == "a link":
        (tmp_path / "elsewhere").write_text("20\n")
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    elif kind == "no right to read":
        place.rmdir()
        place.write_text("no folder")
    assert step_file.saved(place) is None


def test_a_number_in_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / step_file.NAME)
    descriptor = os.open(tmp_path / step_file.NAME, os.O_RDWR)
    try:
        os.write(descriptor, b"20\n")
        assert step_file.saved(tmp_path) is None
    finally:
        os.close(descriptor)


def spec(checkpoints: Path) -> AttemptSpec:
    return AttemptSpec("job-1", 1, "a", ("x",), "/", str(checkpoints), "u", 1, DeviceMode.SIMULATED)


@pytest.mark.parametrize(
    ("step", "before", "saved"),
    [
        (0, None, 100),
        (0, 100, 100),
        (30, 90, 100),
        (130, 100, 100),
        (30, 100, None),
    ],
    ids=[
        "no step is reported",
        "nor any saved since",
        "saved a moment ago",
        "saved before this process began",
        "of an earlier training in the same folder",
    ],
)
def test_what_an_earlier_training_left_is_not_taken_for_a_save(
    tmp_path: Path, step: int, before: int | None, saved: int | None
) -> None:
    (tmp_path / step_file.NAME).write_text("100\n")
    assert saved_by_itself(spec(tmp_path), step, before) == saved
