"""The consequence of each deadline that passes; the lengths are in ``core.limits``.

Never: takes a GPU from its owner because time has passed.
"""

from __future__ import annotations

from reshape_controller.core import attempts, failures, job_exit, run_bounds
from reshape_controller.core.coordinator import (
    gpu_ledger,
    handover,
    handover_abort,
    preparation,
)
from reshape_controller.core.fast_replace import replace
from reshape_controller.core.limits import LEAVE_AGAIN_S
from reshape_controller.core.model import (
    Deadline,
    DeadlineKind,
    Gpu,
    GpuId,
    GpuState,
    Job,
    JobId,
    JobState,
    OnMaxRun,
    Stage,
)
from reshape_controller.core.transaction import Transaction


def expire(tx: Transaction) -> None:
    """Carry out the consequence of every deadline that has passed, earliest first."""
    wake_at_s = tx.state.wake_at_s
    if wake_at_s is not None and wake_at_s <= tx.now_s:
        tx.state.wake_at_s, tx.state.plan_wanted = None, True
    for key in tx.state.pop_due(tx.now_s):
        job = tx.state.jobs.get(JobId(key))
        if job is not None and job.deadline is not None and job.deadline.at_s <= tx.now_s:
            _job_due(tx, job.id, job.deadline)  # an earlier consequence may have moved the deadline
        job = tx.state.jobs.get(JobId(key))
        if job is not None and job.look_at_s is not None and job.look_at_s <= tx.now_s:
            _look(tx, job)
        gpu = tx.state.gpus.get(GpuId(key))
        if gpu is not None and gpu.verify_by_s is not None and gpu.state is GpuState.RELEASING:
            _gpu_due(tx, gpu)


def rebase(tx: Transaction) -> None:
    """Give every running deadline its full length from now (R6)."""
    for job in tuple(tx.state.jobs.values()):
        if job.deadline is not None:
            deadline = attempts.until(tx, job.deadline.kind, job.deadline.length_s)
            tx.update(job.id, deadline=deadline, watched=False)
        if job.stage is Stage.STARTING and tx.limits.bounds_runs:
            attempts.wait_for_first_step(tx, job.id)
            tx.update(job.id, watched=False, late=job.late)
        elif job.stage.has_gpus:
            attempts.look_later(tx, job.id)
    for gpu in tuple(tx.state.gpus.values()):
        if gpu.state is GpuState.RELEASING:
            tx.state.put_gpu(replace(gpu, verify_by_s=tx.now_s + tx.limits.verify_s))


def postpone(tx: Transaction, held_s: float) -> None:
    """Move every deadline by the ``held_s`` seconds in which the controller stood still."""
    for job in tuple(tx.state.jobs.values()):
        if job.deadline is not None:
            deadline = replace(job.deadline, at_s=job.deadline.at_s + held_s)
            tx.update(job.id, deadline=deadline, watched=False)
        if job.look_at_s is not None:
            since_s = None if job.starts_since_s is None else job.starts_since_s + held_s
            at_s = job.look_at_s + held_s
            tx.update(job.id, starts_since_s=since_s, look_at_s=at_s, watched=False)
    for gpu in tuple(tx.state.gpus.values()):
        if gpu.verify_by_s is not None:
            tx.state.put_gpu(replace(gpu, verify_by_s=gpu.verify_by_s + held_s))
    tx.note(None, "controller-held-up", f"for {held_s:.0f} s; all deadlines move by as much")


def _look(tx: Transaction, job: Job) -> None:
    """Judge a job by the bounds of its run, and note when to look again."""
    if not job.stage.has_gpus:
        tx.update(job.id, changes_view=False, look_at_s=None)
        return
    if job.stage in (Stage.STARTING, Stage.TRAINING):
        over = run_bounds.run_problem(job, tx.now_s)
        if over:
            _end_run(tx, job, over)
            return
        if job.stage is Stage.STARTING and job.starts_since_s is not None:
            problem = run_bounds.start_problem(tx.limits, job, tx.now_s)
            if problem:
                failures.on_start_hung(tx, job.id, problem)
                return
        elif problem := run_bounds.progress_problem(job, tx.now_s):
            failures.on_no_progress(tx, job.id, problem)
            return
        _say_late(tx, job)
    attempts.look_later(tx, job.id)


def _end_run(tx: Transaction, job: Job, over: str) -> None:
    """Have a job save and leave that has had GPUs for as long as it may. If it does not leave, as
    its save is late and its record refuses to be killed, it is asked again."""
    fails = job.spec.on_max_run is OnMaxRun.FAIL
    tx.note(job, "run-over", over)
    after = JobState.FAILED if fails else JobState.HALTED
    job_exit.leave(tx, job.id, over if fails else f"paused: {over}", after=after)
    tx.update(job.id, changes_view=False, look_at_s=tx.now_s + LEAVE_AGAIN_S)


def _say_late(tx: Transaction, job: Job) -> None:
    """Note that a job does something for too long, or no longer does."""
    late = run_bounds.lateness(job, tx.now_s)
    if late == job.late:
        return
    reason = f"{job.reason}; {late}" if job.reason and late else late
    job = tx.update(job.id, changes_view=False, late=late, reason=reason)
    if late:
        tx.note(job, "late", f"{late}; nothing is ended (a bound in its record would)")


def _job_due(tx: Transaction, job_id: JobId, deadline: Deadline) -> None:
    job = tx.state.jobs[job_id]
    waited = f"{deadline.length_s:g} s"
    if deadline.kind is not DeadlineKind.RETRY:
        tx.note(job, "deadline", f"{deadline.kind.value}: {waited} have passed")
    match deadline.kind:
        case DeadlineKind.EARLY_INIT:
            reason = f"its SideCar did not initialise within {waited}"
            job_exit.on_launch_failed(tx, job_id, reason, retryable=True)
        case DeadlineKind.SAVE_ANSWER:
            _no_answer(tx, job_id, deadline)
        case DeadlineKind.STOP:
            reason = f"its training processes still ran after {waited}"
            attempts.remove(tx, job_id, reason, after=job.after_end)
        case DeadlineKind.FIRST_STEP:
            failures.on_start_hung(
                tx, job_id, f"no first training step within {waited}{_sidecar_error(job)}"
            )
        case DeadlineKind.INITIALIZED_HOLD:
            reason = f"no GPUs became free for it within {waited} of its initialisation"
            attempts.remove(tx, job_id, reason)
        case DeadlineKind.END | DeadlineKind.REMOVE:
            attempts.remove(tx, job_id, job.reason, after=job.after_end)
        case DeadlineKind.UNSAVED:
            tx.update(job_id, deadline=None)
            job_exit.leave_as_wanted(tx, job_id, has_waited=True)
        case DeadlineKind.IMPORTS:
            handover.on_imported(tx, job_id)
        case DeadlineKind.PREPARE:
            preparation.end_wait(tx, job_id, deadline.length_s)
            handover.advance_prepared(tx, job_id)
        case DeadlineKind.RETRY:
            tx.update(job_id, deadline=None)
            tx.state.plan_wanted = True


def _no_answer(tx: Transaction, job_id: JobId, deadline: Deadline) -> None:
    """Withdraw the request, as the SideCar gave no outcome; then wait for an outcome (R2)."""
    job = tx.state.jobs[job_id]
    assert job.change is not None
    if job.set_apart and (job.halt_wanted or not job.change.withdrawn):  # a person asked
        attempts.remove(tx, job_id, job.reason, after=job.after_end)
        return
    if job.change.withdrawn or not job.reachable:
        again = attempts.until(tx, deadline.kind, deadline.length_s)
        tx.update(job_id, deadline=again, reason="its SideCar does not answer")
        return
    handover_abort.abort_request(tx, job_id, f"{job.spec.name} did not answer the request to save")


def _gpu_due(tx: Transaction, gpu: Gpu) -> None:
    newcomer = tx.state.jobs.get(gpu.promised_to) if gpu.promised_to is not None else None
    reason = gpu.reason or "could not verify in time that no process uses it"
    if newcomer is not None:
        handover_abort.abort(tx, newcomer.id, f"GPU {gpu.id}: {reason}")
    gpu_ledger.quarantine(tx, tx.state.gpus[gpu.id], reason)


def _sidecar_error(job: Job) -> str:
    """Return the SideCar's error as the end of a reason; empty if it has none."""
    error = job.observed.error if job.observed is not None else None
    return f": {error}" if error else ""
