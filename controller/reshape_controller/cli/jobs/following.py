"""The end of a job as the end of a command that waits for it or follows it."""

from __future__ import annotations

import signal

import typer

from reshape_controller.cli.exits import Exit
from reshape_gpu.values import JobView

CODE_MAX = 255


def exit_of(job: JobView) -> int:
    """Return the exit code of a job that has ended, or is paused for an error.

    It is the one of its program, 128 and the signal's number if a signal ended that, and 1 if the
    job failed or was cancelled for another reason.
    """
    if job.state == "completed":
        return Exit.OK
    if job.state in ("cancelled", "rejected"):
        return Exit.FAILED
    if job.signal is not None and job.signal in signal.Signals.__members__:
        return 128 + signal.Signals[job.signal]
    if job.exit_code is not None and 0 < job.exit_code <= CODE_MAX:
        return job.exit_code
    return Exit.FAILED


def end_as(job: JobView) -> None:
    """End the command with the exit code of a job."""
    raise typer.Exit(exit_of(job))
