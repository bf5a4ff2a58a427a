"""Requests of people about a job: cancel, pause, resume, pin (rule R8).

Does: carries a request out as far as the job's stage allows, and notes in the job what has to wait.
Never: breaks a hand-over past its point of no return.
"""

from __future__ import annotations

from reshape_controller.core import events as ev
from reshape_controller.core import job_exit
from reshape_controller.core.coordinator import handover_abort
from reshape_controller.core.fast_replace import replace
from reshape_controller.core.model import JobId, JobState, Stage
from reshape_controller.core.phrases import gpus
from reshape_controller.core.size_trial import SizeTrial
from reshape_controller.core.stop_table import Request
from reshape_controller.core.transaction import JobChanges, Transaction


def take(tx: Transaction, job_id: JobId, event: ev.Event) -> None:
    """Take in one request about a job that has not ended."""
    match event:
        case ev.CancelRequested(_, user):
            job_exit.cancel(tx, job_id, f"cancelled by {user or 'unknown'}")
        case ev.HaltRequested(_, user):
            _halt(tx, job_id, f"paused by {user or 'unknown'}")
        case ev.ResumeRequested(_, user):
            _resume(tx, job_id, f"resumed by {user or 'unknown'}")
        case ev.PinRequested(_, size, user):
            _pin(tx, job_id, size, user or "unknown")


def _halt(tx: Transaction, job_id: JobId, reason: str) -> None:
    job = tx.state.jobs[job_id]
    if job.state.terminal or job.state is JobState.HALTED:
        return
    if job.stage is Stage.NONE:
        handover_abort.abort(tx, job_id, reason)
        tx.update(job_id, state=JobState.HALTED, reason=reason, deadline=None)
    elif job.stage is Stage.ENDING:
        handover_abort.abort(tx, job_id, reason)
        tx.update(job_id, after_end=JobState.HALTED, reason=reason)
    elif job_exit.waits_unsaved(tx, job, Request.PAUSE, reason):
        tx.update(job_id, halt_wanted=True)
    elif job.stage in (Stage.LAUNCHING, Stage.READY, Stage.TRAINING) or (
        job.stage is Stage.STARTING and tx.limits.bounds_runs
    ):
        job_exit.leave(tx, job_id, reason, after=JobState.HALTED)
    else:
        tx.update(job_id, halt_wanted=True)
    tx.note(job, "halt-asked", reason)  # with the generation in which the request came


def _resume(tx: Transaction, job_id: JobId, reason: str) -> None:
    job = tx.state.jobs[job_id]
    if job.state.terminal:
        return
    changes: JobChanges = {"halt_wanted": False}
    if JobState.HALTED in (job.state, job.after_end):  # it is paused, or its container is ending
        changes |= {"reason": reason, "struck": (), "unfit_on": (), "failed_starts": (), "uses": 0}
        changes["trial"] = replace(job.trial, back_to=0)
        if job.failures > job.spec.retries:
            changes["failures"] = 0
        if job.spec.max_run_s is not None:
            tx.settle(job_id)
            changes["ran_s"] = 0.0
    if job.state is JobState.HALTED:
        changes["state"] = JobState.SUBMITTED
    elif job.after_end is JobState.HALTED:
        changes["after_end"] = JobState.SUBMITTED
    job = tx.take_changes(job_id, changes)
    job_exit.stay(tx, job_id)
    tx.state.plan_wanted = True
    tx.note(job, "resumed", reason)


def _pin(tx: Transaction, job_id: JobId, size: int | None, user: str) -> None:
    job = tx.state.jobs[job_id]
    if job.state.terminal:
        return
    if size is not None and size not in replace(job, pinned=None, trial=SizeTrial(), uses=0).sizes:
        return
    job = tx.update(job_id, pinned=size, trial=replace(job.trial, back_to=0))
    tx.state.plan_wanted = True
    what = "may use all its GPU counts" if size is None else f"fixed at {gpus(size)}"
    tx.note(job, "pinned", f"{what}, by {user}")
