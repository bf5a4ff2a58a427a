"""The end of a hand-over without a grant: aborted, withdrawn, refused, or left by a donor.

Does: gives reserved and promised GPUs back if nothing moves yet, and withdraws pending requests by
a higher generation (rules R2, R9). What moves already rolls forward.
Never: takes a GPU from a process without evidence.
"""

from __future__ import annotations

from reshape_controller.core import attempts
from reshape_controller.core.coordinator import gpu_ledger
from reshape_controller.core.fast_replace import replace
from reshape_controller.core.model import (
    Change,
    ChangeKind,
    DeadlineKind,
    GpuId,
    Job,
    JobState,
    Stage,
)
from reshape_controller.core.transaction import Transaction
from reshape_sidecar.wire import Mode


def abort(tx: Transaction, newcomer: Job, reason: str) -> Job:
    """Abort a newcomer's hand-over: free its reserved GPUs, take back its promises, withdraw
    requests without an outcome. What moves already rolls forward (R2)."""
    hand_over = newcomer.hand_over
    if hand_over is None:
        return newcomer
    newcomer = replace(newcomer, hand_over=None, reason=reason)
    if newcomer.stage is Stage.READY:
        hold = attempts.until(tx, DeadlineKind.INITIALIZED_HOLD, tx.limits.initialized_hold_s)
        newcomer = replace(newcomer, deadline=hold)
    tx.state.put_job(newcomer)
    tx.note(newcomer, "hand-over-ended", reason)
    for gpu in (tx.state.gpus[gpu] for gpu in hand_over.gpus):
        if gpu.promised_to == newcomer.id:
            gpu_ledger.promise(tx, (gpu.id,), None)
        elif gpu_ledger.is_reserved_for(tx, newcomer.id, (gpu.id,)):
            gpu_ledger.free(tx, gpu)
    for donor_id in hand_over.donors:
        donor = tx.state.jobs.get(donor_id)
        if donor is None:
            continue
        if donor.donation is not None and donor.donation.to == newcomer.id:
            tx.state.put_job(replace(donor, donation=None))
        elif donor.change is not None and donor.change.for_job == newcomer.id:
            withdraw_request(tx, donor, reason)
    tx.state.plan_wanted = True
    return newcomer


def withdraw_request(tx: Transaction, job: Job, reason: str) -> None:
    """Withdraw a request by a higher generation. The SideCar answers with either outcome."""
    change = job.change
    if change is None or job.stage is not Stage.SAVING or change.withdrawn:
        return
    if change.kind is not ChangeKind.GROW:  # its new GPUs may be in use until it answers
        job = _drop_own_hand_over(tx, job)
    job = attempts.ask(tx, job, Mode.RUN, job.gpus)
    job = replace(
        job,
        change=replace(change, for_job=None, withdrawn=True),
        reason=reason,
        deadline=attempts.until(tx, DeadlineKind.SAVE_ANSWER, tx.limits.save_answer_s),
    )
    tx.state.put_job(job)
    tx.note(job, "withdrawn", reason)


def abort_request(tx: Transaction, job: Job, reason: str) -> None:
    """Withdraw the request to a job; if it is for a newcomer, abort the newcomer's hand-over."""
    to = job.change.for_job if job.change is not None else None
    newcomer = tx.state.jobs.get(to) if to is not None else None
    if newcomer is not None and newcomer.hand_over is not None:
        abort(tx, newcomer, reason)
    else:
        withdraw_request(tx, job, reason)


def leave(tx: Transaction, donor: Job) -> Job:
    """Take a donor that ended by itself out of its hand-over; its GPUs stay promised.

    A donor that grows gets its new GPUs as its own: it may train on them already, unreported, and
    so their release is verified like that of the others.
    """
    to = donor.donation.to if donor.donation else donor.change.for_job if donor.change else None
    newcomer = tx.state.jobs.get(to) if to is not None else None
    if newcomer is not None and newcomer.hand_over is not None:
        donors = tuple(job for job in newcomer.hand_over.donors if job != donor.id)
        hand_over = replace(newcomer.hand_over, donors=donors)
        tx.state.put_job(replace(newcomer, hand_over=hand_over))
    if donor.change is not None and donor.change.kind is ChangeKind.GROW:
        more = _reserved(tx, donor, donor.change)
        gpu_ledger.use(tx, more, donor.id)
        donor = replace(donor, gpus=donor.gpus + more)
    elif donor.change is not None:
        donor = _drop_own_hand_over(tx, donor)
    donor = replace(donor, donation=None, change=None)
    tx.state.put_job(donor)
    return donor


def on_refused(tx: Transaction, job: Job, change: Change, devices: tuple[str, ...]) -> None:
    """Take in a refusal: training goes on at its size, and no GPU was taken (R2, R9)."""
    before = job.gpus
    job = _drop_own_hand_over(tx, _where_it_trains(tx, job, change, devices))
    if not change.withdrawn or job.gpus != before:
        job = attempts.ask(tx, job, Mode.RUN, job.gpus)
    wait_s = 0.0 if change.withdrawn else tx.limits.refusal_cooldown_s
    job = replace(
        job,
        state=JobState.RUNNING,
        stage=Stage.TRAINING,
        change=None,
        after_end=JobState.SUBMITTED,
        refused_until_s=tx.now_s + wait_s,
        reason="" if change.withdrawn else "did not save in time, so it trains on",
        deadline=None if change.withdrawn else attempts.until(tx, DeadlineKind.RETRY, wait_s),
    )
    tx.state.put_job(job)
    tx.note(job, "refused", "did not stop; it trains on with the same GPUs")
    newcomer = tx.state.jobs.get(change.for_job) if change.for_job is not None else None
    if newcomer is not None:
        abort(tx, newcomer, f"{job.spec.name} did not save in time and keeps its GPUs")
    tx.state.plan_wanted = True


def _where_it_trains(tx: Transaction, job: Job, change: Change, devices: tuple[str, ...]) -> Job:
    """Return the job with the GPUs that it trains on after a refusal.

    A withdrawal may reach a SideCar that has already made the change, unreported. If it then
    refuses to go back, the change took place.
    """
    may = job.gpus + _reserved(tx, job, change)
    gpus = tuple(gpu for gpu in may if gpu in devices)
    if not change.withdrawn or set(gpus) == set(job.gpus) or len(gpus) not in job.sizes:
        return job
    given = tuple(gpu for gpu in job.gpus if gpu not in gpus)
    gpu_ledger.use(tx, tuple(gpu for gpu in gpus if gpu not in job.gpus), job.id)
    # The process runs under the request's generation; older ones must be gone.
    gpu_ledger.release(tx, job, given, job.generation - 2)
    job = attempts.count_reshape(tx, job, change.size_before, len(gpus))
    job = replace(job, gpus=gpus, process_restarts=job.process_restarts + 1)
    tx.state.put_job(job)
    return job


def _reserved(tx: Transaction, job: Job, change: Change) -> tuple[GpuId, ...]:
    """Return the GPUs that are reserved for the job's own growth or relaunch."""
    return tuple(gpu for gpu in change.gpus_after if gpu_ledger.is_reserved_for(tx, job.id, (gpu,)))


def free_unused(tx: Transaction, job: Job, change: Change) -> None:
    """Free GPUs that were reserved for a change and are not used."""
    for gpu in _reserved(tx, job, change):
        gpu_ledger.free(tx, tx.state.gpus[gpu])


def _drop_own_hand_over(tx: Transaction, job: Job) -> Job:
    """Free the GPUs reserved for the job's own growth or relaunch, and drop its hand-over."""
    if job.change is not None:
        free_unused(tx, job, job.change)
    job = replace(job, hand_over=None)
    tx.state.put_job(job)
    return job
