"""The hand-over of GPUs between jobs, rules R1 to R9 (docs/architecture.md).

Does: begins the hand-over of a plan, asks the donors to shrink once the newcomer is initialised,
takes in each donor's outcome, and grants GPUs with a verified release. Idle GPUs that turn up
before the donors are asked spare a donor. A reshape up is the same machine with one party; with the
mechanism ``terminate`` a running job leaves its container instead of shrinking in it.
Never: grants a GPU before its release is verified.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.core import attempts
from reshape_controller.core.coordinator import gpu_ledger, handover_abort
from reshape_controller.core.explanation import gpus
from reshape_controller.core.fast_replace import replace
from reshape_controller.core.model import (
    Change,
    ChangeKind,
    DeadlineKind,
    Donation,
    GpuId,
    HandOver,
    HostId,
    Job,
    JobId,
    JobState,
    Mechanism,
    Stage,
)
from reshape_controller.core.transaction import Transaction
from reshape_sidecar.wire import Mode, Outcome, OutcomeKind

RESUME_SEEN_S = 10.0
"""Training time after which a first step tells a resume from a new beginning."""


def use_idle_instead(tx: Transaction, host: HostId) -> None:
    """Have hand-overs that have not asked their donors yet take idle GPUs of ``host`` instead of a
    donor's (R2 allows it, as the changed plan takes less from running jobs)."""
    jobs = tx.state.jobs
    for newcomer in sorted(
        (jobs[job] for job in tx.state.pending_shrinks), key=lambda job: job.place
    ):
        assert newcomer.hand_over is not None
        for donor_id in newcomer.hand_over.donors:
            _spare(tx, newcomer.id, donor_id, host)
        advance(tx, newcomer.id)


def _spare(tx: Transaction, newcomer_id: JobId, donor_id: JobId, host: HostId) -> None:
    """Release a donor from its hand-over if idle GPUs can take the place of all that it gives."""
    newcomer, donor = tx.state.jobs[newcomer_id], tx.state.jobs[donor_id]
    assert newcomer.hand_over is not None
    promised = tuple(g for g in donor.gpus if tx.state.gpus[g].promised_to == newcomer_id)
    idle = tx.state.idle_gpus(host)
    if donor.host != host or len(idle) < len(promised):
        return
    instead = idle[: len(promised)]
    gpu_ledger.promise(tx, promised, None)
    gpu_ledger.reserve(tx, instead, newcomer_id)
    tx.update(donor_id, donation=None)
    gpus = tuple(gpu for gpu in newcomer.hand_over.gpus if gpu not in promised) + instead
    donors = tuple(job for job in newcomer.hand_over.donors if job != donor_id)
    newcomer = tx.update(newcomer_id, hand_over=HandOver(gpus, donors))
    tx.note(newcomer, "replanned", f"takes idle GPUs instead; {donor.spec.name} keeps its GPUs")


@dataclass(frozen=True, slots=True)
class DonorShare:
    """The GPUs that a running job keeps, and those that the newcomer gets; the rest become idle."""

    donor: JobId
    keeps: tuple[GpuId, ...]
    gives: tuple[GpuId, ...]


def begin(
    tx: Transaction, job_id: JobId, idle: tuple[GpuId, ...], donors: tuple[DonorShare, ...]
) -> None:
    """Begin a hand-over of ``idle`` GPUs, and of some of each donor's, to a newcomer. The donors
    train on, and are not asked yet (R2)."""
    gpu_ledger.reserve(tx, idle, job_id)
    gpus = list(idle)
    for share in donors:
        gpu_ledger.promise(tx, share.gives, job_id)
        tx.update(share.donor, donation=Donation(job_id, share.keeps))
        gpus += share.gives
    hand_over = HandOver(tuple(gpus), tuple(share.donor for share in donors))
    newcomer = tx.update(job_id, hand_over=hand_over, deadline=None)
    tx.note(newcomer, "planned", _what_was_planned(idle, hand_over))
    advance(tx, job_id)


def grow(tx: Transaction, job_id: JobId, idle: tuple[GpuId, ...], host: HostId) -> None:
    """Reshape a running job up: it gets idle GPUs beside its own, or moves to another host."""
    gpu_ledger.reserve(tx, idle, job_id)
    job = tx.state.jobs[job_id]
    same_host = host == job.host
    after = (job.gpus if same_host else ()) + idle
    if same_host and tx.state.mechanism is Mechanism.SIDECAR:
        _request(tx, job_id, Change(ChangeKind.GROW, len(job.gpus), after, None, tx.now_s))
        return
    tx.update(job_id, hand_over=HandOver(after, size_before=len(job.gpus)))
    _request(tx, job_id, Change(ChangeKind.RELAUNCH, len(job.gpus), after, None, tx.now_s))


def leave(tx: Transaction, job_id: JobId, reason: str, *, after: JobState) -> None:
    """Have a training job save and give all its GPUs back (halt, drain)."""
    job = tx.update(job_id, after_end=after, reason=reason)
    _request(tx, job_id, Change(ChangeKind.LEAVE, len(job.gpus), (), None, tx.now_s))


def advance(tx: Transaction, job_id: JobId) -> None:
    """Take the next step of the job's hand-over that is possible now, if any."""
    job = tx.state.jobs.get(job_id)
    if job is None or job.hand_over is None:
        return
    hand_over = job.hand_over
    early = tx.state.mechanism is Mechanism.SIDECAR
    held = gpu_ledger.is_reserved_for(tx, job.id, hand_over.gpus)
    if job.stage is Stage.NONE and (held or early):
        host = tx.state.hosts[tx.state.gpus[hand_over.gpus[0]].host]
        if host.drained:
            handover_abort.abort(tx, job_id, f"{host.id} is drained")
        else:
            attempts.launch(tx, job_id, host.id)
    elif _may_ask_donors(tx, job, hand_over, early):
        _ask_or_spare_donors(tx, job_id, hand_over)
    elif job.stage is Stage.READY and held and not tx.state.observing:
        _grant(tx, job_id, hand_over)


def on_answer(tx: Transaction, job_id: JobId, outcome: Outcome, devices: tuple[str, ...]) -> None:
    """Take in the SideCar's outcome of the request that is under way (stage SAVING).

    ``devices``: the GPUs that its process trains on.
    """
    job = tx.state.jobs[job_id]
    if outcome.kind is OutcomeKind.REFUSED:
        handover_abort.on_refused(tx, job_id, devices)
        return
    if job.trains_since_s is not None and tx.now_s - job.trains_since_s >= RESUME_SEEN_S:
        tx.update(job_id, left_at_step=job.progress.step)
    job = tx.move(
        job_id,
        Stage.STOPPING,
        steps_lost=job.steps_lost + outcome.lost_steps,
        deadline=attempts.until(tx, DeadlineKind.STOP, tx.limits.kill_after_s + tx.limits.stop_s),
    )
    tx.note(job, "stopping", _what_was_saved(job, outcome), outcome.lost_steps)


def on_stopped(tx: Transaction, job_id: JobId) -> None:
    """Continue a request (stage STOPPING) whose process tree is gone: start again, or end."""
    job = tx.state.jobs[job_id]
    change = job.change
    assert change is not None
    tx.note(job, "stopped", "all its training processes have ended")
    if job.mode is Mode.EXIT:
        wait_s = tx.limits.end_s + tx.limits.kill_after_s
        tx.move(job_id, Stage.ENDING, deadline=attempts.until(tx, DeadlineKind.END, wait_s))
        return
    after = job.devices
    given = tuple(gpu for gpu in job.gpus if gpu not in after)
    gpu_ledger.use(tx, tuple(gpu for gpu in after if gpu not in job.gpus), job_id)
    handover_abort.free_unused(tx, job_id)
    attempts.count_reshape(tx, job_id, change.size_before, len(after))
    tx.move(
        job_id,
        Stage.STARTING,
        gpus=after,
        process_restarts=job.process_restarts + 1,
        reason=f"starts again on {gpus(len(after))}",
        deadline=attempts.until(tx, DeadlineKind.FIRST_STEP, tx.limits.first_step_s),
    )
    gpu_ledger.release(tx, job_id, given, job.generation - 1)


def _may_ask_donors(tx: Transaction, job: Job, hand_over: HandOver, early: bool) -> bool:
    if not hand_over.donors or hand_over.shrink_asked or tx.state.observing:
        return False
    donors = [tx.state.jobs[donor] for donor in hand_over.donors]
    ready = job.stage is Stage.READY or not early
    return ready and all(donor.stage is Stage.TRAINING for donor in donors)


def _ask_or_spare_donors(tx: Transaction, newcomer_id: JobId, hand_over: HandOver) -> None:
    """Ask the donors, unless the newest verdict on one forbids to reshape it."""
    for donor in (tx.state.jobs[donor] for donor in hand_over.donors):
        if donor.fixed_because:
            reason = f"{donor.spec.name} keeps its GPUs: {donor.fixed_because}"
            handover_abort.abort(tx, newcomer_id, reason)
            return
    _ask_donors(tx, newcomer_id, hand_over)


def _ask_donors(tx: Transaction, newcomer_id: JobId, hand_over: HandOver) -> None:
    tx.update(newcomer_id, hand_over=replace(hand_over, shrink_asked=True))
    relaunch = tx.state.mechanism is Mechanism.TERMINATE
    for donor_id in hand_over.donors:
        donor = tx.state.jobs[donor_id]
        assert donor.donation is not None
        keeps, size = donor.donation.keeps, len(donor.gpus)
        tx.update(donor_id, donation=None)
        if relaunch:
            tx.update(donor_id, hand_over=HandOver(keeps, size_before=size))
        kind = ChangeKind.RELAUNCH if relaunch else ChangeKind.SHRINK
        _request(tx, donor_id, Change(kind, size, keeps, newcomer_id, tx.now_s))


def _request(tx: Transaction, job_id: JobId, change: Change) -> None:
    stays = change.kind in (ChangeKind.SHRINK, ChangeKind.GROW)
    job = attempts.ask(
        tx,
        job_id,
        Mode.RUN if stays else Mode.EXIT,
        change.gpus_after if stays else (),
        force=change.kind is ChangeKind.LEAVE and tx.state.jobs[job_id].program.loses,
    )
    wait_s = attempts.save_deadline_s(tx.state, job) + tx.limits.save_answer_s
    reason = f"{change.kind.value}: {change.size_before} to {gpus(len(change.gpus_after))}"
    if change.kind is ChangeKind.LEAVE:
        reason = job.reason  # it names the user or the drain
    if job.program.loses:
        reason += f"; {attempts.loss(job)}"
    job = tx.move(
        job_id,
        Stage.SAVING,
        state=JobState.ADJUSTING,
        change=change,
        watched=True,
        reason=reason,
        deadline=attempts.until(tx, DeadlineKind.SAVE_ANSWER, wait_s),
    )
    tx.note(job, f"{change.kind.value}-asked", reason)


def _grant(tx: Transaction, job_id: JobId, hand_over: HandOver) -> None:
    gpu_ledger.use(tx, hand_over.gpus, job_id)
    job = tx.state.jobs[job_id]
    tx.update(
        job_id,
        hand_over=None,
        state=JobState.RUNNING,
        started_at_s=tx.now_s if job.started_at_s is None else job.started_at_s,
    )
    if hand_over.size_before:
        attempts.count_reshape(tx, job_id, hand_over.size_before, len(hand_over.gpus))
    job = attempts.start(tx, job_id, hand_over.gpus, f"starts on {gpus(len(hand_over.gpus))}")
    tx.note(job, "granted", f"{gpus(len(hand_over.gpus))}: {', '.join(hand_over.gpus)}")


def _what_was_saved(job: Job, outcome: Outcome) -> str:
    if outcome.saved_step is None and not job.progress.step:
        return "no checkpoint; the script reported no step, so the lost work is unknown"
    saved = "no checkpoint" if outcome.saved_step is None else f"step {outcome.saved_step} saved"
    return f"{saved}, {outcome.lost_steps} steps lost"


def _what_was_planned(idle: tuple[GpuId, ...], hand_over: HandOver) -> str:
    text = f"{gpus(len(hand_over.gpus))}: {len(idle)} idle"
    if hand_over.donors:
        text += f", {len(hand_over.gpus) - len(idle)} from {', '.join(hand_over.donors)}"
    return text
