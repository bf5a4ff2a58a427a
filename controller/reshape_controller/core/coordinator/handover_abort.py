"""The end of a hand-over without a grant: aborted, withdrawn, refused, or left by a donor.

Does: gives reserved and promised GPUs back if nothing moves yet, and withdraws pending requests by
a higher generation (rules R2, R9). What moves already rolls forward.
Never: takes a GPU from a process without evidence.
"""

from __future__ import annotations

from reshape_controller.core import attempts, gang
from reshape_controller.core.coordinator import gpu_ledger, preparation
from reshape_controller.core.fast_replace import replace
from reshape_controller.core.model import (
    Change,
    ChangeKind,
    DeadlineKind,
    GpuId,
    Job,
    JobId,
    JobState,
    Stage,
)
from reshape_controller.core.transaction import Transaction
from reshape_sidecar.wire import Mode


def abort(tx: Transaction, job_id: JobId, reason: str) -> Job:
    """Abort a newcomer's hand-over, and return the newcomer: free its reserved GPUs, take back its
    promises, withdraw requests without an outcome. What moves already rolls forward (R2)."""
    newcomer = tx.state.jobs[job_id]
    hand_over = newcomer.hand_over
    if hand_over is None:
        return newcomer
    newcomer = tx.update(job_id, hand_over=None, reason=reason)
    if newcomer.stage is Stage.READY:
        hold = attempts.until(tx, DeadlineKind.INITIALIZED_HOLD, tx.limits.initialized_hold_s)
        newcomer = tx.update(job_id, deadline=hold)
    preparation.give_up(tx, job_id)
    tx.note(newcomer, "hand-over-ended", reason)
    for gpu in (tx.state.gpus[gpu] for gpu in hand_over.gpus):
        if gpu.promised_to == job_id:
            gpu_ledger.promise(tx, (gpu.id,), None)
        elif gpu_ledger.is_reserved_for(tx, job_id, (gpu.id,)):
            gpu_ledger.free(tx, gpu)
    for donor_id in hand_over.donors:
        donor = tx.state.jobs.get(donor_id)
        if donor is None:
            continue
        if donor.donation is not None and donor.donation.to == job_id:
            tx.update(donor_id, donation=None)
            preparation.give_up(tx, donor_id)
        elif donor.change is not None and donor.change.for_job == job_id:
            withdraw_request(tx, donor_id, reason)
    tx.state.plan_wanted = True
    return tx.state.jobs[job_id]


def stop_receiving(tx: Transaction, job_id: JobId, reason: str) -> None:
    """Abort the hand-over to a job that trains and now stops for another reason than to grow."""
    if tx.state.jobs[job_id].stage is Stage.TRAINING:
        abort(tx, job_id, reason)


def withdraw_request(tx: Transaction, job_id: JobId, reason: str) -> None:
    """Withdraw a request by a higher generation. The SideCar answers with either outcome."""
    job = tx.state.jobs[job_id]
    change = job.change
    if change is None or job.stage is not Stage.SAVING or change.withdrawn:
        return
    if change.kind is not ChangeKind.GROW:  # its new GPUs may be in use until it answers
        _drop_own_hand_over(tx, job_id)
    attempts.ask(tx, job_id, Mode.RUN, job.gpus)
    job = tx.update(
        job_id,
        change=replace(change, for_job=None, withdrawn=True),
        reason=reason,
        deadline=attempts.until(tx, DeadlineKind.SAVE_ANSWER, tx.limits.save_answer_s),
    )
    tx.note(job, "withdrawn", reason)


def abort_request(tx: Transaction, job_id: JobId, reason: str) -> None:
    """Withdraw the request to a job; if it is for a newcomer, abort the newcomer's hand-over."""
    change = tx.state.jobs[job_id].change
    to = change.for_job if change is not None else None
    newcomer = tx.state.jobs.get(to) if to is not None else None
    if newcomer is not None and newcomer.hand_over is not None:
        abort(tx, newcomer.id, reason)
    else:
        withdraw_request(tx, job_id, reason)


def leave(tx: Transaction, job_id: JobId) -> Job:
    """Take a donor that ended by itself out of its hand-over, and return it; its GPUs stay
    promised.

    A donor that grows gets its new GPUs as its own: it may train on them already, unreported, and
    so their release is verified like that of the others.
    """
    donor = tx.state.jobs[job_id]
    if donor.donation is None and donor.change is None:
        return donor
    to = donor.donation.to if donor.donation else donor.change.for_job if donor.change else None
    newcomer = tx.state.jobs.get(to) if to is not None else None
    if newcomer is not None and newcomer.hand_over is not None:
        donors = tuple(job for job in newcomer.hand_over.donors if job != job_id)
        tx.update(newcomer.id, hand_over=replace(newcomer.hand_over, donors=donors))
    if donor.change is not None and donor.change.kind is ChangeKind.GROW:
        more = _reserved(tx, donor)
        gpu_ledger.use(tx, more, job_id)
        gpus = gang.by_worker(tx.state.gpus, donor.gpus + more, donor.all_hosts)
        tx.update(job_id, gpus=gpus)
    elif donor.change is not None:
        _drop_own_hand_over(tx, job_id)
    return tx.update(job_id, donation=None, prepare=None, change=None)


def on_refused(tx: Transaction, job_id: JobId, devices: tuple[str, ...]) -> None:
    """Take in a refusal: training goes on at its size, and no GPU was taken (R2, R9)."""
    before = tx.state.jobs[job_id]
    change = before.change
    assert change is not None
    _take_where_it_trains(tx, job_id, change, devices)
    job = _drop_own_hand_over(tx, job_id)
    if not change.withdrawn or job.gpus != before.gpus:
        attempts.ask(tx, job_id, Mode.RUN, job.gpus)
    wait_s = 0.0 if change.withdrawn else tx.limits.refusal_cooldown_s
    job = tx.move(
        job_id,
        Stage.TRAINING,
        state=JobState.RUNNING,
        change=None,
        after_end=JobState.SUBMITTED,
        refused_until_s=tx.now_s + wait_s,
        reason="" if change.withdrawn else "did not save in time, so it trains on",
        deadline=None if change.withdrawn else attempts.until(tx, DeadlineKind.RETRY, wait_s),
    )
    tx.note(job, "refused", "did not stop; it trains on with the same GPUs")
    newcomer = tx.state.jobs.get(change.for_job) if change.for_job is not None else None
    if newcomer is not None:
        abort(tx, newcomer.id, f"{job.spec.name} did not save in time and keeps its GPUs")
    tx.state.plan_wanted = True


def _take_where_it_trains(
    tx: Transaction, job_id: JobId, change: Change, devices: tuple[str, ...]
) -> None:
    """Give the job the GPUs that it trains on after a refusal.

    A withdrawal may reach a SideCar that has already made the change, unreported. If it then
    refuses to go back, the change took place.
    """
    job = tx.state.jobs[job_id]
    may = job.gpus + _reserved(tx, job)
    gpus = tuple(gpu for gpu in may if gpu in devices)
    gpus = gang.by_worker(tx.state.gpus, gpus, job.all_hosts)
    if not change.withdrawn or set(gpus) == set(job.gpus) or len(gpus) not in job.sizes:
        return
    given = tuple(gpu for gpu in job.gpus if gpu not in gpus)
    gpu_ledger.use(tx, tuple(gpu for gpu in gpus if gpu not in job.gpus), job_id)
    # The process runs under the request's generation; older ones must be gone.
    gpu_ledger.release(tx, job_id, given, job.generation - 2)
    attempts.count_reshape(tx, job_id, change.size_before, len(gpus))
    tx.update(job_id, gpus=gpus, process_restarts=job.process_restarts + 1)


def _reserved(tx: Transaction, job: Job) -> tuple[GpuId, ...]:
    """Return the GPUs that are reserved for the job's own growth or relaunch."""
    after = job.change.gpus_after if job.change is not None else ()
    return tuple(gpu for gpu in after if gpu_ledger.is_reserved_for(tx, job.id, (gpu,)))


def free_unused(tx: Transaction, job_id: JobId) -> None:
    """Free GPUs that were reserved for the job's change and are not used."""
    for gpu in _reserved(tx, tx.state.jobs[job_id]):
        gpu_ledger.free(tx, tx.state.gpus[gpu])


def _drop_own_hand_over(tx: Transaction, job_id: JobId) -> Job:
    """Free the GPUs reserved for the job's own growth or relaunch, and drop its hand-over."""
    free_unused(tx, job_id)
    return tx.update(job_id, hand_over=None)
