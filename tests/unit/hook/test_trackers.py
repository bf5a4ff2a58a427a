"""Trackers at a restart: rows that Lightning removes stay, and steps made again are shown once."""

from __future__ import annotations

import csv
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reshape_sidecar.hook import trackers
from reshape_sidecar.hook.imports import ImportWatch

WRITER = "tensorboardX.writer"
LOGGER = "lightning.pytorch.loggers.csv_logs"


class SessionLog:
    START = 1

    def __init__(self, status: int) -> None:
        self.status = status


class Event:
    def __init__(self, step: int = 0, **fields: Any) -> None:
        self.step, self.fields = step, fields


class FileWriter:
    """Writes what TensorBoard reads into a list: a step, or the first that is hidden."""

    def __init__(self, logdir: str) -> None:
        self.logdir, self.pending = logdir, 0
        self.events: list[Any] = []

    def get_logdir(self) -> str:
        return self.logdir

    def add_event(self, event: Any, step: Any = None, walltime: Any = None) -> None:
        self.events.append(("hides", event.step) if "session_log" in event.fields else step)
        self.pending += 1

    def flush(self) -> None:
        self.pending = 0


def rows_of(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


class Files:
    """The file system of a writer, as far as it is used."""

    def isfile(self, path: str) -> bool:
        return Path(path).is_file()

    def open(self, path: str, mode: str, newline: str) -> Any:
        return open(path, mode, newline=newline)

    def mv(self, old: str, new: str) -> None:
        Path(old).replace(new)


class ExperimentWriter:
    """Removes the file of a run before, and appends rows, as Lightning's does."""

    def __init__(self, log_dir: str) -> None:
        self.metrics: list[dict[str, Any]] = []
        self.metrics_keys: list[str] = []
        self._fs, self.metrics_file_path = Files(), f"{log_dir}/metrics.csv"
        self._check_log_dir_exists()

    def _check_log_dir_exists(self) -> None:
        Path(self.metrics_file_path).unlink(missing_ok=True)

    def log(self, *steps: int, **more: int) -> None:
        self.metrics += [{"step": step, **more} for step in steps]

    def save(self) -> None:
        if not self.metrics:
            return
        path = Path(self.metrics_file_path)
        rows = rows_of(path) if path.exists() else []
        self.metrics_keys = sorted({*self.metrics_keys, *set().union(*self.metrics)})
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, self.metrics_keys)
            writer.writeheader()
            writer.writerows([*rows, *self.metrics])
        self.metrics = []


class Process:
    """A process of the script with its own modules, which goes on from a checkpoint."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, checkpoint: Path | None) -> None:
        monkeypatch.setattr(trackers, "TRACKERS", trackers.Trackers())
        self.file_writer: Any = type("FileWriter", (FileWriter,), {})
        self.csv_writer: Any = type("ExperimentWriter", (ExperimentWriter,), {})
        for name, parts in (
            (WRITER, {"FileWriter": self.file_writer, "Event": Event, "SessionLog": SessionLog}),
            (LOGGER, {"ExperimentWriter": self.csv_writer}),
        ):
            module = types.ModuleType(name)
            vars(module).update(parts)
            monkeypatch.setitem(sys.modules, name, module)
        imports = ImportWatch()
        trackers.watch(imports, lambda: checkpoint)
        sys.meta_path.remove(imports)  # it waits for the modules that this test has not


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Process]:
    return lambda checkpoint=None: Process(monkeypatch, checkpoint)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The folder of a checkpoint."""
    folder = tmp_path / "step-10"
    folder.mkdir()
    return folder


def rows(folder: Path) -> list[str]:
    return [row["step"] for row in rows_of(folder / "metrics.csv")]


def test_a_csv_file_has_each_step_once_after_a_kill(
    start: Any, saved: Path, tmp_path: Path
) -> None:
    """Steps 11 to 13 are in the file, and no checkpoint has them."""
    writer = start().csv_writer(str(tmp_path))
    writer.log(*range(1, 11))
    trackers.TRACKERS.write(saved)  # which flushes
    writer.log(11, 12, 13, val=1)
    writer.save()
    writer = start(saved).csv_writer(str(tmp_path))
    assert rows(tmp_path) == [str(step) for step in range(1, 11)]
    writer.log(*range(11, 21))
    writer.save()
    assert rows(tmp_path) == [str(step) for step in range(1, 21)]


def test_a_reader_of_the_file_sees_no_moment_without_its_rows(
    start: Any, saved: Path, tmp_path: Path
) -> None:
    """A planned reshape: nothing is behind the checkpoint, and the file is not touched."""
    writer = start().csv_writer(str(tmp_path))
    writer.log(1, 2)
    trackers.TRACKERS.write(saved)
    before = (tmp_path / "metrics.csv").stat().st_ino
    start(saved).csv_writer(str(tmp_path))
    assert (tmp_path / "metrics.csv").stat().st_ino == before


def test_a_file_that_no_checkpoint_names_is_replaced_as_without_reshape(
    start: Any, saved: Path, tmp_path: Path
) -> None:
    (tmp_path / "metrics.csv").write_text("step\n99\n")
    start(saved).csv_writer(str(tmp_path))
    assert not (tmp_path / "metrics.csv").exists()


def test_a_second_writer_of_a_file_replaces_it_and_a_restart_keeps_what_is_its(
    start: Any, saved: Path, tmp_path: Path
) -> None:
    """A script that fits twice into one folder; the restart comes in the second fit."""
    kind = start().csv_writer
    kind(str(tmp_path)).log(1, 2)
    second = kind(str(tmp_path))
    second.log(7, 8)
    trackers.TRACKERS.write(saved)
    kind = start(saved).csv_writer
    kind(str(tmp_path))
    trackers.TRACKERS.write(saved)
    assert rows(tmp_path) == ["7", "8"]
    kind(str(tmp_path))
    assert rows(tmp_path) == ["7", "8"]
    kind(str(tmp_path))
    assert not (tmp_path / "metrics.csv").exists()


def test_tensorboard_hides_what_a_killed_process_wrote_after_the_checkpoint(
    start: Any, saved: Path, tmp_path: Path
) -> None:
    """Also in the folders of single lines, which `add_scalars` makes; no other folder hides any."""
    kind = start().file_writer
    writers = [kind(str(tmp_path / name)) for name in ("run", "run/loss_train")]
    for writer in writers:
        for step in range(1, 11):
            writer.add_event(Event(), step)
    trackers.TRACKERS.write(saved)
    assert [writer.pending for writer in writers] == [0, 0]
    writers[0].add_event(Event(), 13)
    kind = start(saved).file_writer
    for name in ("run", "run/loss_train"):
        assert ("hides", 11) in kind(str(tmp_path / name)).events
        assert kind(str(tmp_path / name)).events == []  # a second writer, as of a second fit
    assert kind(str(tmp_path / "other")).events == []


def test_a_step_of_its_own_unit_hides_nothing_that_no_process_makes_again(
    start: Any, saved: Path, tmp_path: Path
) -> None:
    """The script counts samples, and evaluations by epoch: the highest number before counts."""
    writer = start().file_writer(str(tmp_path))
    for step in (64, 128, 1, 192):
        writer.add_event(Event(), step)
    trackers.TRACKERS.write(saved)
    assert ("hides", 193) in start(saved).file_writer(str(tmp_path)).events


def test_a_tracker_that_fails_ends_no_save(start: Any, saved: Path, tmp_path: Path) -> None:
    writer = start().file_writer(str(tmp_path))
    writer.add_event(Event(), 3)
    writer.flush = lambda: (_ for _ in ()).throw(OSError("no room"))
    trackers.TRACKERS.write(saved)
    assert (saved / trackers.FILE).exists()


def test_a_writer_that_never_empties_its_queue_holds_up_one_save_for_a_moment(
    start: Any, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trackers, "FLUSH_MAX_S", 0.05)
    writer, ends = start().file_writer(str(tmp_path)), threading.Event()
    writer.add_event(Event(), 3)
    calls: list[int] = []

    def flush() -> None:
        calls.append(1)
        ends.wait()

    writer.flush = flush
    for _ in range(2):
        trackers.TRACKERS.write(saved)
    ends.set()
    assert calls == [1]


def test_a_script_without_trackers_adds_nothing_to_a_checkpoint(start: Any, saved: Path) -> None:
    start()
    trackers.TRACKERS.write(saved)
    assert list(saved.iterdir()) == []
