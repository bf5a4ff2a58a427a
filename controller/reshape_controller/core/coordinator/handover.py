"""The hand-over of GPUs between jobs, rules R1 to R9 (docs/architecture.md).

Does: begins the hand-over of a plan, asks the donors to shrink once the newcomer is initialised and
has imported, takes in each donor's outcome, and grants GPUs with a verified release. Idle GPUs that
turn up before the donors are asked spare a donor. A reshape up is the same machine with one party,
or with donors that shrink first: until then the receiver trains. With the mechanism ``terminate`` a
running job leaves its container instead of shrinking in it.
Never: grants a GPU before its release is verified.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.core import attempts, gang, preemption, starts
from reshape_controller.core.coordinator import gpu_ledger, handover_abort, imports, preparation
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
from reshape_controller.core.phrases import gpus
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
    if not donor.is_on(host):
        return
    instead = _idle_instead(tx, promised)
    if instead is None:
        return
    gpu_ledger.promise(tx, promised, None)
    gpu_ledger.reserve(tx, instead, newcomer_id)
    tx.update(donor_id, donation=None)
    preparation.give_up(tx, donor_id)
    gpus = tuple(gpu for gpu in newcomer.hand_over.gpus if gpu not in promised) + instead
    gpus = gang.by_worker(tx.state.gpus, gpus, _hosts(tx, newcomer.hand_over.gpus))
    donors = tuple(job for job in newcomer.hand_over.donors if job != donor_id)
    hand_over = replace(newcomer.hand_over, gpus=gpus, donors=donors)
    newcomer = tx.update(newcomer_id, hand_over=hand_over)
    if newcomer.prepare is not None:
        preparation.begin(tx, newcomer_id, gpus)
    tx.note(newcomer, "replanned", f"takes idle GPUs instead; {donor.spec.name} keeps its GPUs")


def _idle_instead(tx: Transaction, promised: tuple[GpuId, ...]) -> tuple[GpuId, ...] | None:
    """Return as many idle GPUs of the same hosts as are promised; None if there are too few."""
    on: dict[HostId, int] = {}
    for gpu in promised:
        on[tx.state.gpus[gpu].host] = on.get(tx.state.gpus[gpu].host, 0) + 1
    instead: tuple[GpuId, ...] = ()
    for host, count in on.items():
        idle = tx.state.idle_gpus(host)
        if len(idle) < count:
            return None
        instead += idle[:count]
    return instead


def _hosts(tx: Transaction, gpus: tuple[GpuId, ...]) -> tuple[HostId, ...]:
    """Return the host of each GPU."""
    return tuple([tx.state.gpus[gpu].host for gpu in gpus])


@dataclass(frozen=True, slots=True)
class DonorShare:
    """The GPUs that a running job keeps, and those that the receiver gets; the rest become idle."""

    donor: JobId
    keeps: tuple[GpuId, ...]
    gives: tuple[GpuId, ...]


def begin(
    tx: Transaction,
    job_id: JobId,
    idle: tuple[GpuId, ...],
    donors: tuple[DonorShare, ...],
    hosts: tuple[HostId, ...],
) -> None:
    """Begin a hand-over of ``idle`` GPUs, and of some of each donor's, to a newcomer on ``hosts``.
    The donors train on, and are not asked yet (R2)."""
    gpu_ledger.reserve(tx, idle, job_id)
    gpus = gang.by_worker(tx.state.gpus, idle + _promise(tx, job_id, donors), hosts)
    hand_over = HandOver(gpus, tuple(share.donor for share in donors))
    if tx.limits.service_rules:
        tx.update(job_id, runs_since_s=tx.now_s)
    newcomer = tx.update(job_id, hand_over=hand_over, deadline=None)
    tx.note(newcomer, "planned", _what_was_planned(idle, hand_over, hand_over.gpus))
    imports.begin(tx, job_id)
    advance(tx, job_id)


def on_initialized(tx: Transaction, job_id: JobId) -> None:
    """Continue the hand-over to a newcomer that is initialised: once it has imported, if its donors
    are to be asked, else at once."""
    imports.begin(tx, job_id)
    advance(tx, job_id)


def on_imported(tx: Transaction, job_id: JobId) -> None:
    """Continue the hand-over that waited for the newcomer's imports."""
    imports.end_wait(tx, job_id)
    advance(tx, job_id)


def _promise(tx: Transaction, job_id: JobId, donors: tuple[DonorShare, ...]) -> tuple[GpuId, ...]:
    """Promise the job what its donors give, freeze the donors (R1), and return these GPUs."""
    gpus: tuple[GpuId, ...] = ()
    for share in donors:
        gpu_ledger.promise(tx, share.gives, job_id)
        tx.update(share.donor, donation=Donation(job_id, share.keeps))
        preparation.begin(tx, share.donor, share.keeps)
        gpus += share.gives
    return gpus


def grow(
    tx: Transaction,
    job_id: JobId,
    keeps: tuple[GpuId, ...],
    idle: tuple[GpuId, ...],
    hosts: tuple[HostId, ...],
    donors: tuple[DonorShare, ...] = (),
) -> None:
    """Reshape a running job up: it gets idle GPUs, and some of each donor's, beside those of its
    own that it ``keeps``, or moves to other ``hosts``. With donors, or if its successor can be
    prepared, it trains on until every GPU is reserved for it and the successor is prepared."""
    gpu_ledger.reserve(tx, idle, job_id)
    job = tx.state.jobs[job_id]
    after = gang.by_worker(tx.state.gpus, keeps + idle, hosts)
    prepares = hosts == job.all_hosts and preparation.can_begin(tx, job)
    if not donors and not prepares:
        _ask_to_grow(tx, job_id, after)
        return
    after = gang.by_worker(tx.state.gpus, after + _promise(tx, job_id, donors), hosts)
    hand_over = HandOver(after, tuple(share.donor for share in donors), size_before=len(job.gpus))
    job = tx.update(job_id, hand_over=hand_over)
    tx.note(job, "planned", _what_was_planned(idle, hand_over, _coming(job, hand_over)))
    if prepares:
        preparation.begin(tx, job_id, after)
    advance(tx, job_id)


def _ask_to_grow(tx: Transaction, job_id: JobId, after: tuple[GpuId, ...]) -> None:
    """Ask a training job to go on with ``after``, which are its own or reserved for it."""
    job = tx.state.jobs[job_id]
    if _stays(tx, job, after) and tx.state.mechanism is Mechanism.SIDECAR:
        _request(tx, job_id, Change(ChangeKind.GROW, len(job.gpus), after, None, tx.now_s))
        return
    tx.update(job_id, hand_over=HandOver(after, size_before=len(job.gpus)))
    _request(tx, job_id, Change(ChangeKind.RELAUNCH, len(job.gpus), after, None, tx.now_s))


def _stays(tx: Transaction, job: Job, after: tuple[GpuId, ...]) -> bool:
    """Whether every worker of the job is on its host with ``after`` too."""
    return gang.place(tx.state.gpus, after, job.spec.workers) == (job.host, job.hosts)


def shrink(tx: Transaction, job_id: JobId, keeps: tuple[GpuId, ...]) -> None:
    """Reshape a running job down for no other job: what it gives becomes idle once the release is
    verified."""
    _ask_to_shrink(tx, job_id, keeps, None)


def _coming(job: Job, hand_over: HandOver) -> tuple[GpuId, ...]:
    """Return the GPUs of a hand-over that the job does not have yet."""
    return tuple(gpu for gpu in hand_over.gpus if gpu not in job.gpus)


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
        closed = _no_option(tx, hand_over.gpus)
        if closed:
            handover_abort.abort(tx, job_id, closed)
        else:
            host, hosts = gang.place(tx.state.gpus, hand_over.gpus, job.spec.workers)
            attempts.launch(tx, job_id, host, hosts)
    elif _may_ask_donors(tx, job, hand_over, early):
        _ask_or_spare_donors(tx, job_id, hand_over)
    elif job.stage is Stage.READY and held and not tx.state.observing:
        _grant(tx, job_id, hand_over)
    elif job.stage is Stage.TRAINING and not tx.state.observing:
        _grow_if_held(tx, job, hand_over)


def advance_prepared(tx: Transaction, job_id: JobId) -> None:
    """Advance the hand-over that waited for the job's successor."""
    job = tx.state.jobs[job_id]
    advance(tx, job_id if job.donation is None else job.donation.to)


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
    preemption.count(tx, job_id)
    attempts.lose_steps(tx, job_id, outcome.lost_steps)
    job = tx.move(
        job_id,
        Stage.STOPPING,
        steps_lost_known=job.steps_lost_known and _counts_loss(tx, job, outcome),
        deadline=attempts.until(tx, DeadlineKind.STOP, tx.limits.kill_after_s + tx.limits.stop_s),
    )
    said = _what_was_saved(outcome, known=_counts_loss(tx, job, outcome))
    tx.note(job, "stopping", said, outcome.lost_steps)


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
    )
    attempts.wait_for_first_step(tx, job_id)
    gpu_ledger.release(tx, job_id, given, job.generation - 1)


def _may_ask_donors(tx: Transaction, job: Job, hand_over: HandOver, early: bool) -> bool:
    if not hand_over.donors or hand_over.shrink_asked or tx.state.observing:
        return False
    if imports.is_awaited(job):
        return False
    donors = [tx.state.jobs[donor] for donor in hand_over.donors]
    ready = job.stage in (Stage.READY, Stage.TRAINING) or not early
    return ready and all(
        donor.stage is Stage.TRAINING and not preparation.is_awaited(donor) for donor in donors
    )


def _ask_or_spare_donors(tx: Transaction, newcomer_id: JobId, hand_over: HandOver) -> None:
    """Ask the donors, unless the newest verdict on a party forbids to reshape it."""
    reason = _why_not_grow(tx, tx.state.jobs[newcomer_id], hand_over)
    if reason:
        handover_abort.abort(tx, newcomer_id, reason)
        return
    for donor in (tx.state.jobs[donor] for donor in hand_over.donors):
        leaves = donor.donation is not None and not donor.donation.keeps
        unsaved = "it cannot save its steps" if leaves and donor.program.loses else ""
        if donor.fixed_because or unsaved:
            reason = f"{donor.spec.name} keeps its GPUs: {donor.fixed_because or unsaved}"
            handover_abort.abort(tx, newcomer_id, reason)
            return
    _ask_donors(tx, newcomer_id, hand_over)


def _ask_donors(tx: Transaction, newcomer_id: JobId, hand_over: HandOver) -> None:
    tx.update(newcomer_id, hand_over=replace(hand_over, shrink_asked=True))
    for donor_id in hand_over.donors:
        donor = tx.state.jobs[donor_id]
        assert donor.donation is not None
        tx.update(donor_id, donation=None)
        _ask_to_shrink(tx, donor_id, donor.donation.keeps, newcomer_id)


def _ask_to_shrink(
    tx: Transaction, job_id: JobId, keeps: tuple[GpuId, ...], for_job: JobId | None
) -> None:
    size = len(tx.state.jobs[job_id].gpus)
    kind = ChangeKind.SHRINK
    if not keeps:
        assert for_job is not None
        kind = ChangeKind.LEAVE
        newcomer = tx.state.jobs[for_job].spec
        reason = f"preempted for {newcomer.name}, which has priority {newcomer.priority}"
        tx.update(job_id, after_end=JobState.SUBMITTED, reason=reason)
    elif tx.state.mechanism is Mechanism.TERMINATE:
        kind = ChangeKind.RELAUNCH
        tx.update(job_id, hand_over=HandOver(keeps, size_before=size))
    _request(tx, job_id, Change(kind, size, keeps, for_job, tx.now_s))


def _grow_if_held(tx: Transaction, job: Job, hand_over: HandOver) -> None:
    """Ask a receiver that trains to grow once every GPU of its hand-over is its own or reserved
    for it; if it must not grow any more, end the hand-over: the GPUs become idle."""
    held = gpu_ledger.is_reserved_for(tx, job.id, _coming(job, hand_over))
    if not held or preparation.is_awaited(job):
        return
    reason = _why_not_grow(tx, job, hand_over)
    if reason:
        handover_abort.abort(tx, job.id, reason)
        return
    tx.update(job.id, hand_over=None)
    _ask_to_grow(tx, job.id, hand_over.gpus)


def _why_not_grow(tx: Transaction, job: Job, hand_over: HandOver) -> str:
    """Return why a receiver that trains must not be asked to grow; empty if it may be, or if it
    does not train."""
    if job.stage is not Stage.TRAINING:
        return ""
    if not job.reachable:
        return "its SideCar is unreachable"
    if job.fixed_because:
        return job.fixed_because
    closed = _no_option(tx, hand_over.gpus)
    if closed:
        return closed
    if len(hand_over.gpus) not in job.sizes:
        return f"{len(hand_over.gpus)} is no longer one of its GPU counts"
    return ""


def _no_option(tx: Transaction, gpus: tuple[GpuId, ...]) -> str:
    """Return why no plan may place a job on the hosts of these GPUs; empty if it may."""
    for host in dict.fromkeys(_hosts(tx, gpus)):
        if tx.state.hosts[host].no_option:
            return tx.state.hosts[host].no_option
    return ""


def _request(tx: Transaction, job_id: JobId, change: Change) -> None:
    job, stays = tx.state.jobs[job_id], change.kind in (ChangeKind.SHRINK, ChangeKind.GROW)
    wait_s = attempts.save_deadline_s(tx.state, job) + tx.limits.save_answer_s
    if stays:
        change = replace(change, start=starts.promised(job))
    reason = f"{change.kind.value}: {change.size_before} to {gpus(len(change.gpus_after))}"
    if change.kind is ChangeKind.LEAVE:
        reason = job.reason  # it names the user or the drain
    if job.program.loses:
        reason += f"; {attempts.loss(job)}"
    job = attempts.ask(
        tx,
        job_id,
        Mode.RUN if stays else Mode.EXIT,
        change.gpus_after if stays else (),
        force=change.kind is ChangeKind.LEAVE and job.program.loses,
        to=Stage.SAVING,
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


def _what_was_saved(outcome: Outcome, *, known: bool) -> str:
    saved = "no checkpoint" if outcome.saved_step is None else f"step {outcome.saved_step} saved"
    if not known:
        return f"{saved}; the script reported no step, so the lost work is unknown"
    return f"{saved}, {outcome.lost_steps} steps lost"


def _counts_loss(tx: Transaction, job: Job, outcome: Outcome) -> bool:
    """Whether the outcome counts the lost steps: not if the program has never reported one, unless
    it left with word of a save."""
    counts = job.reports_steps or outcome.saved_step == 0 or outcome.says_saved
    return counts or not tx.limits.loss_rules


def _what_was_planned(
    idle: tuple[GpuId, ...], hand_over: HandOver, coming: tuple[GpuId, ...]
) -> str:
    text = f"{gpus(len(hand_over.gpus))}: {len(idle)} idle"
    if hand_over.donors:
        text += f", {len(coming) - len(idle)} from {', '.join(hand_over.donors)}"
    return text
