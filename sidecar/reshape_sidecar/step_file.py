"""How far a training process has come, in small files that outlive it.

Does: the process writes its step into a file of its attempt's run folder, at most once a second and
without a sync; the agent reads it, and so does that of the next attempt where it sees the folder.
A program that saves by itself tells the step that it saved in its checkpoint folder. Standard
library only.

The process writes, and does not map, the file: on a full disk, or if someone cuts the file, a write
fails, and a store into mapped memory kills the process.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from reshape_sidecar import foreign
from reshape_sidecar.user import User

NAME = "step"
"""In the run folder: generation and step as one number. In the checkpoint folder: the saved step of
a program that saves by itself, as a decimal number and a newline, which it writes by a rename."""
BYTES = 8
STEP_BITS = 40
GENERATION_BITS = 8 * BYTES - STEP_BITS - 1
_SAVED = re.compile(rb"\d{1,18}\n?\Z")
_SAVED_BYTES_MAX = 20
_SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


def create(run: Path, user: User | None) -> None:
    """Make the file for ``user``, who runs training, unless it is there. Its block is written, so
    that a full disk refuses no later step. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(run / NAME, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY, 0o600)
        try:
            os.write(descriptor, bytes(BYTES))
            if user is not None:
                os.fchown(descriptor, user.uid, user.gid)
        finally:
            os.close(descriptor)


def write(run: Path, generation: int, step: int) -> None:
    """Note the step of this process in the file, if there is one. Raises OSError."""
    if step >> STEP_BITS or generation >> GENERATION_BITS:
        return
    descriptor = os.open(run / NAME, os.O_WRONLY | _SAFELY)
    try:
        os.pwrite(descriptor, (generation << STEP_BITS | step).to_bytes(BYTES, "little"), 0)
    finally:
        os.close(descriptor)


def step_of(run: Path, generation: int) -> int:
    """Return the last step that the process of ``generation`` has written; 0 if there is none."""
    number = _number(run)
    return number & ((1 << STEP_BITS) - 1) if number >> STEP_BITS == generation else 0


def newest_step(run: Path) -> int:
    """Return the last step that any process of the attempt has written; 0 if there is none."""
    return _number(run) & ((1 << STEP_BITS) - 1)


def saved(checkpoints: Path) -> int | None:
    """Return the step that a program has saved by itself, as it says; None if it says none, or
    anything but a number in a regular file."""
    text = _read(checkpoints / NAME, _SAVED_BYTES_MAX)
    return int(text) if _SAVED.match(text) else None


def _number(run: Path) -> int:
    data = _read(run / NAME, BYTES)
    return int.from_bytes(data, "little") if len(data) == BYTES else 0


def _read(path: Path, most: int) -> bytes:
    """Return at most ``most`` bytes of a regular file; nothing of anything else. It never waits for
    another process, as opening a pipe would."""
    try:
        with foreign.reader(path, follow=False) as file:
            return file.read(most)
    except OSError:
        return b""
