"""A copy of training's output on init's own output, which is the log of its pod.

Does: copies what a log file gains, in small parts and without a wait: a reader that hangs, or an
output that is full, costs lines of the copy and no time of init. The file itself has every line.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from reshape_sidecar import foreign
from reshape_sidecar.init import logs

PART_BYTES = 1 << 16
BEHIND_BYTES_MAX = 1 << 20
"""A copy that is further behind the file leaves out what is between, and says so."""


class Echo:
    """Copies what ``path`` gains from now on to the descriptor ``output``."""

    def __init__(self, path: Path, output: int) -> None:
        self._path = path
        self._output = output
        self._waiting = b""
        """Read from the file, and not written yet."""
        try:
            self._offset = path.stat().st_size
        except OSError:
            self._offset = 0
        os.set_blocking(output, False)

    def copy(self) -> bool:
        """Copy a part of what is new; return whether there is more to copy now."""
        with contextlib.suppress(OSError):
            if not self._waiting:
                self._waiting = self._next()
            if not self._waiting:
                return False
            written = os.write(self._output, self._waiting)
            self._waiting = self._waiting[written:]
            return True
        return False

    def copy_all(self) -> None:
        """Copy what is new, as far as the output takes it without a wait."""
        for _ in range(BEHIND_BYTES_MAX // PART_BYTES * 2):
            if not self.copy():
                break

    def _next(self) -> bytes:
        fd = foreign.descriptor(self._path, follow=False)
        try:
            size = os.fstat(fd).st_size
            if size < self._offset:  # its file system has no holes, and init has emptied it
                self._offset = 0
            begin = max(self._offset, size - BEHIND_BYTES_MAX, logs.data_begin(fd, size))
            note = b""
            if begin > self._offset:
                text = f"\n[reshape] {begin - self._offset} bytes are only in {self._path.name}\n"
                note = text.encode()
            part = os.pread(fd, PART_BYTES, begin)
            self._offset = begin + len(part)
            return note + part
        finally:
            os.close(fd)
