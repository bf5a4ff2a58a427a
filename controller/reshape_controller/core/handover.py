"""The hand-over of GPUs between jobs, rules R1 to R9 (docs/architecture.md).

Does: begins a hand-over, asks the running job to shrink once the newcomer is initialised, takes in
the one outcome, and grants what was verified. A reshape up is the same machine with one party;
with the mechanism ``terminate`` the running job leaves its container instead of shrinking in it.
Never: chooses who gives or gets (that is the plan), or believes a release before it is verified.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.core import attempts, giving_up, ledger
from reshape_controller.core.explain import gpus
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
from reshape_controller.core.replacing import replace
from reshape_controller.core.state import Turn
from reshape_sidecar.wire import Mode, Outcome, OutcomeKind


@dataclass(frozen=True, slots=True)
class Giving:
    """What a running job keeps, and what it gives to the newcomer; the rest becomes idle."""

    donor: JobId
    keeps: tuple[GpuId, ...]
    gives: tuple[GpuId, ...]


def begin(turn: Turn, newcomer: Job, idle: tuple[GpuId, ...], donors: tuple[Giving, ...]) -> None:
    """A plan gives ``idle`` GPUs to the newcomer, and some of each donor's. Nothing is taken from
    a donor yet (R2)."""
    ledger.reserve(turn, idle, newcomer.id)
    gpus = list(idle)
    for giving in donors:
        donor = turn.state.jobs[giving.donor]
        ledger.promise(turn, giving.gives, newcomer.id)
        turn.state.put_job(replace(donor, donation=Donation(newcomer.id, giving.keeps)))
        gpus += giving.gives
    hand_over = HandOver(tuple(gpus), tuple(giving.donor for giving in donors))
    newcomer = replace(newcomer, hand_over=hand_over, deadline=None)
    turn.state.put_job(newcomer)
    turn.note(newcomer, "planned", _what_was_planned(idle, hand_over))
    advance(turn, newcomer.id)


def grow(turn: Turn, job: Job, idle: tuple[GpuId, ...], host: HostId) -> None:
    """Reshape up: a running job gets idle GPUs beside its own, or moves to another host."""
    ledger.reserve(turn, idle, job.id)
    same_host = host == job.host
    after = (job.gpus if same_host else ()) + idle
    if same_host and turn.state.mechanism is Mechanism.SIDECAR:
        _request(turn, job, Change(ChangeKind.GROW, len(job.gpus), after, None, turn.now_s))
        return
    job = replace(job, hand_over=HandOver(after, size_before=len(job.gpus)))
    _request(turn, job, Change(ChangeKind.RELAUNCH, len(job.gpus), after, None, turn.now_s))


def leave(turn: Turn, job: Job, reason: str, *, after: JobState) -> None:
    """A training job saves and gives everything back (halt, drain)."""
    job = replace(job, after_end=after, reason=reason)
    _request(turn, job, Change(ChangeKind.LEAVE, len(job.gpus), (), None, turn.now_s))


def advance(turn: Turn, job_id: JobId) -> None:
    """Take the next step of the job's hand-over that is possible now, if any."""
    job = turn.state.jobs.get(job_id)
    if job is None or job.hand_over is None:
        return
    hand_over = job.hand_over
    early = turn.state.mechanism is Mechanism.SIDECAR
    held = ledger.held_by(turn, job.id, hand_over.gpus)
    if job.stage is Stage.NONE and (held or early):
        host = turn.state.hosts[turn.state.gpus[hand_over.gpus[0]].host]
        if host.drained:
            giving_up.abandon(turn, job, f"{host.id} is drained")
        else:
            attempts.launch(turn, job, host.id)
    elif _may_ask_donors(turn, job, hand_over, early):
        _ask_donors(turn, job, hand_over)
    elif job.stage is Stage.READY and held and not turn.state.observing:
        _grant(turn, job, hand_over)


def answer(turn: Turn, job: Job, outcome: Outcome, devices: tuple[str, ...]) -> None:
    """The SideCar's one outcome of the request that is under way (stage SAVING). ``devices``:
    those that its process trains on."""
    assert job.change is not None
    if outcome.kind is OutcomeKind.REFUSED:
        giving_up.refused(turn, job, job.change, devices)
        return
    job = replace(
        job,
        stage=Stage.STOPPING,
        steps_lost=job.steps_lost + outcome.lost_steps,
        deadline=attempts.until(
            turn, DeadlineKind.STOP, turn.limits.kill_after_s + turn.limits.stop_s
        ),
    )
    turn.state.put_job(job)
    turn.note(job, "stopping", _what_was_saved(job, outcome), outcome.lost_steps)


def stopped(turn: Turn, job: Job) -> None:
    """The process tree of the request's generation is gone (stage STOPPING)."""
    change = job.change
    assert change is not None
    turn.note(job, "stopped", "training process tree is gone")
    if job.mode is Mode.EXIT:
        wait_s = turn.limits.end_s + turn.limits.kill_after_s
        job = replace(
            job, stage=Stage.ENDING, deadline=attempts.until(turn, DeadlineKind.END, wait_s)
        )
        turn.state.put_job(job)
        return
    after = job.devices
    given = tuple(gpu for gpu in job.gpus if gpu not in after)
    ledger.use(turn, tuple(gpu for gpu in after if gpu not in job.gpus), job.id)
    giving_up.free_rest(turn, job, change)
    job = replace(
        attempts.reshaped(turn, job, change.size_before, len(after)),
        gpus=after,
        stage=Stage.STARTING,
        process_restarts=job.process_restarts + 1,
        reason=f"starts again on {gpus(len(after))}",
        deadline=attempts.until(turn, DeadlineKind.FIRST_STEP, turn.limits.first_step_s),
    )
    turn.state.put_job(job)
    ledger.release(turn, job, given, job.generation - 1)


def _may_ask_donors(turn: Turn, job: Job, hand_over: HandOver, early: bool) -> bool:
    if not hand_over.donors or hand_over.shrink_asked or turn.state.observing:
        return False
    donors = [turn.state.jobs[donor] for donor in hand_over.donors]
    ready = job.stage is Stage.READY or not early
    return ready and all(donor.stage is Stage.TRAINING for donor in donors)


def _ask_donors(turn: Turn, newcomer: Job, hand_over: HandOver) -> None:
    newcomer = replace(newcomer, hand_over=replace(hand_over, shrink_asked=True))
    turn.state.put_job(newcomer)
    relaunch = turn.state.mechanism is Mechanism.TERMINATE
    for donor_id in hand_over.donors:
        donor = turn.state.jobs[donor_id]
        assert donor.donation is not None
        keeps = donor.donation.keeps
        donor = replace(donor, donation=None)
        if relaunch:
            donor = replace(donor, hand_over=HandOver(keeps, size_before=len(donor.gpus)))
        kind = ChangeKind.RELAUNCH if relaunch else ChangeKind.SHRINK
        change = Change(kind, len(donor.gpus), keeps, newcomer.id, turn.now_s)
        _request(turn, donor, change)


def _request(turn: Turn, job: Job, change: Change) -> None:
    stays = change.kind in (ChangeKind.SHRINK, ChangeKind.GROW)
    job = attempts.ask(
        turn, job, Mode.RUN if stays else Mode.EXIT, change.gpus_after if stays else ()
    )
    wait_s = attempts.save_deadline_s(turn.state, job) + turn.limits.save_answer_s
    reason = f"{change.kind.value}: {change.size_before} to {gpus(len(change.gpus_after))}"
    if change.kind is ChangeKind.LEAVE:
        reason = job.reason  # who wants it
    job = replace(
        job,
        state=JobState.ADJUSTING,
        stage=Stage.SAVING,
        change=change,
        watched=True,
        reason=reason,
        deadline=attempts.until(turn, DeadlineKind.SAVE_ANSWER, wait_s),
    )
    turn.state.put_job(job)
    turn.note(job, f"{change.kind.value}-asked", reason)


def _grant(turn: Turn, job: Job, hand_over: HandOver) -> None:
    ledger.use(turn, hand_over.gpus, job.id)
    job = replace(
        job,
        hand_over=None,
        state=JobState.RUNNING,
        started_at_s=turn.now_s if job.started_at_s is None else job.started_at_s,
    )
    if hand_over.size_before:
        job = attempts.reshaped(turn, job, hand_over.size_before, len(hand_over.gpus))
    job = attempts.start(turn, job, hand_over.gpus, f"starts on {gpus(len(hand_over.gpus))}")
    turn.note(job, "granted", f"{gpus(len(hand_over.gpus))}: {', '.join(hand_over.gpus)}")


def _what_was_saved(job: Job, outcome: Outcome) -> str:
    if outcome.saved_step is None and not job.progress.step:
        return "no checkpoint, and no step was ever told: what it kept itself is not known"
    saved = "no checkpoint" if outcome.saved_step is None else f"step {outcome.saved_step} saved"
    return f"{saved}, {outcome.lost_steps} steps lost"


def _what_was_planned(idle: tuple[GpuId, ...], hand_over: HandOver) -> str:
    text = f"{gpus(len(hand_over.gpus))}: {len(idle)} idle"
    if hand_over.donors:
        text += f", {len(hand_over.gpus) - len(idle)} from {', '.join(hand_over.donors)}"
    return text
