"""How a training process ended: its exit code, its newest whole checkpoint, the end of its log.

Does: reads the checkpoint folder and the log file, once per exit. The manifest decides what is
saved, not the exit code.
"""

from __future__ import annotations

import logging
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from reshape_sidecar import checkpoints, foreign, limits, step_file
from reshape_sidecar.agent.memory import ProcessExit
from reshape_sidecar.agent.printed_exception import exception_in, is_refusal
from reshape_sidecar.agent.spec import AttemptSpec, Folder
from reshape_sidecar.checkpoints import PublishedCheckpoint
from reshape_sidecar.claims import CheckpointError
from reshape_sidecar.exceptions import GRAPH_ERROR
from reshape_sidecar.init.values import TRAINING_LOG, TrainingProcess
from reshape_sidecar.wire import EXIT_SAVED, SIGNAL_BASE, Progress, signal_of

log = logging.getLogger("agent")
NEVER_EXECUTED = -1
EXIT_EXCEPTION = 1
"""Exit code of Python after an exception that the program does not catch."""
TAIL_BYTES_MAX = 256 * 1024
"""Bytes read of the log's end: a message that lists a model's weights has tens of thousands."""
_TERMINAL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, and what moves the cursor
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles and links
    r"|[\x00-\x08\x0e-\x1f\x7f-\x9f]"
)
"""Terminal control codes, which must not reach a user's table of jobs."""


@dataclass(frozen=True, slots=True)
class AtEnd:
    """The steps at the end of a training process."""

    step: int
    """The last one that is known."""
    saved_step: int | None
    """That of the newest checkpoint, or of the program's own save; None without one."""
    complete: bool = False
    """Whether the checkpoint is that of the end of training."""
    says_saved: bool = False
    """Whether the program has saved by itself since its start, as it says."""
    is_own: bool = False
    """Whether the checkpoint is one that this process published."""

    @property
    def has_saved_all(self) -> bool:
        """Whether the process has saved every step that it made."""
        return self.is_own and self.step == self.saved_step


def newest_checkpoint(
    spec: AttemptSpec, generation: int, stop: Callable[[], bool] = foreign.never
) -> PublishedCheckpoint | None:
    """Return the newest whole checkpoint after the process of ``generation`` ended.

    None also if the folder is not readable, which is logged. Raises foreign.Stopped once ``stop``
    says so.
    """
    try:
        return checkpoints.newest(spec.checkpoint_folder, (spec.attempt, generation), stop)
    except foreign.Stopped:
        raise
    except (OSError, CheckpointError) as error:
        log.error("checkpoints of %s: %s", spec.job, error)
        return None


def saved_by_itself(spec: AttemptSpec, step: int, before: int | None) -> int | None:
    """Return the step that the program has saved by itself, as it says; None if it says none.

    ``step``: the last one that it reported; 0: none. ``before``: what it said as its process was
    started. What stands since then, and is later than this step, is of an earlier training.
    """
    said = step_file.saved(spec.checkpoint_folder)
    return None if said == before and 0 < step < (said or 0) else said


def at_end(
    spec: AttemptSpec,
    folder: Folder,
    generation: int,
    step: int,
    before: int | None,
    stop: Callable[[], bool] = foreign.never,
) -> AtEnd:
    """Return the steps at the end of the process of ``generation``.

    ``step`` and ``before``: as in ``saved_by_itself``. A saved step proves a step, unless the
    program has never reported one: then nobody knows how many it made. Raises foreign.Stopped once
    ``stop`` says so.
    """
    step = max(step, step_file.step_of(folder.run, generation))
    newest = newest_checkpoint(spec, generation, stop)
    if newest is not None:
        manifest = newest.manifest
        is_own = (manifest.attempt, manifest.generation) == (spec.attempt, generation)
        saved = manifest.step
        return AtEnd(max(step, saved), saved, manifest.complete, is_own=is_own)
    own = saved_by_itself(spec, step, before)
    says_saved = own not in (None, before)
    return AtEnd(max(step, own or 0) if step else 0, own, says_saved=says_saved)


def inspect(
    folder: Folder,
    training: TrainingProcess,
    at_end: AtEnd,
    *,
    memory_ran_out: bool,
    has_saved: bool = False,
) -> ProcessExit:
    """Return how this training process ended.

    ``at_end``: its steps. ``memory_ran_out``: the kernel has killed a process of the container
    because memory ran out. ``has_saved``: by its last word it had only to leave.
    """
    code = NEVER_EXECUTED if training.exit_code is None else training.exit_code
    left_saved = training.rung and has_saved and at_end.has_saved_all
    failed = code not in (0, EXIT_SAVED) or (code == EXIT_SAVED and not training.rung)
    failed = failed and not left_saved
    left_in_order = code == EXIT_SAVED and training.rung
    tail = _tail(folder.logs / TRAINING_LOG, training.log_offset_bytes) if failed else ""
    raised = failed and code == EXIT_EXCEPTION
    exception, message = exception_in(tail) if raised else (None, None)
    shown = _last_lines(tail)
    if exception is not None and (GRAPH_ERROR in tail or "derived errors ignored" in shown):
        shown = f"{exception}: {message}"  # its last lines do not say what is wrong
    return ProcessExit(
        training.generation,
        code,
        asked=training.rung,
        step=at_end.step,
        saved_step=at_end.saved_step,
        complete=at_end.complete and (left_saved or code in (0, EXIT_SAVED)),
        error=_error(shown, training, code, memory_ran_out) if failed else None,
        exception=exception,
        exception_message=message,
        says_saved=left_in_order and at_end.says_saved,
        refused=raised and is_refusal(tail),
        left_saved=left_saved,
    )


def reached_end(ended: ProcessExit) -> bool:
    """Return whether training reached its end: complete, or exit code 0 without a request."""
    return ended.complete or (ended.exit_code == 0 and not ended.asked)


def is_over(spec: AttemptSpec, ended: ProcessExit | None, generation: int) -> bool:
    """Return whether training is over for a worker of which ``generation`` is desired.

    Of several workers only the chief decides: another one that reached its end starts again with a
    chief that did not, even if it ended before it knew of the new generation.
    """
    if ended is None or not reached_end(ended):
        return False
    return spec.worker == 0 or ended.generation >= generation


def progress_after(progress: Progress, ended: ProcessExit | None) -> Progress:
    """Return the progress at the start of a new process, which repeats unsaved steps and has no
    proof yet."""
    progress = progress if progress.proof is None else replace(progress, proof=None)
    if ended is None:
        return progress
    saved = ended.saved_step or 0
    if progress.step <= saved:
        return progress
    return replace(progress, step=saved, loss=None, seconds_per_step=None, apart_s_per_step=None)


def _error(tail: str, training: TrainingProcess, code: int, memory_ran_out: bool) -> str:
    if training.error is not None:
        return training.error
    first = f"training ended with exit code {code}"
    if code == EXIT_SAVED:
        first += " (saved and left), although no stop was requested"
    elif memory_ran_out and code == SIGNAL_BASE + signal.SIGKILL:
        first += ": out of memory (limit: resources.memory)"
    elif (by := signal_of(code)) is not None:
        first += f" ({by})"
    return f"{first}\n{tail}" if tail else first


def _tail(path: Path, offset_bytes: int) -> str:
    """Return the end of what this process wrote, without control codes and empty lines."""
    try:
        with foreign.reader(path) as file:
            size = file.seek(0, 2)
            start = offset_bytes if offset_bytes <= size else 0
            file.seek(max(start, size - TAIL_BYTES_MAX))
            text = file.read(TAIL_BYTES_MAX).decode(errors="replace")
    except OSError:
        return ""
    lines = [_TERMINAL.sub("", line).rstrip() for line in text.splitlines()]
    return "\n".join([line for line in lines if line])


def _last_lines(text: str) -> str:
    lines = text.splitlines()[-limits.ERROR_LINES_MAX :]
    return "\n".join(lines)[-limits.ERROR_CHARS_MAX :]
