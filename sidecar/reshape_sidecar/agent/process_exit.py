"""How a training process ended: its exit code, its newest whole checkpoint, the end of its log.

Does: reads the checkpoint folder and the log file, once per end. Never: believes an exit code
alone where a checkpoint can be looked at. State: none.
"""

from __future__ import annotations

import logging
import re
import signal
from dataclasses import replace
from pathlib import Path

from reshape_sidecar import checkpoints, limits
from reshape_sidecar.agent.memory import ProcessExit
from reshape_sidecar.agent.spec import AttemptSpec, Folder
from reshape_sidecar.checkpoints import PublishedCheckpoint
from reshape_sidecar.claims import CheckpointError
from reshape_sidecar.init.values import SIGNAL_BASE, TRAINING_LOG, TrainingProcess
from reshape_sidecar.wire import EXIT_SAVED, Progress

log = logging.getLogger("agent")
NEVER_EXECUTED = -1
TAIL_BYTES_MAX = 8 * limits.ERROR_CHARS_MAX
"""Read of the log's end: most of a line of Keras's progress bar moves the cursor."""
_TERMINAL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, and what moves the cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles and links
    r"|[\x00-\x08\x0e-\x1f\x7f-\x9f]"
)
"""What a terminal obeys; nobody's table of jobs is to do so."""


def checkpoint_folder(spec: AttemptSpec) -> Path:
    """Where the checkpoints of the job are."""
    return Path(spec.checkpoints)


def newest_checkpoint(spec: AttemptSpec, generation: int) -> PublishedCheckpoint | None:
    """The newest whole checkpoint, seen from the end of the process of ``generation``; None also
    if the folder cannot be read, which is logged."""
    try:
        return checkpoints.newest(checkpoint_folder(spec), (spec.attempt, generation))
    except (OSError, CheckpointError) as error:
        log.error("checkpoints of %s: %s", spec.job, error)
        return None


def inspect(
    spec: AttemptSpec, folder: Folder, training: TrainingProcess, step: int, *, memory_ran_out: bool
) -> ProcessExit:
    """How this training process ended; ``step`` is the last that it reported. ``memory_ran_out``:
    the kernel has killed some process of the container for want of memory."""
    saved = newest_checkpoint(spec, training.generation)
    code = NEVER_EXECUTED if training.exit_code is None else training.exit_code
    complete = saved is not None and saved.manifest.complete
    failed = code not in (0, EXIT_SAVED) or (code == EXIT_SAVED and not training.rung)
    return ProcessExit(
        training.generation,
        code,
        asked=training.rung,
        step=step,
        saved_step=None if saved is None else saved.manifest.step,
        complete=complete and code in (0, EXIT_SAVED),
        error=_error(folder, training, code, memory_ran_out) if failed else None,
    )


def reached_end(ended: ProcessExit) -> bool:
    """Whether training reached its end: it says so, or it left with 0 without being asked to."""
    return ended.complete or (ended.exit_code == 0 and not ended.asked)


def is_over(spec: AttemptSpec, ended: ProcessExit | None, generation: int) -> bool:
    """Whether training is over, seen by a worker of which ``generation`` is desired.

    Of several workers the chief alone can say so: another one that reached its end begins anew with
    a chief that does not, whether it ended before it heard of that or after.
    """
    if ended is None or not reached_end(ended):
        return False
    return spec.worker == 0 or ended.generation >= generation


def progress_after(progress: Progress, ended: ProcessExit | None) -> Progress:
    """What a new process begins with: steps that no checkpoint holds are executed again."""
    if ended is None:
        return progress
    saved = ended.saved_step or 0
    if progress.step <= saved:
        return progress
    return replace(progress, step=saved, loss=None, seconds_per_step=None)


def _error(folder: Folder, training: TrainingProcess, code: int, memory_ran_out: bool) -> str:
    if training.error is not None:
        return training.error
    first = f"training ended with exit code {code}"
    if code == EXIT_SAVED:
        first += " (saved and left) without being asked to"
    elif memory_ran_out and code == SIGNAL_BASE + signal.SIGKILL:
        first += ": memory ran out, and the kernel killed it (resources.memory is the limit)"
    elif code - SIGNAL_BASE in set(signal.Signals):
        first += f" ({signal.Signals(code - SIGNAL_BASE).name})"
    tail = _tail(folder.logs / TRAINING_LOG, training.log_offset_bytes)
    return f"{first}\n{tail}" if tail else first


def _tail(path: Path, offset_bytes: int) -> str:
    """The last lines that this process wrote."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, 2)
            start = offset_bytes if offset_bytes <= size else 0
            file.seek(max(start, size - TAIL_BYTES_MAX))
            text = file.read(TAIL_BYTES_MAX).decode(errors="replace")
    except OSError:
        return ""
    lines = [_TERMINAL.sub("", line).rstrip() for line in text.splitlines()]
    tail = "\n".join([line for line in lines if line][-limits.ERROR_LINES_MAX :])
    return tail[-limits.ERROR_CHARS_MAX :]
