"""The processes of attempts on this machine, found by the marker in their environment.

Does: counts, and ends, what carries an attempt's marker, whoever its parent is now. Never: touches
a process without the marker, or trusts a pid without its start time. State: none; /proc is read at
each call.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from reshape_sidecar import codec
from reshape_sidecar.init import files
from reshape_sidecar.init import processes as proc
from reshape_sidecar.init.processes import Marked, Marker
from reshape_sidecar.init.values import INIT_FILE, TRAINING_FILE, InitFile, Training

T = TypeVar("T")
KILL_POLL_S = 0.02
KILL_WAIT_S = 5.0
"""SIGKILL to gone. Then: the attempt counts as still running (a process hangs in the kernel)."""


def living(markers: Iterable[Marker]) -> dict[Marker, list[Marked]]:
    """Living processes of each of the attempts, by one look at /proc."""
    found: dict[Marker, list[Marked]] = {marker: [] for marker in markers}
    for entry in proc.marked(proc.snapshot()):
        if entry.marker in found:
            found[entry.marker].append(entry)
    return found


def end(marker: Marker, wait_s: float) -> None:
    """SIGTERM to an init whose files are lost, so that training saves and all ends in order.

    Blocks until it is gone, at most ``wait_s`` seconds; returns at once where no init is alive.
    """
    give_up_s = time.monotonic() + wait_s
    told = False
    while time.monotonic() < give_up_s:
        keepers = [entry for entry in living((marker,))[marker] if entry.generation is None]
        if not keepers:
            return
        if not told:
            told = True
            for entry in keepers:
                proc.send(entry.proc, signal.SIGTERM)
        time.sleep(KILL_POLL_S)


def kill(marker: Marker, wait_s: float = KILL_WAIT_S) -> list[Marked]:
    """SIGKILL to every process of the attempt until none is left; gives what would not go.

    Blocks at most ``wait_s`` seconds.
    """
    give_up_s = time.monotonic() + wait_s
    while True:
        left = living((marker,))[marker]
        if not left or time.monotonic() >= give_up_s:
            return left
        for entry in left:
            proc.send(entry.proc, signal.SIGKILL)
        time.sleep(KILL_POLL_S)


def up_to(marker: Marker, generation: int, run: Path) -> list[int]:
    """Pids of living training processes of the attempt started at ``generation`` or before.

    A descendant of init without a marker belongs to the newest start if it is younger than that,
    and to an earlier one otherwise.
    """
    procs = proc.snapshot()
    marked = [entry for entry in proc.marked(procs) if entry.marker == marker]
    old = {
        entry.proc.pid
        for entry in marked
        if entry.generation is not None and entry.generation <= generation
    }
    init = init_of(run)
    if init is not None:
        known = {entry.proc.pid for entry in marked}
        training = training_of(run)
        for child in proc.descendants(init.pid, procs):
            newer = (
                training is not None
                and training.generation > generation
                and child.start_time >= training.start_time
            )
            if child.pid not in known and not newer:
                old.add(child.pid)
    return sorted(old)


def init_of(run: Path) -> InitFile | None:
    """The attempt's init, if it is alive. Raises OSError if its file is there and unreadable."""
    found = _value(run / INIT_FILE, lambda text: codec.loads(InitFile, text))
    if found is None or found.boot_id != files.boot_id():
        return None
    return found if proc.alive(found.pid, found.start_time) else None


def training_of(run: Path) -> Training | None:
    """The newest training process that init has started, alive or not."""
    return _value(run / TRAINING_FILE, lambda text: codec.loads(Training, text))


def _value(path: Path, decode: Callable[[bytes], T]) -> T | None:
    try:
        return decode(path.read_bytes())
    except (FileNotFoundError, codec.CodecError):
        return None
