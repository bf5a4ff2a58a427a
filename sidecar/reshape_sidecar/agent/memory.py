"""The agent's persisted state, ``agent.json``: one file, replaced whole and synced.

Does: stores the newest desired state, the one outcome per generation, and how far the agent got.
It does not store the running process: init reports that.
"""

from __future__ import annotations

import contextlib
import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path

from reshape_sidecar import codec, durable, state_files
from reshape_sidecar.state_files import Torn
from reshape_sidecar.wire import Desired, Outcome, PhaseTimes, Progress

MEMORY_FILE = "agent.json"
MILLISECONDS = 1000

log = logging.getLogger("agent")


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How the newest training process ended, recorded once.

    ``step`` is the last one that it reported; ``saved_step`` that of the newest whole checkpoint.
    ``asked``: it was sent SIGTERM.
    """

    generation: int
    exit_code: int
    asked: bool
    step: int
    saved_step: int | None
    complete: bool
    error: str | None = None
    exception: str | None = None
    exception_message: str | None = None
    refused: bool = False
    """True if Reshape itself refused to train the program."""
    says_saved: bool = False
    """As in ``Outcome``."""
    left_saved: bool = False
    """True if it was asked to leave and its own checkpoint has all its steps, so that it had left
    but for a step of which only figures count: however it ended then, it has not crashed."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Persisted state. Times are seconds of the machine's monotonic clock, valid over restarts."""

    boot: int = 0
    """Number of this start of the agent: its Unix time in milliseconds, or the number before plus
    one if that is higher."""
    desired: Desired | None = None
    learned_at_s: float = 0.0
    outcome: Outcome | None = None
    stopped_generation: int = 0
    devices: tuple[str, ...] = ()
    """Devices of the newest start."""
    started_generation: int = 0
    trained_generation: int = 0
    """Newest generation whose process has made its first step."""
    ended: ProcessExit | None = None
    finished: bool = False
    claimed: bool = False
    unfit: str | None = None
    process_restarts: int = 0
    own_saved_step: int | None = None
    """Step that the program said it had saved by itself, when its newest process was started."""
    progress: Progress = Progress()
    times: PhaseTimes = PhaseTimes()

    @property
    def generation(self) -> int:
        """Newest generation of a desired state; 0 before the first."""
        return 0 if self.desired is None else self.desired.generation

    @property
    def epoch(self) -> int:
        return 0 if self.desired is None else self.desired.epoch

    @property
    def answered(self) -> bool:
        """Whether the newest generation has its outcome."""
        return self.outcome is not None and self.outcome.generation >= self.generation


class MemoryFile:
    """``agent.json`` of one attempt."""

    def __init__(self, run: Path) -> None:
        self._path = run / MEMORY_FILE

    def boot(self, now_s: float) -> Memory:
        """Return the stored memory for a new start of the agent at ``now_s`` (Unix time).

        A lost or damaged memory is replaced by an empty one. Its number is still the highest,
        because it is a time: reports with a lower one would count as late. Raises OSError if the
        file exists and is not readable.
        """
        found = state_files.read(Memory, self._path)
        if isinstance(found, Torn):
            log.error("%s; the memory starts empty", found)
            with contextlib.suppress(OSError):
                os.replace(self._path, self._path.with_suffix(".damaged"))
        old = found if isinstance(found, Memory) else Memory()
        # Training went on since this was stored: newer values are known elsewhere.
        progress = replace(old.progress, loss=None, seconds_per_step=None, apart_s_per_step=None)
        boot = max(old.boot + 1, int(now_s * MILLISECONDS))
        memory = replace(old, boot=boot, progress=progress)
        try:
            self.save(memory)
        except OSError as error:
            # No decision depends on it yet, and an agent that only reports is better than none.
            log.error("%s cannot be written: %s", self._path, error)
        return memory

    def save(self, memory: Memory) -> None:
        """Store ``memory``; it is on the disk when this returns."""
        durable.write_whole(self._path, codec.dumps(memory).encode(errors="replace"), 0o600)
