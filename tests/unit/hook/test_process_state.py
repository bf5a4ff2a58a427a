"""Callbacks lose the flags that describe threads, files and profilers of the process before."""

from __future__ import annotations

import io
import os
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from reshape_sidecar.hook import callback_state, process_state
from reshape_sidecar.hook.values import Reader, Writer


class Opening:
    """Opens its file at its first step."""

    file: io.StringIO

    def __init__(self) -> None:
        self.first = True
        self.lines = 0

    def step(self) -> None:
        if self.first:
            self.file = io.StringIO()
            self.first = False
        self.lines += 1
        self.file.write("line")


class Measuring:
    """Measures memory from its first step on."""

    def __init__(self) -> None:
        self.active = False

    def step(self) -> None:
        if not self.active:
            tracemalloc.start()
            self.active = True


class Locking:
    """Has the same lock in each process, and a flag of its own."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.improved = False


class Phases:
    """Works in a thread, and knows its phase by a text and a number."""

    def __init__(self) -> None:
        self.phase = "idle"
        self.running = 0
        self.steps = 0
        self.lock = threading.Lock()

    def step(self) -> None:
        self.steps += 1
        if self.phase == "idle":
            self.lock.acquire()
            self.phase, self.running = "working", 1


class Descriptors:
    """Holds numbers of its process, and what it read of a file."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.process = 0
        self.text = ""

    def step(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDONLY)
        self.process = os.getpid()
        self.text = path.read_text()


def stored(folder: Path, callback: object) -> list[Any]:
    writer = Writer()
    states = callback_state.capture([callback], writer)
    writer.write(folder, {"callbacks": states})
    return states


def restore(folder: Path, callback: object, states: list[Any]) -> None:
    callback_state.restore([callback], states, Reader(folder))


def test_a_callback_opens_its_file_again_and_keeps_its_count(tmp_path: Path) -> None:
    before, after = Opening(), Opening()
    before.step()
    before.step()
    restore(tmp_path, after, stored(tmp_path, before))
    after.step()
    assert (after.lines, after.file.getvalue()) == (3, "line")


def test_a_phase_that_code_sets_to_constants_counts_as_a_flag(tmp_path: Path) -> None:
    before, after, again = Phases(), Phases(), Phases()
    before.step()
    states = stored(tmp_path, before)
    restore(tmp_path, after, states)
    assert (after.phase, after.running, after.steps) == ("idle", 0, 1)
    again.lock.acquire()
    restore(tmp_path, again, states)
    assert (again.phase, again.running, again.steps) == ("working", 1, 1)


def test_numbers_of_the_process_stay_those_of_the_new_one(tmp_path: Path) -> None:
    before, after = Descriptors(-1), Descriptors(77)
    path = tmp_path / "text"
    path.write_text("some")
    before.step(path)
    os.close(before.descriptor)
    restore(tmp_path, after, stored(tmp_path, before))
    assert (after.descriptor, after.process, after.text) == (77, 0, "some")


def test_a_callback_whose_file_is_closed_keeps_its_flags(tmp_path: Path) -> None:
    before, after = Opening(), Opening()
    before.step()
    before.file.close()
    restore(tmp_path, after, stored(tmp_path, before))
    assert (after.first, after.lines) == (False, 1)


def test_a_callback_starts_its_profiler_again(tmp_path: Path) -> None:
    before, after = Measuring(), Measuring()
    before.step()
    states = stored(tmp_path, before)
    tracemalloc.stop()
    restore(tmp_path, after, states)
    assert not after.active


def test_a_callback_that_has_its_lock_again_keeps_its_flags(tmp_path: Path) -> None:
    before, after = Locking(), Locking()
    before.improved = True
    restore(tmp_path, after, stored(tmp_path, before))
    assert after.improved


def test_flags_of_an_older_checkpoint_are_restored(tmp_path: Path) -> None:
    before, after = Opening(), Opening()
    before.step()
    states = stored(tmp_path, before)
    del states[0]["process"], states[0]["profiles"]
    restore(tmp_path, after, states)
    assert not after.first


@pytest.mark.parametrize("value", [1, "text", [1, {"a": 2}], io.StringIO, None, len])
def test_a_plain_value_has_no_condition(value: object) -> None:
    assert process_state.condition(value) is None


def test_a_writer_in_a_dictionary_has_the_condition_of_the_writer() -> None:
    writers: dict[str, io.StringIO] = {"train": io.StringIO()}
    assert process_state.condition(writers) == "_io.StringIO"
    writers["train"].close()
    assert process_state.condition(writers) is None
