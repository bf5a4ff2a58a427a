"""Requests of people about a job: cancel, pause, resume, pin (rule R8).

Does: carries a request out as far as the job's stage allows, and notes in the job what has to wait.
Never: breaks a hand-over past its point of no return.
"""

from __future__ import annotations

from reshape_controller.core import events as ev
from reshape_controller.core import job_exit
from reshape_controller.core.coordinator import handover_abort
from reshape_controller.core.explanation import gpus
from reshape_controller.core.fast_replace import replace
from reshape_controller.core.model import Job, JobState, Stage
from reshape_controller.core.transaction import Transaction


def take(tx: Transaction, job: Job, event: ev.Event) -> None:
    """Take in one request about a job that has not ended."""
    match event:
        case ev.CancelRequested(_, user):
            job_exit.cancel(tx, job, f"cancelled by {user or 'unknown'}")
        case ev.HaltRequested(_, user):
            _halt(tx, job, f"paused by {user or 'unknown'}")
        case ev.ResumeRequested(_, user):
            _resume(tx, job, f"resumed by {user or 'unknown'}")
        case ev.PinRequested(_, size, user):
            _pin(tx, job, size, user or "unknown")


def _halt(tx: Transaction, job: Job, reason: str) -> None:
    if job.state.terminal or job.state is JobState.HALTED:
        return
    if job.stage is Stage.NONE:
        job = handover_abort.abort(tx, job, reason)
        tx.state.put_job(replace(job, state=JobState.HALTED, reason=reason, deadline=None))
    elif job.stage is Stage.ENDING:
        job = handover_abort.abort(tx, job, reason)
        tx.state.put_job(replace(job, after_end=JobState.HALTED, reason=reason))
    elif job.stage in (Stage.LAUNCHING, Stage.READY, Stage.TRAINING):
        job_exit.leave(tx, job, reason, after=JobState.HALTED)
    else:
        tx.state.put_job(replace(job, halt_wanted=True))
    tx.note(job, "halt-asked", reason)


def _resume(tx: Transaction, job: Job, reason: str) -> None:
    if job.state.terminal:
        return
    forgiven = replace(job, reason=reason, struck=(), unfit_on=())
    if job.state is JobState.HALTED:
        job = replace(forgiven, state=JobState.SUBMITTED)
    elif job.after_end is JobState.HALTED:  # its container is ending
        job = replace(forgiven, after_end=JobState.SUBMITTED)
    job = replace(job, halt_wanted=False)
    tx.state.put_job(job)
    tx.state.plan_wanted = True
    tx.note(job, "resumed", reason)


def _pin(tx: Transaction, job: Job, size: int | None, user: str) -> None:
    if job.state.terminal:
        return
    if size is not None and size not in replace(job, pinned=None).sizes:
        return
    job = replace(job, pinned=size)
    tx.state.put_job(job)
    tx.state.plan_wanted = True
    what = "may use all its GPU counts" if size is None else f"fixed at {gpus(size)}"
    tx.note(job, "pinned", f"{what}, by {user}")
