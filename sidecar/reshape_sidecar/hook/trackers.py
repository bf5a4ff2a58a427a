"""How far the trackers of a script were at a checkpoint, so that a restart goes on from there.

Does: has TensorBoard hide the events that a process wrote after the checkpoint it goes on from
(``purge_step``), and keeps the rows of Lightning's CSVLogger up to there, which Lightning removes.
Writers are flushed at each save, because no later process makes those steps again. Never: changes
what a script wrote before its first checkpoint, or into a folder that no checkpoint names. State:
of this process.

A step is whatever number the script gave: the highest one before the checkpoint counts, so events
that no later process makes again are never hidden, also where the numbers are epochs or samples.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import json
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from reshape_sidecar.hook.imports import ImportWatch
from reshape_sidecar.hook.log import complain

FILE = "reshape-trackers.json"
"""File of a checkpoint."""
TENSORBOARD = ("torch.utils.tensorboard.writer", "tensorboardX.writer")
CSV_LOGGERS = ("lightning.pytorch.loggers.csv_logs", "pytorch_lightning.loggers.csv_logs")
FLUSH_MAX_S = 5.0
"""Longest wait for a writer of events: one whose thread has died never empties its queue."""
NOT_FLUSHED = "the events of TensorBoard in {} are not on the disk after {:.0f} s; is it full?"


class Trackers:
    """The trackers of one process."""

    def __init__(self) -> None:
        self.find: Callable[[], Path | None] = lambda: None
        """Returns the checkpoint from which this process goes on, if no session has begun yet."""
        self._saved: dict[str, Any] | None = None
        """What the checkpoint says; None: it was not read yet."""
        self._steps: dict[str, int] = {}
        """Highest step in each folder of events."""
        self._purged: set[str] = set()
        self._rows: dict[str, tuple[int, int]] = {}
        """Of each CSV file the number of its writer in this process, and the rows it holds."""
        self._events: weakref.WeakSet[Any] = weakref.WeakSet()
        """Writers of events."""
        self._files: weakref.WeakSet[Any] = weakref.WeakSet()
        """Writers of CSV files."""

    def resume(self, checkpoint: Path | None) -> None:
        """Go on from ``checkpoint``; once only in a process."""
        if self._saved is not None:
            return
        self._saved = {}
        if checkpoint is not None:
            with contextlib.suppress(FileNotFoundError):
                self._saved = json.loads((checkpoint / FILE).read_bytes())
        self._steps = dict(self._saved.get("steps", {}))

    def write(self, folder: Path) -> None:
        """Flush the writers, and write how far they are into a checkpoint. Raises OSError."""
        for writer in list(self._events):
            flushing = threading.Thread(target=_try, args=(writer.flush,), daemon=True)
            flushing.start()
            flushing.join(FLUSH_MAX_S)
            if flushing.is_alive():
                self._events.discard(writer)
                complain(NOT_FLUSHED.format(writer.get_logdir(), FLUSH_MAX_S))
        for writer in list(self._files):
            _try(writer.save)
        saved = self._saved or {}
        rows = dict(saved.get("rows", {}))
        rows |= {path: now for path, now in self._rows.items() if now[0] >= rows.get(path, now)[0]}
        if self._steps or rows:
            (folder / FILE).write_text(json.dumps({"steps": self._steps, "rows": rows}))

    def _before(self) -> dict[str, Any]:
        if self._saved is None:
            self.resume(self.find())
        return self._saved or {}

    # -- TensorBoard ------------------------------------------------------------------------------

    def purge_step(self, folder: str) -> int | None:
        """Return the first step that the first writer of ``folder`` hides; None: it hides none."""
        highest = self._before().get("steps", {}).get(_absolute(folder))
        if highest is None or folder in self._purged:
            return None
        self._purged.add(folder)
        return int(highest) + 1

    def event_added(self, writer: Any, step: Any) -> None:
        """Note an event of ``step``."""
        self._events.add(writer)
        if step is not None:
            folder = _absolute(str(writer.get_logdir()))
            self._steps[folder] = max(int(step), self._steps.get(folder, int(step)))

    # -- Lightning's CSVLogger --------------------------------------------------------------------

    def keeps_rows(self, writer: Any) -> bool:
        """Leave a new writer the rows that its file had at the checkpoint; return whether there is
        one that has such a file."""
        path, fs = writer.metrics_file_path, writer._fs
        number = self._rows.get(_absolute(path), (-1, 0))[0] + 1
        last, rows = self._before().get("rows", {}).get(_absolute(path), (-1, 0))
        self._files.add(writer)
        self._rows[_absolute(path)] = (number, 0)
        if number > last or not fs.isfile(path):
            return False
        with fs.open(path, "r", newline="") as file:
            header, *lines = list(csv.reader(file)) or [[]]
        if number == last and len(lines) > rows:
            lines = lines[:rows]
            with fs.open(f"{path}.part", "w", newline="") as file:
                csv.writer(file).writerows([header, *lines])
            fs.mv(f"{path}.part", path)
        writer.metrics_keys = header
        self._rows[_absolute(path)] = (number, len(lines))
        return True

    def rows_added(self, writer: Any, count: int) -> None:
        """Note that a writer has appended ``count`` rows to its file."""
        number, rows = self._rows[_absolute(writer.metrics_file_path)]
        self._rows[_absolute(writer.metrics_file_path)] = (number, rows + count)


TRACKERS = Trackers()
"""Those of this process."""


def watch(imports: ImportWatch, find: Callable[[], Path | None]) -> None:
    """Patch the trackers that the script imports; ``find`` returns the checkpoint to go on from."""
    TRACKERS.find = find
    for name in TENSORBOARD:
        imports.after(name, _patch_tensorboard)
    for name in CSV_LOGGERS:
        imports.after(name, _patch_csv)


def _patch_tensorboard(module: ModuleType) -> None:
    kind = module.FileWriter
    init, add_event = kind.__init__, kind.add_event

    @functools.wraps(init)
    def begin(writer: Any, *args: Any, **kwargs: Any) -> None:
        init(writer, *args, **kwargs)
        if (step := TRACKERS.purge_step(str(writer.get_logdir()))) is not None:
            starts = module.SessionLog(status=module.SessionLog.START)
            add_event(writer, module.Event(step=step, file_version="brain.Event:2"))
            add_event(writer, module.Event(step=step, session_log=starts))

    @functools.wraps(add_event)
    def add(writer: Any, event: Any, step: Any = None, *args: Any, **kwargs: Any) -> None:
        add_event(writer, event, step, *args, **kwargs)
        TRACKERS.event_added(writer, step)

    kind.__init__, kind.add_event = begin, add


def _patch_csv(module: ModuleType) -> None:
    kind = module.ExperimentWriter
    check, save = kind._check_log_dir_exists, kind.save

    @functools.wraps(check)
    def check_log_dir_exists(writer: Any) -> None:
        if not TRACKERS.keeps_rows(writer):
            check(writer)

    @functools.wraps(save)
    def save_rows(writer: Any) -> None:
        count = len(writer.metrics)
        save(writer)
        TRACKERS.rows_added(writer, count)

    kind._check_log_dir_exists, kind.save = check_log_dir_exists, save_rows


def _try(call: Callable[[], object]) -> None:
    """Call what may fail: a tracker ends no save."""
    with contextlib.suppress(Exception):
        call()


def _absolute(path: str) -> str:
    """Return the name of a file or folder; that of another machine stays as it is."""
    return path if "://" in path else os.path.abspath(path)
