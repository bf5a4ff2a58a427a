"""The page that a group of ranks and its parent share: whole numbers in memory.

Does: holds how far each rank is, and the step after which all of them stop. Each number has one
writer. It is no file of a file system, so no kill leaves one and no full disk refuses it. Standard
library only.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

BYTES = 8
"""Of each number."""
_TARGET, _COMMITTED, _FAILED, _SAVED, _SAVE_AFTER, _DECIDED, _HEAD = range(7)
_BEGUN, _PARKED, _FINISHED, _RANK = range(4)
"""Numbers of a rank, and how many it has."""


class Page:
    """One mapping of the page. Steps count from 1, and 0 means none."""

    def __init__(self, path: Path, ranks: int) -> None:
        """Map the file at ``path``. Raises OSError."""
        self.path, self.ranks = path, ranks
        with open(path, "r+b") as file:
            size = BYTES * (_HEAD + _RANK * ranks)
            self._numbers = memoryview(mmap.mmap(file.fileno(), size)).cast("q")

    @classmethod
    def create(cls, ranks: int) -> Page:
        """Return a page of zeros; processes of this user map it by its path. Raises OSError.

        It ends with this process and those that have mapped it.
        """
        descriptor = os.memfd_create("reshape-ranks")
        os.ftruncate(descriptor, BYTES * (_HEAD + _RANK * ranks))
        return cls(Path(f"/proc/{os.getpid()}/fd/{descriptor}"), ranks)

    @property
    def target(self) -> int:
        """The step after which every rank parks; the parent writes it."""
        return self._numbers[_TARGET]

    @target.setter
    def target(self, step: int) -> None:
        self._numbers[_TARGET] = step

    @property
    def committed(self) -> int:
        """The step after which all ranks are parked; the parent writes it."""
        return self._numbers[_COMMITTED]

    @committed.setter
    def committed(self, step: int) -> None:
        self._numbers[_COMMITTED] = step

    @property
    def failed(self) -> int:
        """The committed step whose save failed; rank 0 writes it."""
        return self._numbers[_FAILED]

    @failed.setter
    def failed(self, step: int) -> None:
        self._numbers[_FAILED] = step

    @property
    def saved(self) -> int:
        """The committed step that is saved; rank 0 writes it."""
        return self._numbers[_SAVED]

    @saved.setter
    def saved(self, step: int) -> None:
        self._numbers[_SAVED] = step

    @property
    def save_after(self) -> int:
        """The step after which every rank takes part in a save and goes on; rank 0 writes it."""
        return self._numbers[_SAVE_AFTER]

    @save_after.setter
    def save_after(self, step: int) -> None:
        self._numbers[_SAVE_AFTER] = step

    @property
    def decided(self) -> int:
        """The step after which rank 0 has last decided on the next save; rank 0 writes it."""
        return self._numbers[_DECIDED]

    @decided.setter
    def decided(self, step: int) -> None:
        self._numbers[_DECIDED] = step

    def begun(self, rank: int) -> int:
        """Return the step that ``rank`` makes or has made; 0: it takes no part yet."""
        return self._numbers[_at(rank, _BEGUN)]

    def begin(self, rank: int, step: int) -> None:
        """Note that ``rank`` makes ``step`` from now on; it is not parked any more."""
        self._numbers[_at(rank, _PARKED)] = 0
        self._numbers[_at(rank, _BEGUN)] = step

    def parked(self, rank: int) -> int:
        """Return the step after which ``rank`` waits."""
        return self._numbers[_at(rank, _PARKED)]

    def park(self, rank: int, step: int) -> None:
        """Note that ``rank`` waits after ``step``, which it has begun."""
        self._numbers[_at(rank, _PARKED)] = step

    def is_finished(self, rank: int) -> bool:
        """Return whether ``rank`` has reached the end of training or of its script."""
        return bool(self._numbers[_at(rank, _FINISHED)])

    def finish(self, rank: int) -> None:
        """Note that ``rank`` has reached the end of training or of its script."""
        self._numbers[_at(rank, _FINISHED)] = 1

    def fail(self, rank: int) -> None:
        """Note that the script of ``rank`` fails, be it after the end of training."""
        self._numbers[_at(rank, _FINISHED)] = 0


def _at(rank: int, number: int) -> int:
    return _HEAD + rank * _RANK + number
