"""The end of jobs, starts and containers, and the hosts from which a job's files can be reached.

Does: turns each end (complete, failed, cancelled, halted, evicted, gone) into its consequences for
the GPUs, the queue and the parties of a hand-over. A job whose files cannot be reached where it was
launched ends there and is queued again.
Never: frees a GPU with a process that may still run: it is released, and the release is verified.
"""

from __future__ import annotations

from reshape_controller.core import attempts, failures, learning, preemption
from reshape_controller.core import events as ev
from reshape_controller.core.attempts import LastWord
from reshape_controller.core.coordinator import gpu_ledger, handover, handover_abort
from reshape_controller.core.fast_replace import replace
from reshape_controller.core.model import (
    ChangeKind,
    DeadlineKind,
    GpuId,
    Host,
    HostId,
    Job,
    JobId,
    JobState,
    Stage,
)
from reshape_controller.core.stop_table import TABLE, Effect, Request
from reshape_controller.core.transaction import Transaction


def on_files_found(tx: Transaction, job_id: JobId, event: ev.FilesFound) -> None:
    """Store the host from which the job's files can be reached.

    If the attempt is on another host, it has not started: the job is queued again, without a
    failure.
    """
    job = tx.state.jobs[job_id]
    elsewhere = event.host is not None and job.all_hosts != (event.host,)
    if elsewhere and job.stage is not Stage.LAUNCHING:
        return
    job = tx.update(job_id, only_host=event.host, only_host_because=event.reason)
    if event.host is not None:
        tx.note(job, "files-found", f"can run only on {event.host}: {event.reason}")
    if elsewhere:
        far = [host for host in job.all_hosts if host != event.host]
        reason = f"{' and '.join(far)} cannot reach its files"
        handover_abort.abort(tx, job_id, reason)
        attempts.remove(tx, job_id, reason)


def complete(tx: Transaction, job_id: JobId, reason: str) -> None:
    """Complete a job at the end of its training; pending requests to it become void (R7)."""
    handover_abort.stop_receiving(tx, job_id, reason)
    job = handover_abort.leave(tx, job_id)
    learning.learn_run(tx, job)
    gpu_ledger.release(tx, job_id, job.gpus, job.generation)
    tx.update(job_id, gpus=())
    attempts.finish(tx, job_id, JobState.COMPLETED, reason)
    attempts.end(tx, job_id, reason)


def on_unfit(tx: Transaction, job_id: JobId, reason: str) -> None:
    """End an attempt that cannot train on its host: queue it for another host, or end it."""
    checks = tx.state.jobs[job_id].stage is Stage.LAUNCHING
    _leave_hand_overs(tx, job_id, reason)
    failures.on_unfit(tx, job_id, reason, checks=checks)


def leave(tx: Transaction, job_id: JobId, reason: str, *, after: JobState) -> None:
    """Have a settled job save and give all its GPUs back; ``after``: its state after that."""
    job = tx.state.jobs[job_id]
    if job.donation is not None:
        handover_abort.abort(tx, job.donation.to, f"{job.spec.name}: {reason}")
    if job.stage is Stage.TRAINING:
        handover_abort.stop_receiving(tx, job_id, reason)
        handover.leave(tx, job_id, reason, after=after)
    elif job.stage in (Stage.LAUNCHING, Stage.READY):
        handover_abort.abort(tx, job_id, reason)
        attempts.remove(tx, job_id, reason, after=after)
    elif job.stage is Stage.STARTING and tx.limits.bounds_runs:
        # Its preparation may take hours, and it has no step that a save could keep.
        handover_abort.leave(tx, job_id)
        attempts.end(tx, job_id, reason, after=after)


def leave_as_wanted(tx: Transaction, job_id: JobId, *, has_waited: bool = False) -> bool:
    """Have a settled job leave if a person wants it: paused, or its host drained. A program that
    cannot save trains on for ``unsaved_wait_s`` first. Returns whether the job is to leave."""
    job = tx.state.jobs[job_id]
    drained = [host for host in job.all_hosts if _is_drained(tx, host)]
    if job.halt_wanted:
        request, reason, after = Request.PAUSE, "paused on request", JobState.HALTED
    elif drained:
        request, reason, after = Request.DRAIN, f"{drained[0]} is drained", JobState.SUBMITTED
    else:
        return False
    if not has_waited and waits_unsaved(tx, job, request, reason):
        return True
    tx.update(job_id, halt_wanted=False)
    leave(tx, job_id, reason, after=after)
    return True


def _is_drained(tx: Transaction, host: HostId) -> bool:
    known = tx.state.hosts.get(host)
    return known is not None and known.drained


def waits_unsaved(tx: Transaction, job: Job, request: Request, reason: str) -> bool:
    """Have a program that cannot save wait before it stops. Returns whether it waits."""
    effect = TABLE[request][job.program]
    if job.stage is not Stage.TRAINING or effect is not Effect.LOST_LATER:
        return False
    wait_s = tx.limits.unsaved_wait_s
    if job.deadline is None or job.deadline.kind is not DeadlineKind.UNSAVED:
        deadline = attempts.until(tx, DeadlineKind.UNSAVED, wait_s)
        reason = f"stops in {wait_s:g} s ({reason}): {attempts.loss(job)}"
        job = tx.update(job.id, deadline=deadline, reason=reason)
        tx.note(job, "waits-unsaved", reason)
    return True


def stay(tx: Transaction, job_id: JobId) -> None:
    """Let a program that cannot save train on if no person wants it to leave any more."""
    job = tx.state.jobs[job_id]
    waits = job.deadline is not None and job.deadline.kind is DeadlineKind.UNSAVED
    if waits and not leave_as_wanted(tx, job_id):
        tx.update(job_id, deadline=None, reason="")


def cancel(tx: Transaction, job_id: JobId, reason: str) -> None:
    """Cancel the job in any stage. Its GPUs are released, and the release is verified."""
    if tx.state.jobs[job_id].state.terminal:
        return
    _leave_hand_overs(tx, job_id, reason)
    job = attempts.finish(tx, job_id, JobState.CANCELLED, reason)
    if job.stage is Stage.NONE:
        attempts.without_container(tx, job_id, reason)
    elif job.stage in (Stage.LAUNCHING, Stage.READY):
        attempts.remove(tx, job_id, reason)
    elif job.stage is not Stage.ENDING:
        attempts.end(tx, job_id, reason)
    else:
        tx.update(job_id, deadline=attempts.until(tx, DeadlineKind.END, tx.limits.end_s))


def on_container_gone(
    tx: Transaction,
    job_id: JobId,
    reason: str,
    exit_code: int | None,
    *,
    unscheduled: bool = False,
) -> None:
    """Queue, halt or end a job whose container is gone with every process in it.

    An end that was not requested is a failure of the job, unless it trained and its container ended
    with exit code 0 (then the container was stopped from outside, and may have saved before), or
    another controller had suspended its container, or the cluster had no room for it
    (``unscheduled``).
    """
    job = tx.state.jobs[job_id]
    in_order, taken_away = exit_code == 0, False
    unasked = job.stage is not Stage.ENDING and not (in_order and _told_to_end(job))
    if unasked:
        trained = job.stage in (Stage.TRAINING, Stage.SAVING)
        taken_away = unscheduled or (in_order and trained) or bool(job.suspended)
    counts = unasked and not taken_away and job.failed_attempt != job.attempt
    tx.note(job, "container-gone", "it ended by itself" if counts else reason)
    if unasked:
        job = _leave_hand_overs(tx, job_id, f"the container of {job.spec.name} is gone")
        gpu_ledger.release(tx, job_id, job.gpus, job.generation)
        tx.update(job_id, gpus=())
        attempts.count_lost_work(tx, job_id, LastWord.WITH_CONTAINER)
        if not taken_away:
            reason = attempts.count_failure(tx, job_id, reason).reason
        elif unscheduled:
            reason = f"queued again: {reason}{_failed_before(job)}"
    else:
        if job.change is not None and job.change.kind is ChangeKind.GROW:
            job = handover_abort.leave(tx, job_id)
        if job.stage is Stage.SAVING:
            preemption.count(tx, job_id)
        if job.halt_wanted:
            job = handover_abort.abort(tx, job_id, "paused on request")
        if job.hand_over is not None:
            stay = tuple(gpu for gpu in job.gpus if gpu in job.hand_over.gpus)
            gpu_ledger.promise(tx, stay, job_id)
        gpu_ledger.release(tx, job_id, job.gpus, job.generation)
        reason = job.reason
    job = attempts.without_container(tx, job_id, reason)
    waits = job.failures > 0 or (taken_away and attempts.counts_starts(tx))
    if waits and job.state is JobState.SUBMITTED and job.hand_over is None:
        attempts.back_off(tx, job_id)
    handover.advance(tx, job_id)


def _failed_before(job: Job) -> str:
    """Return how the job's program failed last: no wait for room hides it."""
    failure = job.failure
    if failure is None or not failure.cause:
        return ""
    message = f": {failure.message}" if failure.message else ""
    return f"; its last failure: {failure.cause}{message}"


def _leave_hand_overs(tx: Transaction, job_id: JobId, reason: str) -> Job:
    """Abort the job's hand-over, take the job out of that to which it gives, and return it."""
    handover_abort.abort(tx, job_id, reason)
    return handover_abort.leave(tx, job_id)


def _told_to_end(job: Job) -> bool:
    """Whether the job's SideCar was asked to save and end the container, without an outcome yet."""
    ends = (ChangeKind.RELAUNCH, ChangeKind.LEAVE)
    return job.change is not None and job.change.kind in ends


def on_launch_failed(tx: Transaction, job_id: JobId, reason: str, *, retryable: bool) -> None:
    """End an attempt that could not be launched or did not initialise."""
    name = tx.state.jobs[job_id].spec.name
    handover_abort.abort(tx, job_id, f"the container of {name} did not come up")
    if retryable:
        job = attempts.count_failure(tx, job_id, reason)
        attempts.remove(tx, job_id, job.reason, after=job.after_end)
    else:
        attempts.finish(tx, job_id, JobState.FAILED, reason)
        attempts.remove(tx, job_id, reason)


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
    in_order = sorted(tx.state.jobs.values(), key=lambda job: job.place)
    for job in in_order:
        _get_none_of(tx, job.id, gone)
    for job in in_order:
        leave_unseen(tx, job.id)


def leave_unseen(tx: Transaction, job_id: JobId) -> bool:
    """Have a settled job leave GPUs that its host does not show. Returns whether it has any."""
    job = tx.state.jobs[job_id]
    reason = attempts.unseen(tx, job)
    if reason and job.stage is not Stage.STARTING:
        leave(tx, job_id, reason, after=JobState.SUBMITTED)
    return bool(reason)


def _get_none_of(tx: Transaction, job_id: JobId, gone: tuple[GpuId, ...]) -> None:
    """Abort the request or hand-over that would give the job one of these GPUs (R2)."""
    job = tx.state.jobs[job_id]
    coming = job.hand_over.gpus if job.hand_over is not None else ()
    if job.change is not None and job.change.kind is ChangeKind.GROW:
        coming += tuple(gpu for gpu in job.change.gpus_after if gpu not in job.gpus)
    lost = [gpu for gpu in coming if gpu in gone]
    if lost:
        reason = f"the host no longer reports {', '.join(lost)}"
        handover_abort.abort_request(tx, job_id, reason)
        handover_abort.abort(tx, job_id, reason)


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
        if job.is_on(host.id):
            _leave_hand_overs(tx, job_id, reason)
            job = attempts.count_lost_work(tx, job_id, LastWord.WITH_HOST)
            if job.hosts and job.failed_attempt == job.attempt:
                # What was left of the gang failed because the others did not answer.
                job = tx.update(job_id, failures=job.failures - 1, failed_attempt=0)
            tx.note(job, "host-lost", reason)
            _end_attempt_without(tx, job_id, host, reason)
        elif job.hand_over is not None and _on_host(tx, job.hand_over.gpus, host):
            handover_abort.withdraw_request(tx, job_id, reason)
            handover_abort.abort(tx, job_id, reason)


def _end_attempt_without(tx: Transaction, job_id: JobId, host: Host, reason: str) -> None:
    """End the whole attempt of a job that has lost a host. Its containers on other hosts are
    removed first, and it keeps its GPUs there until they are gone."""
    job = tx.state.jobs[job_id]
    hosts = tx.state.hosts
    others = [other for other in job.all_hosts if other != host.id and hosts[other].present]
    if not others:
        attempts.without_container(tx, job_id, reason)
        return
    left = tuple(gpu for gpu in job.gpus if tx.state.gpus[gpu].host in others)
    tx.update(job_id, gpus=left)
    attempts.remove(tx, job_id, reason, after=job.after_end)


def _on_host(tx: Transaction, gpus: tuple[GpuId, ...], host: Host) -> bool:
    return any(tx.state.gpus[gpu].host == host.id for gpu in gpus)
