"""What the agent must not forget when it dies: one file, replaced whole and synced.

Does: holds the newest desired state that was taken up, the one outcome per generation, and how far
the agent got. Never: holds what init knows better (pids, exit codes). State: ``agent.json``.
"""

from __future__ import annotations

import contextlib
import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path

from reshape_sidecar import codec, durable
from reshape_sidecar.wire import Desired, Outcome, PhaseTimes, Progress

MEMORY_FILE = "agent.json"
MILLISECONDS = 1000

log = logging.getLogger("agent")


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How the newest training process ended, judged once.

    ``step`` is the last one that it reported; ``saved_step`` that of the newest whole checkpoint.
    """

    generation: int
    exit_code: int
    asked: bool
    step: int
    saved_step: int | None
    complete: bool
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """Persisted state. Times are seconds of the machine's monotonic clock, valid over restarts."""

    boot: int = 0
    """Number of this start of the agent: the time of it in milliseconds, or one more than the
    number before where that is higher."""
    desired: Desired | None = None
    learned_at_s: float = 0.0
    outcome: Outcome | None = None
    stopped_generation: int = 0
    devices: tuple[str, ...] = ()
    """Of the newest start."""
    started_generation: int = 0
    trained_generation: int = 0
    """Newest generation whose process has made its first step."""
    ended: ProcessExit | None = None
    finished: bool = False
    claimed: bool = False
    unfit: str | None = None
    process_restarts: int = 0
    progress: Progress = Progress()
    times: PhaseTimes = PhaseTimes()

    @property
    def generation(self) -> int:
        """The newest generation that was taken up; 0 before the first."""
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
        """What was remembered, for a new start of the agent at ``now_s`` (Unix time).

        A memory that is lost or damaged begins anew. Its number then still is the highest, because
        it is a time: reports of a low number would be taken for late ones. Raises OSError if the
        file is there and cannot be read.
        """
        try:
            old = codec.loads(Memory, self._path.read_bytes())
        except FileNotFoundError:
            old = Memory()
        except codec.CodecError as error:
            log.error("%s is damaged and begins anew: %s", self._path, error)
            with contextlib.suppress(OSError):
                os.replace(self._path, self._path.with_suffix(".damaged"))
            old = Memory()
        # Training has gone on since this was kept: whoever heard more of it knows better.
        progress = replace(old.progress, loss=None, seconds_per_step=None)
        boot = max(old.boot + 1, int(now_s * MILLISECONDS))
        memory = replace(old, boot=boot, progress=progress)
        try:
            self.save(memory)
        except OSError as error:
            # Nothing was decided yet: an agent that says what it sees is better than none.
            log.error("%s cannot be written: %s", self._path, error)
        return memory

    def save(self, memory: Memory) -> None:
        """Keep ``memory``; it is on the disk when this returns."""
        durable.write_whole(self._path, codec.dumps(memory).encode(errors="replace"))
