"""The end of jobs, starts and containers, and the hosts from which a job's files can be reached.

Does: turns each end (complete, failed, cancelled, halted, evicted, gone) into its consequences for
the GPUs, the queue and the parties of a hand-over. A job whose files cannot be reached where it was
launched ends there and is queued again.
Never: frees a GPU with a process that may still run: it is released, and the release is verified.
"""

from __future__ import annotations

from reshape_controller.core import attempts
from reshape_controller.core import events as ev
from reshape_controller.core.coordinator import gpu_ledger, handover, handover_abort
from reshape_controller.core.explanation import each_gpus, gpus
from reshape_controller.core.fast_replace import replace
from reshape_controller.core.model import (
    ChangeKind,
    DeadlineKind,
    GpuId,
    Host,
    Job,
    JobState,
    Stage,
)
from reshape_controller.core.transaction import Transaction


def on_files_found(tx: Transaction, job: Job, event: ev.FilesFound) -> None:
    """Store the host from which the job's files can be reached.

    If the attempt is on another host, it has not started: the job is queued again, without a
    failure.
    """
    elsewhere = event.host is not None and event.host != job.host
    if elsewhere and job.stage is not Stage.LAUNCHING:
        return
    job = replace(job, only_host=event.host, only_host_because=event.reason)
    tx.state.put_job(job)
    if event.host is not None:
        tx.note(job, "files-found", f"can run only on {event.host}: {event.reason}")
    if elsewhere:
        reason = f"{job.host} cannot reach its files"
        attempts.remove(tx, handover_abort.abort(tx, job, reason), reason)


def complete(tx: Transaction, job: Job, reason: str) -> None:
    """Complete a job at the end of its training; pending requests to it become void (R7)."""
    job = handover_abort.leave(tx, job)
    gpu_ledger.release(tx, job, job.gpus, job.generation)
    job = attempts.finish(tx, replace(job, gpus=()), JobState.COMPLETED, reason)
    attempts.end(tx, job, reason)


def leave_terminal(tx: Transaction, job: Job) -> None:
    """End the container of a failed or cancelled job, and its part in a hand-over."""
    job = handover_abort.leave(tx, job)
    attempts.end(tx, job, job.reason)


def on_start_failed(tx: Transaction, job: Job, reason: str) -> None:
    """Start a job again that did not reach its first step; after the second time at this size,
    exclude the size (R5)."""
    size = len(job.gpus)
    tx.note(job, "start-failed", f"on {gpus(size)}: {reason}")
    unseen = _unseen(tx, job)
    if unseen:  # the missing GPU is the cause, not the size
        attempts.end(tx, handover_abort.leave(tx, job), f"queued again: {unseen}")
        return
    job = replace(job, start_failures=(*job.start_failures, size))
    failed = job.start_failures.count(size)
    if failed < tx.limits.start_failures_max:
        job = replace(job, process_restarts=job.process_restarts + 1)
        attempts.start(tx, job, job.gpus, f"second start on {gpus(size)}; last error: {reason}")
        return
    exclude_size(tx, job, size, reason)


def exclude_size(tx: Transaction, job: Job, size: int, reason: str) -> None:
    """Exclude a size at which the job does not start; without another size, halt or fail it.

    If the job has not just trained on this host at another size, the host may be the cause: the job
    tries another host first.
    """
    reshaped = job.change is not None
    job = handover_abort.leave(tx, job)
    if not reshaped and not job.unfit_on and _tries_elsewhere(tx, job, reason):
        return
    job = replace(job, struck=(*job.struck, size), start_failures=(), unfit_on=())
    tx.note(job, "size-struck", f"failed to start twice on {gpus(size)}; last error: {reason}")
    if job.sizes:
        failed = f"failed to start on {gpus(size)}; last error: {reason}"
        attempts.end(tx, job, f"queued again: {failed}")
    else:
        _end_for_good(tx, job, f"failed to start on {each_gpus(job.struck)}; last error: {reason}")


def on_unfit(tx: Transaction, job: Job, reason: str) -> None:
    """End an attempt that cannot train on its host.

    If its self-check failed, another host may have the missing mount or GPU, so the job tries
    other hosts first: one faulty host does not fail a whole queue.
    """
    checks = job.stage is Stage.LAUNCHING
    job = handover_abort.leave(tx, handover_abort.abort(tx, job, reason))
    if not checks or not _tries_elsewhere(tx, job, reason):
        _end_for_good(tx, job, reason)


def leave(tx: Transaction, job: Job, reason: str, *, after: JobState) -> None:
    """Have a settled job save and give all its GPUs back; ``after``: its state after that."""
    if job.donation is not None:
        newcomer = tx.state.jobs[job.donation.to]
        handover_abort.abort(tx, newcomer, f"{job.spec.name}: {reason}")
        job = tx.state.jobs[job.id]
    if job.stage is Stage.TRAINING:
        handover.leave(tx, job, reason, after=after)
    elif job.stage in (Stage.LAUNCHING, Stage.READY):
        job = handover_abort.abort(tx, job, reason)
        attempts.remove(tx, job, reason, after=after)


def cancel(tx: Transaction, job: Job, reason: str) -> None:
    """Cancel the job in any stage. Its GPUs are released, and the release is verified."""
    if job.state.terminal:
        return
    job = handover_abort.leave(tx, handover_abort.abort(tx, job, reason))
    job = attempts.finish(tx, job, JobState.CANCELLED, reason)
    if job.stage is Stage.NONE:
        attempts.without_container(tx, job, reason)
    elif job.stage in (Stage.LAUNCHING, Stage.READY):
        attempts.remove(tx, job, reason)
    elif job.stage is not Stage.ENDING:
        attempts.end(tx, job, reason)
    else:
        deadline = attempts.until(tx, DeadlineKind.END, tx.limits.end_s)
        tx.state.put_job(replace(job, deadline=deadline))


def on_container_gone(tx: Transaction, job: Job, reason: str, exit_code: int | None) -> None:
    """Queue, halt or end a job whose container is gone with every process in it.

    An end that was not requested is a failure of the job, unless it trained and its container ended
    with exit code 0: then the container was stopped from outside, and may have saved before.
    """
    tx.note(job, "container-gone", reason)
    in_order = exit_code == 0
    if job.stage is not Stage.ENDING and not (in_order and _told_to_end(job)):
        taken_away = in_order and job.stage in (Stage.TRAINING, Stage.SAVING)
        job = handover_abort.leave(tx, handover_abort.abort(tx, job, reason))
        gpu_ledger.release(tx, job, job.gpus, job.generation)
        job = attempts.count_lost_work(replace(job, gpus=()))
        if not taken_away:
            job = attempts.count_failure(tx, job, reason)
    else:
        if job.change is not None and job.change.kind is ChangeKind.GROW:
            job = handover_abort.leave(tx, job)
        if job.halt_wanted:
            job = handover_abort.abort(tx, job, "paused on request")
        if job.hand_over is not None:
            stay = tuple(gpu for gpu in job.gpus if gpu in job.hand_over.gpus)
            gpu_ledger.promise(tx, stay, job.id)
        gpu_ledger.release(tx, job, job.gpus, job.generation)
        reason = job.reason
    job = attempts.without_container(tx, job, reason)
    if job.failures and job.state is JobState.SUBMITTED and job.hand_over is None:
        attempts.back_off(tx, job)
    handover.advance(tx, job.id)


def _told_to_end(job: Job) -> bool:
    """Whether the job's SideCar was asked to save and end the container, without an outcome yet."""
    ends = (ChangeKind.RELAUNCH, ChangeKind.LEAVE)
    return job.change is not None and job.change.kind in ends


def _tries_elsewhere(tx: Transaction, job: Job, reason: str) -> bool:
    """Queue a job for another host if it has a retry left and an untried host has enough GPUs.

    Returns whether it did. A drained host counts as well.
    """
    if job.host is None or job.only_host is not None or job.failures >= job.spec.retries:
        return False
    tried = (*job.unfit_on, job.host)
    hosts = tx.state.hosts.values()
    if all(host.id in tried or len(host.gpus) < min(job.sizes) for host in hosts):
        return False
    job = replace(job, unfit_on=tried, start_failures=())
    job = attempts.count_failure(tx, job, f"{job.host}: {reason}")
    attempts.end(tx, job, f"queued again for another host; error on {job.reason}")
    return True


def _end_for_good(tx: Transaction, job: Job, reason: str) -> None:
    """Halt a job with its checkpoint, for a person to examine; fail it if it never trained."""
    if job.progress.step > 0 or job.progress.checkpoint_step:
        attempts.end(tx, job, f"paused, checkpoint kept: {reason}", after=JobState.HALTED)
        return
    job = attempts.finish(tx, job, JobState.FAILED, reason)
    attempts.end(tx, job, reason)


def on_start_hung(tx: Transaction, job: Job, reason: str) -> None:
    """Queue a job again that made no first step by the deadline; its process may still run (R5)."""
    size = len(job.gpus)
    job = handover_abort.leave(tx, replace(job, start_failures=(*job.start_failures, size)))
    tx.note(job, "start-failed", f"on {gpus(size)}: {reason}")
    if job.start_failures.count(size) >= tx.limits.start_failures_max:
        exclude_size(tx, job, size, reason)
    else:
        attempts.end(tx, job, f"queued again: {reason}")


def on_launch_failed(tx: Transaction, job: Job, reason: str, *, retryable: bool) -> None:
    """End an attempt that could not be launched or did not initialise."""
    job = handover_abort.abort(tx, job, reason)
    if retryable:
        job = attempts.count_failure(tx, job, reason)
    else:
        job = attempts.finish(tx, job, JobState.FAILED, reason)
    attempts.remove(tx, job, reason)


def on_host_silent(tx: Transaction, host: Host, reason: str) -> None:
    """Mark the GPUs of a silent host as lost, and queue its jobs for other hosts.

    Their processes may still run: the attempt number fences them.
    """
    tx.state.put_host(replace(host, present=False))
    tx.note(None, "host-silent", f"{host.id}: {reason}")
    _evict_from_host(tx, host, f"{host.id} does not answer: {reason}")
    gpu_ledger.lose(tx, host.id, reason)


def on_gpus_unseen(tx: Transaction, gone: tuple[GpuId, ...]) -> None:
    """Take GPUs out of use that their host does not show; a job that trains on one leaves."""
    for job in sorted(tx.state.jobs.values(), key=lambda job: job.place):
        _get_none_of(tx, tx.state.jobs[job.id], gone)
    for job in sorted(tx.state.jobs.values(), key=lambda job: job.place):
        leave_unseen(tx, tx.state.jobs[job.id])


def leave_unseen(tx: Transaction, job: Job) -> bool:
    """Have a settled job leave GPUs that its host does not show. Returns whether it has any."""
    reason = _unseen(tx, job)
    if reason:
        leave(tx, job, reason, after=JobState.SUBMITTED)
    return bool(reason)


def _unseen(tx: Transaction, job: Job) -> str:
    gone = [gpu for gpu in job.gpus if tx.state.gpus[gpu].unseen]
    return f"{job.host} no longer reports {', '.join(gone)}" if gone else ""


def _get_none_of(tx: Transaction, job: Job, gone: tuple[GpuId, ...]) -> None:
    """Abort the request or hand-over that would give the job one of these GPUs (R2)."""
    coming = job.hand_over.gpus if job.hand_over is not None else ()
    if job.change is not None and job.change.kind is ChangeKind.GROW:
        coming += job.change.gpus_after[job.change.size_before :]
    lost = [gpu for gpu in coming if gpu in gone]
    if lost:
        reason = f"the host no longer reports {', '.join(lost)}"
        handover_abort.abort_request(tx, job, reason)
        handover_abort.abort(tx, tx.state.jobs[job.id], reason)


def on_host_cleaned(tx: Transaction, host: Host, reason: str) -> None:
    """Free the lost and quarantined GPUs of a host on which no earlier process runs."""
    _evict_from_host(tx, host, f"{host.id} was cleaned: {reason}")
    tx.state.put_host(replace(host, present=True))
    for gpu in tuple(tx.state.gpus_of_host(host.id)):
        gpu_ledger.free(tx, gpu)
    tx.note(None, "host-cleaned", f"{host.id}: {reason}")


def _evict_from_host(tx: Transaction, host: Host, reason: str) -> None:
    """End every job and hand-over on the host. This counts as no failure of a job."""
    for job_id in sorted(tx.state.jobs, key=lambda job_id: tx.state.jobs[job_id].place):
        job = tx.state.jobs.get(job_id)
        if job is None:
            continue
        if job.host == host.id:
            job = handover_abort.leave(tx, handover_abort.abort(tx, job, reason))
            job = attempts.count_lost_work(job)
            tx.note(job, "host-lost", reason)
            attempts.without_container(tx, job, reason)
        elif job.hand_over is not None and _on_host(tx, job.hand_over.gpus, host):
            handover_abort.withdraw_request(tx, job, reason)
            handover_abort.abort(tx, tx.state.jobs[job_id], reason)


def _on_host(tx: Transaction, gpus: tuple[GpuId, ...], host: Host) -> bool:
    return any(tx.state.gpus[gpu].host == host.id for gpu in gpus)
