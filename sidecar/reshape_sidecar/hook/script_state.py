"""Names the state of the script that a restart loses: files held open, and objects of callbacks.

Does: looks again when a report or a save is due, and words each new finding once. The state is the
script's: the hook cannot restore it, so the trajectory is not exact from then on.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from reshape_sidecar.hook import caches, callback_state, open_files
from reshape_sidecar.hook.open_files import OpenFile
from reshape_sidecar.hook.script_objects import ScriptObjects
from reshape_sidecar.wire import Trajectory

Finding = tuple[str, Trajectory]
"""A reason against an exact trajectory, and the verdict that it gives at best."""
SHOWN_MAX = 5


class ScriptState:
    """The state of the script over all fit calls of this process."""

    def __init__(self, checkpoints: Path | None) -> None:
        self._checkpoints = checkpoints
        self._files_before: frozenset[open_files.Identity] = frozenset()
        self._files: set[str] = set()
        self._outside_since_s = 0.0
        """Since when no fit has run, as Unix time."""
        self._written_outside: set[str] = set()
        self._callbacks: list[Any] = []
        self._objects: ScriptObjects | None = None

    def script_begins(self) -> None:
        """Note the files that are open before the script runs, the hook's own among them."""
        self._files_before = open_files.identities()
        self._outside_since_s = time.time()

    def fit_begins(self, callbacks: list[Any], model: Any) -> None:
        """Note what the callbacks of a fit reach, after their ``on_train_begin``."""
        self._callbacks = callbacks
        self._objects = ScriptObjects(callbacks, model)
        self._written_outside = {
            file.path for file in self._open_files(()) if self._has_lines_again(file)
        }

    def fit_ended(self) -> None:
        """Note that the script goes on outside of a fit."""
        if any(file.appends for file in self._open_files(())):
            open_files.flush()
        self._outside_since_s = time.time()

    def _has_lines_again(self, file: OpenFile) -> bool:
        """Return whether the script appended to a file since the fit before; it does so again."""
        if not file.appends:
            return False
        open_files.flush()
        with contextlib.suppress(OSError):
            status = os.stat(file.path)
            return status.st_size > 0 and status.st_mtime > self._outside_since_s
        return False

    def capture(self) -> dict[str, Any]:
        """Return the numbers and texts that callbacks of the fit have bound to names."""
        return self._objects.capture() if self._objects is not None else {}

    def restore(self, saved: dict[str, Any]) -> None:
        """Restore what ``capture`` returned for the fit that has begun."""
        if self._objects is not None:
            self._objects.restore(saved)

    def skip_fit(self, callbacks: list[Any], model: Any, saved: dict[str, Any]) -> None:
        """Restore what ``capture`` returned at the end of a fit that is skipped."""
        if saved.get("bound"):
            ScriptObjects(callbacks, model).restore(saved)

    def findings(self, datasets: Iterable[Any]) -> Iterator[Finding]:
        """Yield what was found since the last look; ``datasets``: the pipeline of the fit."""
        changed = self._objects.changed() if self._objects is not None else []
        if changed:
            yield (
                f"callbacks change objects of the script ({_listing(changed)}), which begin again "
                "at each start: keep numbers, texts or NumPy arrays in attributes of a callback, or"
                " make the object a part of the model",
                Trajectory.UNKNOWN,
            )
        files = [
            file
            for file in self._open_files(datasets)
            if file.path not in self._files
            and (not file.appends or file.path in self._written_outside)
        ]
        self._files.update(file.path for file in files)
        for appends, verb, verdict in (
            (False, "is truncated", Trajectory.UNKNOWN),
            (True, "gets the lines outside of the fit again", Trajectory.STEPS_ONLY),
        ):
            paths = [_shown(file.path) for file in files if file.appends == appends]
            if paths:
                yield (
                    f"the script holds files open for writing ({_listing(paths)}), and such a file "
                    f"{verb} at each start: open it for each write with mode 'a', in a callback",
                    verdict,
                )

    def _open_files(self, datasets: Iterable[Any]) -> list[OpenFile]:
        ours = callback_state.files_of_keras(self._callbacks)
        stems = tuple(filter(None, map(caches.file_of, datasets)))
        found = open_files.of_script(self._files_before, self._checkpoints, ours)
        return [file for file in found if not file.path.startswith(stems)]


def _listing(names: list[str]) -> str:
    more = [f"{len(names) - SHOWN_MAX} more"] if len(names) > SHOWN_MAX else []
    return ", ".join([*(name.replace(";", ",") for name in names[:SHOWN_MAX]), *more])


def _shown(path: str) -> str:
    here = os.getcwd() + os.sep
    return path.removeprefix(here)
