"""One round of a containment test: an escape trains, something is killed, and a release is checked.

Does: ends every escape itself at the end of a round, so that none outlives the tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from reshape_launcher.local.launcher import LocalLauncher
from reshape_sidecar.wire import Mode, OnSaveTimeout
from tests.support import escapes
from tests.support.sidecar_bed import DEVICES, Bed, bed, eventually

KILLED = ("init", "agent", "daemon")
"""What is killed while an escape lives. The daemon's death is that of its launcher: nothing else of
the daemon knows of processes."""
KILL_AFTER_S = 1.0


@dataclass(frozen=True, slots=True)
class Round:
    """What a round has found once the release was verified."""

    survivors: int
    release_s: float
    """Time from the kill to the verified release."""
    order_s: float
    """Time from the agent's kill to the first report of the next agent, which takes the order to
    stop; 0 if something else was killed."""


def play(folder: Path, escape: str, killed: str) -> Round:
    """Play one round: kill ``killed``, have the job end, wait for a verified release."""
    tag = f"{os.getpid()}-{time.monotonic_ns()}"
    try:
        with bed(folder) as job:
            program = Path(escapes.__file__).read_text()
            generation = job.training(program, escape, tag).generation
            begin_s, order_s = time.monotonic(), 0.0
            if killed == "agent":
                job.kill_agent()
                generation, order_s = _stop(job)
            elif killed == "daemon":
                job.launcher = LocalLauncher(job.root)
                job.remove(grace_s=KILL_AFTER_S)
            else:
                os.kill(job.init().pid, signal.SIGKILL)
                job.gone()
            eventually("a verified release", lambda: released(job, generation))
            release_s = time.monotonic() - begin_s
            return Round(len(escapes.survivors(tag)), release_s, order_s)
    finally:
        _end(tag)


def released(job: Bed, generation: int) -> bool:
    """Return whether the launcher verifies the release of a generation."""
    check = job.launcher.check_release("job-1", 1, generation, DEVICES)
    return asyncio.run(check).empty


def _stop(job: Bed) -> tuple[int, float]:
    """Have training stop; return the generation that is over then, and the time until the next
    agent reported."""
    begin_s, before = time.monotonic(), job.process().generation
    generation = job.coordinator.want(
        Mode.SAVE_AND_STOP, kill_after_s=KILL_AFTER_S, on_save_timeout=OnSaveTimeout.KILL
    )
    reports = len(job.coordinator.reports)
    eventually("a report of the next agent", lambda: len(job.coordinator.reports) > reports)
    order_s = time.monotonic() - begin_s
    job.coordinator.until("stopped", lambda o: o.stopped_generation == generation)
    return before, order_s


def _end(tag: str) -> None:
    give_up_s = time.monotonic() + 10
    while (left := escapes.survivors(tag)) and time.monotonic() < give_up_s:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)  # what forks for ever stands still first
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
