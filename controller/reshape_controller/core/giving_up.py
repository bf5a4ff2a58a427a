"""How a hand-over ends without a grant: abandoned, withdrawn, refused, or parted from.

Does: gives back what was reserved and promised as far as nothing moves yet, and asks for the rest
by a higher generation (rules R2, R9). Never: takes a GPU from a process without evidence.
State: fields of the jobs, and the ledger.
"""

from __future__ import annotations

from reshape_controller.core import attempts, ledger
from reshape_controller.core.model import (
    Change,
    ChangeKind,
    DeadlineKind,
    GpuId,
    Job,
    JobState,
    Stage,
)
from reshape_controller.core.replacing import replace
from reshape_controller.core.state import Turn
from reshape_sidecar.wire import Mode


def abandon(turn: Turn, newcomer: Job, reason: str) -> Job:
    """Give up a newcomer's hand-over: what is reserved becomes idle, promises are taken back,
    a request that has no outcome yet is withdrawn; what already moves rolls forward (R2)."""
    hand_over = newcomer.hand_over
    if hand_over is None:
        return newcomer
    newcomer = replace(newcomer, hand_over=None, reason=reason)
    if newcomer.stage is Stage.READY:
        hold = attempts.until(turn, DeadlineKind.INITIALIZED_HOLD, turn.limits.initialized_hold_s)
        newcomer = replace(newcomer, deadline=hold)
    turn.state.put_job(newcomer)
    turn.note(newcomer, "hand-over-ended", reason)
    for gpu in (turn.state.gpus[gpu] for gpu in hand_over.gpus):
        if gpu.promised_to == newcomer.id:
            ledger.promise(turn, (gpu.id,), None)
        elif ledger.held_by(turn, newcomer.id, (gpu.id,)):
            ledger.free(turn, gpu)
    for donor_id in hand_over.donors:
        donor = turn.state.jobs.get(donor_id)
        if donor is None:
            continue
        if donor.donation is not None and donor.donation.to == newcomer.id:
            turn.state.put_job(replace(donor, donation=None))
        elif donor.change is not None and donor.change.for_job == newcomer.id:
            withdraw(turn, donor, reason)
    turn.state.plan_wanted = True
    return newcomer


def withdraw(turn: Turn, job: Job, reason: str) -> None:
    """Take a request back by a higher generation; the SideCar answers it by one of the two."""
    change = job.change
    if change is None or job.stage is not Stage.SAVING or change.withdrawn:
        return
    if change.kind is not ChangeKind.GROW:  # what it grows onto may be in use until it answers
        job = _drop_own_hand_over(turn, job)
    job = attempts.ask(turn, job, Mode.RUN, job.gpus)
    job = replace(
        job,
        change=replace(change, for_job=None, withdrawn=True),
        reason=reason,
        deadline=attempts.until(turn, DeadlineKind.SAVE_ANSWER, turn.limits.save_answer_s),
    )
    turn.state.put_job(job)
    turn.note(job, "withdrawn", reason)


def take_back(turn: Turn, job: Job, reason: str) -> None:
    """Withdraw what a job was asked for, with the hand-over that it was asked for, if any."""
    to = job.change.for_job if job.change is not None else None
    newcomer = turn.state.jobs.get(to) if to is not None else None
    if newcomer is not None and newcomer.hand_over is not None:
        abandon(turn, newcomer, reason)
    else:
        withdraw(turn, job, reason)


def part(turn: Turn, donor: Job) -> Job:
    """A donor leaves its hand-over because it ended by itself; its GPUs keep their promise.

    What it was told to grow onto becomes its own: it may train there already, unheard, so that
    the release of these GPUs is verified like that of the others.
    """
    to = donor.donation.to if donor.donation else donor.change.for_job if donor.change else None
    newcomer = turn.state.jobs.get(to) if to is not None else None
    if newcomer is not None and newcomer.hand_over is not None:
        donors = tuple(job for job in newcomer.hand_over.donors if job != donor.id)
        hand_over = replace(newcomer.hand_over, donors=donors)
        turn.state.put_job(replace(newcomer, hand_over=hand_over))
    if donor.change is not None and donor.change.kind is ChangeKind.GROW:
        more = _reserved(turn, donor, donor.change)
        ledger.use(turn, more, donor.id)
        donor = replace(donor, gpus=donor.gpus + more)
    elif donor.change is not None:
        donor = _drop_own_hand_over(turn, donor)
    donor = replace(donor, donation=None, change=None)
    turn.state.put_job(donor)
    return donor


def refused(turn: Turn, job: Job, change: Change, devices: tuple[str, ...]) -> None:
    """Nothing was stopped: training goes on at its size, and nothing was taken (R2, R9)."""
    before = job.gpus
    job = _drop_own_hand_over(turn, _where_it_trains(turn, job, change, devices))
    if not change.withdrawn or job.gpus != before:
        job = attempts.ask(turn, job, Mode.RUN, job.gpus)
    wait_s = 0.0 if change.withdrawn else turn.limits.refusal_cooldown_s
    job = replace(
        job,
        state=JobState.RUNNING,
        stage=Stage.TRAINING,
        change=None,
        after_end=JobState.SUBMITTED,
        refused_until_s=turn.now_s + wait_s,
        reason="" if change.withdrawn else "did not save in time and refused to stop",
        deadline=None if change.withdrawn else attempts.until(turn, DeadlineKind.RETRY, wait_s),
    )
    turn.state.put_job(job)
    turn.note(job, "refused", "nothing was stopped; training goes on at its size")
    newcomer = turn.state.jobs.get(change.for_job) if change.for_job is not None else None
    if newcomer is not None:
        abandon(turn, newcomer, f"{job.spec.name} refused to save in time")
    turn.state.plan_wanted = True


def _where_it_trains(turn: Turn, job: Job, change: Change, devices: tuple[str, ...]) -> Job:
    """A withdrawal may come when the SideCar had done, unheard, what was asked before it. If it
    then refuses to go back, the change took place: the job has the GPUs that it trains on."""
    may = job.gpus + _reserved(turn, job, change)
    gpus = tuple(gpu for gpu in may if gpu in devices)
    if not change.withdrawn or set(gpus) == set(job.gpus) or len(gpus) not in job.sizes:
        return job
    given = tuple(gpu for gpu in job.gpus if gpu not in gpus)
    ledger.use(turn, tuple(gpu for gpu in gpus if gpu not in job.gpus), job.id)
    # The process runs under the request's generation; older ones must be gone.
    ledger.release(turn, job, given, job.generation - 2)
    job = attempts.reshaped(turn, job, change.size_before, len(gpus))
    job = replace(job, gpus=gpus, process_restarts=job.process_restarts + 1)
    turn.state.put_job(job)
    return job


def _reserved(turn: Turn, job: Job, change: Change) -> tuple[GpuId, ...]:
    """What is reserved for the job's own growth or relaunch."""
    return tuple(gpu for gpu in change.gpus_after if ledger.held_by(turn, job.id, (gpu,)))


def free_rest(turn: Turn, job: Job, change: Change) -> None:
    """Free what was reserved for a change and is not used."""
    for gpu in _reserved(turn, job, change):
        ledger.free(turn, turn.state.gpus[gpu])


def _drop_own_hand_over(turn: Turn, job: Job) -> Job:
    """Free what was reserved for the job's own growth or relaunch."""
    if job.change is not None:
        free_rest(turn, job, job.change)
    job = replace(job, hand_over=None)
    turn.state.put_job(job)
    return job
