"""What a job does after its program failed, rule R5 (docs/architecture.md).

Does: spends a retry for each start that follows a failure of the program; starts again at once,
after a back-off or on another host; excludes a size at which the program does not start; ends or
pauses a job whose program fails in the same way at two sizes.
"""

from __future__ import annotations

from reshape_controller.core import attempts
from reshape_controller.core.coordinator import handover_abort
from reshape_controller.core.model import Failure, Job, JobId, JobState
from reshape_controller.core.phrases import each_gpus, gpus
from reshape_controller.core.transaction import Transaction
from reshape_sidecar.wire import Observed


def failure_of(job: Job, report: Observed) -> Failure:
    """Return the failure of the job's process that a report of a crash names."""
    return Failure(
        job.attempt, len(job.gpus), report.exit_code, report.exception, report.exception_message
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
    """Queue a job again that made no first step by the deadline; its process may still run (R5)."""
    job = tx.state.jobs[job_id]
    size = len(job.gpus)
    tx.note(job, "start-failed", f"on {gpus(size)}: {reason}")
    handover_abort.leave(tx, job_id)
    failure = Failure(job.attempt, size)
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


def on_crash(tx: Transaction, job_id: JobId, reason: str, failure: Failure) -> None:
    """Start a job again that crashed in training: in its container; if a signal or a lack of memory
    has ended it in this attempt before, after a back-off. Without a retry left, pause it if it has
    a checkpoint, and fail it if not."""
    handover_abort.stop_receiving(tx, job_id, reason)
    before = tx.state.jobs[job_id].failure
    again = before is not None and before.attempt == failure.attempt and before.is_death
    attempts.count_lost_work(tx, job_id)
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
    if job.pinned == size and _may_fall_back(tx, job, size):
        job = tx.update(job_id, pinned=None)
        failed += "; its GPU count is not fixed any more"
    job = tx.update(job_id, struck=(*job.struck, size), start_failures=(), unfit_on=())
    tx.note(job, "size-struck", failed)
    if job.sizes:
        failed = f"failed to start on {gpus(size)}; last error: {reason}"
        attempts.end(tx, job_id, f"queued again: {failed}")
    else:
        tried = each_gpus(job.struck)
        end_for_good(tx, job_id, f"failed to start on {tried}; last error: {reason}")


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
    size = len(job.gpus)
    return any(known.gpus != size and known.gpus in job.sizes for known in job.measured)


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
