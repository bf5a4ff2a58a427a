"""The mark of a log: its newest acknowledged record, noted in a file outside of the store.

Does: tells at a start whether the store has lost acknowledged records. The mark is written after
the append that it names, so it is at the log's end or before it, never after it. It is not synced
at each append: a power cut may leave an older mark, which refuses less.

The file has two slots, written in turn, so that a torn write leaves the other one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from reshape_controller.store.digest import GENESIS
from reshape_sidecar import durable, foreign

SLOT_BYTES = 512
"""Size of a slot: a disk writes a sector of this size whole or not at all."""
SLOTS = 2
_CHECK_CHARS = 16
_NO_DIGEST = "-"


@dataclass(frozen=True, slots=True)
class Mark:
    """The newest record that was acknowledged; ``digest`` chains every record before it."""

    seq: int
    epoch: int
    """Highest epoch that any SideCar can know of: the next controller begins a higher one."""
    digest: str = GENESIS
    accepts_loss: bool = False
    """True until the next append, if an operator accepted that the log lost records."""

    def text(self) -> str:
        """Return the mark as one line without its end, with a checksum."""
        loss = "accepts-loss" if self.accepts_loss else "whole"
        body = f"{self.seq} {self.epoch} {self.digest or _NO_DIGEST} {loss}"
        return f"{body} {_check(body)}"


def parse(text: str) -> Mark | None:
    """Return the mark of a text of ``Mark.text``; None if it is torn, or no mark."""
    body, _, check = text.strip().rpartition(" ")
    words = body.split(" ")
    if check != _check(body) or len(words) != 4:
        return None
    seq, epoch, digest, loss = words
    if not (seq.isdigit() and epoch.isdigit()):
        return None
    digest = GENESIS if digest == _NO_DIGEST else digest
    return Mark(int(seq), int(epoch), digest, loss == "accepts-loss")


class MarkDamaged(Exception):
    """The file of a mark is there, and no slot of it can be read."""


class MarkFile:
    """The file ``path``. Only the process that may append to the log writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    def read(self) -> Mark | None:
        """Return the mark; None if there is no file. Raises MarkDamaged, OSError."""
        try:
            data = foreign.begin_of(self.path, SLOTS * SLOT_BYTES)
        except FileNotFoundError:
            return None
        slots = (data[at : at + SLOT_BYTES] for at in range(0, SLOTS * SLOT_BYTES, SLOT_BYTES))
        lines = (slot.partition(b"\n")[0].decode(errors="replace") for slot in slots)
        marks = [mark for mark in map(parse, lines) if mark is not None]
        if not marks:
            raise MarkDamaged(f"{self.path}: holds no readable mark")
        return max(marks, key=lambda mark: mark.seq)

    def write(self, mark: Mark) -> None:
        """Write a mark that is newer than the one in the file. It survives the end of this process,
        and a power cut once it is synced. Raises OSError."""
        if self._fd is None:
            self.replace(mark)
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
            return
        os.pwrite(self._fd, f"{mark.text()}\n".encode(), mark.seq % SLOTS * SLOT_BYTES)

    def replace(self, mark: Mark) -> None:
        """Make the file anew with this mark alone, durably, and whole or not at all. Raises
        OSError."""
        fresh = self.path.with_name(self.path.name + ".new")
        with contextlib.suppress(FileNotFoundError):
            fresh.unlink()
        fd = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(fd, f"{mark.text()}\n".encode(), mark.seq % SLOTS * SLOT_BYTES)
            os.ftruncate(fd, SLOTS * SLOT_BYTES)
            os.fsync(fd)
        finally:
            os.close(fd)
        fresh.replace(self.path)
        durable.sync_folder(self.path.parent)

    def sync(self) -> None:
        """Make the newest written mark durable. Raises OSError."""
        if self._fd is not None:
            os.fdatasync(self._fd)

    def close(self) -> None:
        """Close the file; a later write opens it again."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _check(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:_CHECK_CHARS]
