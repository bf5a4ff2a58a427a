"""Containers that another controller of the cluster suspends: an operator, a queueing system.

Does: takes the GPUs of a job whose container has no pod, and has it wait in its attempt, without a
deadline, until the other controller lets the container start.
Never: counts a failure, or grants one of these GPUs before its release is verified (R4).
"""

from __future__ import annotations

from reshape_controller.core import attempts
from reshape_controller.core.attempts import LastWord
from reshape_controller.core.coordinator import gpu_ledger, handover_abort
from reshape_controller.core.model import ChangeKind, DeadlineKind, Job, JobId, JobState, Stage
from reshape_controller.core.transaction import Transaction
from reshape_sidecar.wire import Mode


def on_suspended(tx: Transaction, job_id: JobId, reason: str) -> None:
    """Take in that no process of the job's container exists, and none starts for now."""
    job = tx.state.jobs[job_id]
    if job.suspended == reason:
        return
    is_new = not job.suspended
    job = tx.update(job_id, suspended=reason)
    tx.note(job, "container-suspended", reason)
    if job.stage is Stage.ENDING:
        if is_new:
            attempts.remove(tx, job_id, job.reason, after=job.after_end)
    elif job.stage is Stage.LAUNCHING:
        handover_abort.abort(tx, job_id, reason)
        tx.update(job_id, reason=reason, deadline=None)
    else:
        _take_gpus(tx, job, reason)


def _take_gpus(tx: Transaction, job: Job, reason: str) -> None:
    """Release the GPUs of a job that had started, and queue it in its attempt; if it was about to
    leave its container anyway, have the container removed."""
    leaves = job.change is not None and job.change.kind in (ChangeKind.LEAVE, ChangeKind.RELAUNCH)
    after = JobState.HALTED if job.halt_wanted else job.after_end
    handover_abort.abort(tx, job.id, reason)
    job = handover_abort.leave(tx, job.id)
    gpu_ledger.release(tx, job.id, job.gpus, job.generation)
    attempts.count_lost_work(tx, job.id, LastWord.WITH_CONTAINER)
    if leaves or job.halt_wanted:
        tx.update(job.id, gpus=())
        attempts.remove(tx, job.id, job.reason or reason, after=after)
        return
    attempts.ask(
        tx,
        job.id,
        Mode.SAVE_AND_STOP,
        to=Stage.LAUNCHING,
        state=JobState.SUBMITTED,
        gpus=(),
        observed=None,
        answered=True,
        reachable=True,
        set_apart="",
        reason=reason,
        deadline=None,
    )
    tx.state.plan_wanted = True


def on_admitted(tx: Transaction, job_id: JobId) -> None:
    """Take in that the job's container may start: only from now on it has a deadline."""
    job = tx.state.jobs[job_id]
    if not job.suspended:
        return
    job = tx.update(job_id, suspended="")
    tx.note(job, "container-admitted", "its container may start")
    if job.stage is Stage.LAUNCHING:
        deadline = attempts.until(tx, DeadlineKind.EARLY_INIT, tx.limits.early_init_s)
        tx.update(job_id, reason=f"its container starts on {job.host}", deadline=deadline)
