"""How jobs, starts and containers end: complete, failed, cancelled, halted, gone.

Does: turns an ending into its consequences for the GPUs, the queue and the parties of a hand-over.
Never: frees a GPU whose process may still run: it is released, and the release is verified.
"""

from __future__ import annotations

from reshape_controller.core import attempts
from reshape_controller.core import events as ev
from reshape_controller.core.coordinator import gpu_ledger, handover, handover_abort
from reshape_controller.core.explanation import each_gpus, gpus
from reshape_controller.core.model import (
    ChangeKind,
    DeadlineKind,
    GpuId,
    Host,
    Job,
    JobState,
    Stage,
)
from reshape_controller.core.replacing import replace
from reshape_controller.core.state import Transaction


def on_files_found(tx: Transaction, job: Job, event: ev.FilesFound) -> None:
    """Keep what was found. An attempt on a host from which they cannot be reached was not started:
    the job is queued again, and that is not its failure."""
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
    """Training reached its end; whatever was asked of the job meanwhile is void (R7)."""
    job = handover_abort.leave(tx, job)
    gpu_ledger.release(tx, job, job.gpus, job.generation)
    job = attempts.finish(tx, replace(job, gpus=()), JobState.COMPLETED, reason)
    attempts.end(tx, job, reason)


def leave_terminal(tx: Transaction, job: Job) -> None:
    """A job that failed or was cancelled lets go of everything; its container ends."""
    job = handover_abort.leave(tx, job)
    attempts.end(tx, job, job.reason)


def start_failed(tx: Transaction, job: Job, reason: str) -> None:
    """A start that did not reach its first step (R5): once more, then the size is struck."""
    size = len(job.gpus)
    tx.note(job, "start-failed", f"on {gpus(size)}: {reason}")
    unseen = _unseen(tx, job)
    if unseen:  # no fault of that size
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
    """Take a size at which it does not start out of the job's sizes; without another it is halted,
    or failed if it never trained at all. Unless it just trained there at another size, its host may
    be at fault: another one is tried first."""
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


def unfit(tx: Transaction, job: Job, reason: str) -> None:
    """Its attempt cannot or must not train where it is.

    What a self-check misses on this host (a mount, a GPU) may be there on another; one host that
    lacks it would fail a whole queue. Where none is left, trying again would not help.
    """
    checks = job.stage is Stage.LAUNCHING
    job = handover_abort.leave(tx, handover_abort.abort(tx, job, reason))
    if not checks or not _tries_elsewhere(tx, job, reason):
        _end_for_good(tx, job, reason)


def leave(tx: Transaction, job: Job, reason: str, *, after: JobState) -> None:
    """A settled job gives everything back with its work saved, and is queued again or halted."""
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
    """End the job, whatever it is doing. What it holds is released and verified."""
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


def container_gone(tx: Transaction, job: Job, reason: str, exit_code: int | None) -> None:
    """The container with every process in it is gone; not asked for, it is a failure of the job,
    unless it trained and ended in order: somebody took it away, and it may save before that."""
    tx.note(job, "container-gone", reason)
    in_order = exit_code == 0
    if job.stage is not Stage.ENDING and not (in_order and _told_to_end(job)):
        taken_away = in_order and job.stage in (Stage.TRAINING, Stage.SAVING)
        job = handover_abort.leave(tx, handover_abort.abort(tx, job, reason))
        gpu_ledger.release(tx, job, job.gpus, job.generation)
        job = attempts.lost_work(replace(job, gpus=()))
        if not taken_away:
            job = attempts.count_failure(tx, job, reason)
    else:
        if job.change is not None and job.change.kind is ChangeKind.GROW:
            job = handover_abort.leave(tx, job)
        if job.halt_wanted:
            job = handover_abort.abort(tx, job, "paused on request")
        if job.hand_over is not None:
            kept = tuple(gpu for gpu in job.gpus if gpu in job.hand_over.gpus)
            gpu_ledger.promise(tx, kept, job.id)
        gpu_ledger.release(tx, job, job.gpus, job.generation)
        reason = job.reason
    job = attempts.without_container(tx, job, reason)
    if job.failures and job.state is JobState.SUBMITTED and job.hand_over is None:
        attempts.back_off(tx, job)
    handover.advance(tx, job.id)


def _told_to_end(job: Job) -> bool:
    """Whether its SideCar was told to save and end the container, and has not been heard since."""
    ends = (ChangeKind.RELAUNCH, ChangeKind.LEAVE)
    return job.change is not None and job.change.kind in ends


def _tries_elsewhere(tx: Transaction, job: Job, reason: str) -> bool:
    """Queue a job that could not start on its host again for another one, if it may fail once more
    and there is one, drained or not, that it did not try and that has GPUs enough."""
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
    """Halted with its checkpoint, for somebody to look; failed if it never trained."""
    if job.progress.step > 0 or job.progress.checkpoint_step:
        attempts.end(tx, job, f"paused, checkpoint kept: {reason}", after=JobState.HALTED)
        return
    job = attempts.finish(tx, job, JobState.FAILED, reason)
    attempts.end(tx, job, reason)


def start_hung(tx: Transaction, job: Job, reason: str) -> None:
    """No first step by the deadline: like a failed start, but something still runs (R5)."""
    size = len(job.gpus)
    job = handover_abort.leave(tx, replace(job, start_failures=(*job.start_failures, size)))
    tx.note(job, "start-failed", f"on {gpus(size)}: {reason}")
    if job.start_failures.count(size) >= tx.limits.start_failures_max:
        exclude_size(tx, job, size, reason)
    else:
        attempts.end(tx, job, f"queued again: {reason}")


def launch_failed(tx: Transaction, job: Job, reason: str, *, retryable: bool) -> None:
    """The attempt could not be launched, or never came up."""
    job = handover_abort.abort(tx, job, reason)
    if retryable:
        job = attempts.count_failure(tx, job, reason)
    else:
        job = attempts.finish(tx, job, JobState.FAILED, reason)
    attempts.remove(tx, job, reason)


def host_silent(tx: Transaction, host: Host, reason: str) -> None:
    """What runs there is unknown: its GPUs are lost, its jobs go elsewhere from their
    checkpoints. The old copies are fenced by their attempt."""
    tx.state.put_host(replace(host, present=False))
    tx.note(None, "host-silent", f"{host.id}: {reason}")
    _evict_from_host(tx, host, f"{host.id} does not answer: {reason}")
    gpu_ledger.lose(tx, host.id, reason)


def gpus_unseen(tx: Transaction, gone: tuple[GpuId, ...]) -> None:
    """A host does not show these GPUs: nobody gets them any more, and who trains on one leaves."""
    for job in sorted(tx.state.jobs.values(), key=lambda job: job.place):
        _get_none_of(tx, tx.state.jobs[job.id], gone)
    for job in sorted(tx.state.jobs.values(), key=lambda job: job.place):
        leave_unseen(tx, tx.state.jobs[job.id])


def leave_unseen(tx: Transaction, job: Job) -> bool:
    """Have a settled job leave GPUs that its host does not show; whether it has such."""
    reason = _unseen(tx, job)
    if reason:
        leave(tx, job, reason, after=JobState.SUBMITTED)
    return bool(reason)


def _unseen(tx: Transaction, job: Job) -> str:
    gone = [gpu for gpu in job.gpus if tx.state.gpus[gpu].unseen]
    return f"{job.host} no longer reports {', '.join(gone)}" if gone else ""


def _get_none_of(tx: Transaction, job: Job, gone: tuple[GpuId, ...]) -> None:
    """Give up what would bring the job one of these GPUs, as far as nothing moves yet (R2)."""
    coming = job.hand_over.gpus if job.hand_over is not None else ()
    if job.change is not None and job.change.kind is ChangeKind.GROW:
        coming += job.change.gpus_after[job.change.size_before :]
    lost = [gpu for gpu in coming if gpu in gone]
    if lost:
        reason = f"the host no longer reports {', '.join(lost)}"
        handover_abort.abort_request(tx, job, reason)
        handover_abort.abort(tx, tx.state.jobs[job.id], reason)


def host_cleaned(tx: Transaction, host: Host, reason: str) -> None:
    """Nothing of before runs there: what was lost or quarantined is idle again."""
    _evict_from_host(tx, host, f"{host.id} was cleaned: {reason}")
    tx.state.put_host(replace(host, present=True))
    for gpu in tuple(tx.state.gpus_of_host(host.id)):
        gpu_ledger.free(tx, gpu)
    tx.note(None, "host-cleaned", f"{host.id}: {reason}")


def _evict_from_host(tx: Transaction, host: Host, reason: str) -> None:
    """End every part that the host has in a job or hand-over. Not the jobs' failure."""
    for job_id in sorted(tx.state.jobs, key=lambda job_id: tx.state.jobs[job_id].place):
        job = tx.state.jobs.get(job_id)
        if job is None:
            continue
        if job.host == host.id:
            job = handover_abort.leave(tx, handover_abort.abort(tx, job, reason))
            job = attempts.lost_work(job)
            tx.note(job, "host-lost", reason)
            attempts.without_container(tx, job, reason)
        elif job.hand_over is not None and _on_host(tx, job.hand_over.gpus, host):
            handover_abort.withdraw_request(tx, job, reason)
            handover_abort.abort(tx, tx.state.jobs[job_id], reason)


def _on_host(tx: Transaction, gpus: tuple[GpuId, ...], host: Host) -> bool:
    return any(tx.state.gpus[gpu].host == host.id for gpu in gpus)
