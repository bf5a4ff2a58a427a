"""What a job does after its program failed, rule R5 (docs/architecture.md).

Does: spends a retry for each start that follows a failure of the program; starts again at once,
after a back-off or on another host; excludes a size at which the program does not start; ends or
pauses a job whose program fails in the same way at two sizes.
"""

from __future__ import annotations

from reshape_controller.core import attempts
from reshape_controller.core.attempts import LastWord
from reshape_controller.core.coordinator import handover_abort
from reshape_controller.core.fast_replace import replace
from reshape_controller.core.model import Failure, Job, JobId, JobState
from reshape_controller.core.phrases import duration, each_gpus, gpus
from reshape_controller.core.transaction import Transaction
from reshape_sidecar.wire import PROOF_DIFFERS, Observed


def failure_of(job: Job, report: Observed) -> Failure:
    """Return the failure of the job's process that a report of a crash names."""
    return Failure(
        job.attempt,
        len(job.gpus),
        report.exit_code,
        report.exception,
        report.exception_message,
        report.refused,
    )


def on_start_failed(tx: Transaction, job_id: JobId, reason: str, failure: Failure) -> None:
    """Start a job again that did not reach its first step; after the second time at this size,
    exclude the size (R5)."""
    job = tx.state.jobs[job_id]
    tx.note(job, "start-failed", f"on {gpus(failure.size)}: {reason}")
    unseen = attempts.unseen(tx, job)
    if unseen:  # the missing GPU is the cause, not the program
        handover_abort.leave(tx, job_id)
        attempts.end(tx, job_id, f"queued again: {unseen}")
        return
    if _refused(tx, job_id, failure):
        return
    may_fall_back = _may_fall_back(tx, job, failure.size)
    if may_fall_back:
        _remember(tx, job_id, failure)
    elif _ends(tx, job_id, reason, failure):
        return
    job = tx.state.jobs[job_id]
    job = tx.update(job_id, start_failures=(*job.start_failures, failure.size))
    often = job.start_failures.count(failure.size) >= tx.limits.start_failures_max
    waits = failure.is_death and attempts.counts_starts(tx) and not may_fall_back
    if waits and not (often and _trained_elsewhere(job)):
        _queue(tx, job_id, reason)
        return
    if often:
        exclude_size(tx, job_id, failure.size, reason)
        return
    tx.update(job_id, process_restarts=job.process_restarts + 1)
    text = f"second start on {gpus(failure.size)}; last error: {reason}"
    attempts.start(tx, job_id, job.gpus, text)


def on_start_hung(tx: Transaction, job_id: JobId, reason: str) -> None:
    """Queue a job again that made no first step by its bounds; its process may still run (R5).

    Its GPU count is not at fault, so none is struck, and each such start spends a retry.
    """
    job = tx.state.jobs[job_id]
    size = len(job.gpus)
    tx.note(job, "start-failed", f"on {gpus(size)}: {reason}")
    handover_abort.leave(tx, job_id)
    failure = Failure(job.attempt, size)
    if tx.limits.bounds_runs:
        if not _ends(tx, job_id, reason, failure):
            attempts.end(tx, job_id, f"queued again: {reason}")
        return
    if _may_fall_back(tx, job, size):
        _remember(tx, job_id, failure)
    elif _ends(tx, job_id, reason, failure):
        return
    job = tx.state.jobs[job_id]
    job = tx.update(job_id, start_failures=(*job.start_failures, size))
    if job.start_failures.count(size) >= tx.limits.start_failures_max:
        exclude_size(tx, job_id, size, reason)
    else:
        attempts.end(tx, job_id, f"queued again: {reason}")


def on_no_progress(tx: Transaction, job_id: JobId, reason: str) -> None:
    """End the container of a job that trains and does not get on; it starts again from its newest
    checkpoint, which spends a retry, or is paused with it."""
    handover_abort.stop_receiving(tx, job_id, reason)
    job = handover_abort.leave(tx, job_id)
    tx.note(job, "no-progress", reason)
    attempts.count_lost_work(tx, job_id, LastWord.TOLD)
    tx.update(job_id, failure=Failure(job.attempt, len(job.gpus)))
    used_up = attempts.spend_retry(tx, job_id, reason)
    if used_up:
        end_for_good(tx, job_id, used_up)
    else:
        attempts.end(tx, job_id, f"queued again: {reason}")


def on_crash(tx: Transaction, job_id: JobId, reason: str, failure: Failure) -> None:
    """Start a job again that crashed in training: in its container; if a signal or a lack of memory
    has ended it in this attempt before, after a back-off. Without a retry left, pause it if it has
    a checkpoint, and fail it if not."""
    handover_abort.stop_receiving(tx, job_id, reason)
    before = tx.state.jobs[job_id].failure
    again = before is not None and before.attempt == failure.attempt and before.is_death
    attempts.count_lost_work(tx, job_id, LastWord.TOLD)
    if _refused(tx, job_id, failure) or _went_back(tx, job_id, reason, failure):
        return
    if attempts.counts_starts(tx):
        tx.update(job_id, failure=failure)
    used_up = attempts.spend_retry(tx, job_id, reason)
    if used_up and attempts.keeps_checkpoint(tx, job_id):
        handover_abort.leave(tx, job_id)
        end_for_good(tx, job_id, used_up)
    elif used_up:
        attempts.finish(tx, job_id, JobState.FAILED, used_up)
        job = handover_abort.leave(tx, job_id)
        attempts.end(tx, job_id, job.reason)
    elif again and failure.is_death:
        _queue(tx, job_id, reason)
    else:
        job = tx.state.jobs[job_id]
        tx.update(job_id, process_restarts=job.process_restarts + 1)
        attempts.start(tx, job_id, job.gpus, f"starts again after a failure: {reason}")


def exclude_size(tx: Transaction, job_id: JobId, size: int, reason: str) -> None:
    """Exclude a size at which the job does not start; without another size, halt or fail it.

    If the job has not just trained on this host at another size, the host may be the cause: the job
    tries another host first.
    """
    reshaped = tx.state.jobs[job_id].change is not None
    job = handover_abort.leave(tx, job_id)
    if not reshaped and not job.unfit_on and _tries_elsewhere(tx, job_id, reason):
        return
    failed = f"failed to start twice on {gpus(size)}; last error: {reason}"
    returns = attempts.goes_back(tx) and not job.reports_steps
    back_to = job.trained_on if returns and _may_fall_back(tx, job, size) else 0
    job = _strike(tx, job, size, failed, back_to)
    if job.sizes:
        failed = f"failed to start on {gpus(size)}; last error: {reason}"
        attempts.end(tx, job_id, f"queued again{_for(job)}: {failed}")
    else:
        tried = each_gpus(job.struck)
        end_for_good(tx, job_id, f"failed to start on {tried}; last error: {reason}")


def begin_trial(tx: Transaction, job: Job) -> None:
    """Have a job, which makes its first step now, begin to prove its size."""
    if attempts.goes_back(tx):
        tx.update(job.id, trial=job.trial.begun(len(job.gpus), job.trained_on, tx.now_s))


def _went_back(tx: Transaction, job_id: JobId, reason: str, failure: Failure) -> bool:
    """Have a job go back to the size that it trained on before, at the cost of no retry, if its
    program reports no steps and failed soon after its first start at this size (R5). Without its
    steps nobody knows whether it got as far as to train. Returns whether it does."""
    job, size = tx.state.jobs[job_id], failure.size
    trial = job.trial.ended(size, tx.now_s)
    back_to = trial.way_back(size, job.trained_on, job.struck)
    if not (attempts.goes_back(tx) and back_to) or job.reports_steps or trial.since_s is None:
        return False
    tx.note(job, "start-failed", f"on {gpus(size)}: {reason}")
    handover_abort.leave(tx, job_id)
    after = duration(tx.now_s - trial.since_s)
    failed = f"failed {after} after its first start on {gpus(size)}; last error: {reason}"
    job = _strike(tx, tx.update(job_id, failure=failure), size, failed, back_to)
    attempts.end(tx, job_id, f"queued again{_for(job)}: {failed}")
    return True


def _refused(tx: Transaction, job_id: JobId, failure: Failure) -> bool:
    """End a job that Reshape itself refuses to train as it is: another start would be refused too,
    and so it spends no retry. If the job trained on another number of GPUs before, this one is
    struck, and the job goes back. A first step that differs strikes no size, because the state that
    is missing may be missing at each. Returns whether it was refused."""
    if not (attempts.goes_back(tx) and failure.refused):
        return False
    job, size = tx.update(job_id, failure=failure), failure.size
    if failure.exception == PROOF_DIFFERS:
        handover_abort.leave(tx, job_id)
        end_for_good(tx, job_id, _stopped_by_proof(job, failure))
        return True
    back_to = job.trial.ended(size, tx.now_s).way_back(size, job.trained_on, job.struck)
    refused = f"refused by Reshape on {gpus(size)}: {failure.message}"
    handover_abort.leave(tx, job_id)
    if not back_to:
        end_for_good(tx, job_id, refused)
    else:
        job = _strike(tx, tx.state.jobs[job_id], size, refused, back_to)
        attempts.end(tx, job_id, f"queued again{_for(job)}: {refused}")
    return True


def _stopped_by_proof(job: Job, failure: Failure) -> str:
    """Return why a job ends whose record wants no second step after a first one that differs, with
    the remedies."""
    known, name, size = job.proofs, job.spec.name, failure.size
    said = known.newest if known.is_noted else f"{gpus(size)}: {failure.message}"
    before = job.trained_on if job.trained_on != size else job.trial.before
    resume = f"resume it on {gpus(before)} (reshape pin {name} {before}, reshape resume {name}), "
    return (
        f"stopped before its second step (on_difference: stop): {said}. Now "
        f"{resume if before not in (0, size) else ''}repair what differs and submit it again, or "
        "submit it with on_difference: report"
    )


def _strike(tx: Transaction, job: Job, size: int, text: str, back_to: int) -> Job:
    """Exclude a size, and return the job. ``back_to``: the size at which it starts next; 0: any."""
    if job.pinned == size and (back_to or _may_fall_back(tx, job, size)):
        job = tx.update(job.id, pinned=None)
        text += "; its GPU count is not fixed any more"
    job = tx.update(
        job.id,
        struck=(*job.struck, size),
        start_failures=(),
        unfit_on=(),
        trial=replace(job.trial, back_to=back_to),
    )
    tx.note(job, "size-struck", text)
    return job


def _for(job: Job) -> str:
    """Return for which GPUs a job is queued, if it goes back; else nothing."""
    size = job.trial.back_to
    return f" for the {gpus(size)} that it trained on" if size else ""


def on_unfit(tx: Transaction, job_id: JobId, reason: str, *, checks: bool) -> None:
    """End an attempt that cannot train on its host; it has left its hand-overs.

    If its self-check failed (``checks``), another host may have the missing mount or GPU, so the
    job tries other hosts first: one faulty host does not fail a whole queue.
    """
    if not checks or not _tries_elsewhere(tx, job_id, reason, is_counted=False):
        end_for_good(tx, job_id, reason)


def end_for_good(tx: Transaction, job_id: JobId, reason: str) -> None:
    """Halt a job with its checkpoint, for a person to examine; fail it if it never trained."""
    progress = tx.state.jobs[job_id].progress
    if progress.step > 0 or progress.checkpoint_step:
        attempts.end(tx, job_id, attempts.PAUSED + reason, after=JobState.HALTED)
        return
    attempts.finish(tx, job_id, JobState.FAILED, reason)
    attempts.end(tx, job_id, reason)


def _ends(tx: Transaction, job_id: JobId, reason: str, failure: Failure) -> bool:
    """Spend a retry for a failed start. Returns whether the job has ended by that: no retry was
    left, or its program failed in the same way at another size before."""
    if not attempts.counts_starts(tx):
        return False
    job = tx.state.jobs[job_id]
    cause, sizes = failure.cause, {failure.size: None}
    if cause and not failure.is_death:
        sizes |= {known.size: None for known in job.failed_starts if known.cause == cause}
    _remember(tx, job_id, failure)
    used_up = attempts.spend_retry(tx, job_id, reason)
    same = f"the same failure ({cause}) on {each_gpus(sorted(sizes, reverse=True))}: {reason}"
    if not used_up and len(sizes) < 2:
        return False
    handover_abort.leave(tx, job_id)
    end_for_good(tx, job_id, same if len(sizes) > 1 else used_up)
    return True


def _remember(tx: Transaction, job_id: JobId, failure: Failure) -> None:
    """Set the newest failure of the job; one that may come at another size too is compared."""
    job = tx.update(job_id, failure=failure)
    if failure.cause and not failure.is_death:
        tx.update(job_id, failed_starts=(*job.failed_starts, failure))


def _may_fall_back(tx: Transaction, job: Job, size: int) -> bool:
    """Whether a failed start at ``size`` is the size's fault, and spends no retry: the job trained
    at another size before, and may have that size again."""
    before = job.trained_on
    return attempts.counts_starts(tx) and before not in (0, size, *job.struck)


def after_first_step(tx: Transaction, job: Job) -> tuple[int, ...]:
    """Return the failed starts that still count once the job trains: those at other sizes."""
    if not attempts.counts_starts(tx):
        return ()
    return tuple(size for size in job.start_failures if size != len(job.gpus))


def _trained_elsewhere(job: Job) -> bool:
    """Whether the job has trained at another size that it may still have: then its deaths at this
    size are the size's fault, as when its memory does not suffice there."""
    size, sizes = len(job.gpus), replace(job, uses=0).sizes
    return any(known.gpus != size and known.gpus in sizes for known in job.measured)


def _queue(tx: Transaction, job_id: JobId, reason: str) -> None:
    """Queue a job whose process died. It waits for its back-off once its container has ended."""
    handover_abort.leave(tx, job_id)
    attempts.end(tx, job_id, f"queued again after a back-off: {reason}")


def _tries_elsewhere(
    tx: Transaction, job_id: JobId, reason: str, *, is_counted: bool = True
) -> bool:
    """Queue a job for another host if it has a retry left and an untried host has enough GPUs; a
    drained host counts as well. ``is_counted``: its failure has spent that retry already.

    Returns whether it did.
    """
    job = tx.state.jobs[job_id]
    is_counted = is_counted and attempts.counts_starts(tx)
    if job.host is None or job.only_host is not None:
        return False
    if not is_counted and job.failures >= job.spec.retries:
        return False
    tried, hosts = (*job.unfit_on, *job.all_hosts), tx.state.hosts.values()
    least = min(job.sizes)
    if job.hosts:
        least //= job.spec.workers
    if all(host.id in tried or len(host.gpus) < least for host in hosts):
        return False
    reason = f"{' and '.join(job.all_hosts)}: {reason}"
    tx.update(job_id, unfit_on=tried, start_failures=(), reason=reason)
    if not is_counted:
        attempts.count_failure(tx, job_id, reason)
    attempts.end(tx, job_id, f"queued again for another host; error on {reason}")
    return True
