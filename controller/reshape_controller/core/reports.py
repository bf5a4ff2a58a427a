"""The effect of a SideCar's report on its job.

Does: takes in progress, and moves the job on as far as the report says: initialised, first step,
outcome, stopped, finished, crashed. One report may carry several of these, because it is a state
and not a message (R3). A late report, or a report of an earlier attempt, changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reshape_controller.core import (
    attempts,
    failures,
    job_exit,
    learning,
    proofs,
    starts,
    target,
    unused_gpus,
)
from reshape_controller.core.coordinator import handover, handover_abort, imports
from reshape_controller.core.fast_replace import replace
from reshape_controller.core.model import DeadlineKind, Job, JobId, JobState, Mechanism, Stage
from reshape_controller.core.phrases import gpus
from reshape_controller.core.state import State
from reshape_controller.core.transaction import JobChanges, Transaction
from reshape_controller.core.transitions import WITH_GPUS
from reshape_sidecar.wire import (
    Observed,
    OutcomeKind,
    Phase,
    Progress,
    Proof,
    Saves,
    TargetProgress,
)

# Python 3.11 takes long to find a member of an enum; ``take`` needs these for every report.
_NONE, _TRAINING, _RUNNING = Stage.NONE, Stage.TRAINING, Phase.RUNNING
_ENDED = (Phase.CRASHED, Phase.FINISHED)


def take(tx: Transaction, report: Observed) -> None:
    """Take in one report."""
    job_id = JobId(report.job)
    before = tx.state.jobs.get(job_id)
    if before is None or before.stage is _NONE or before.set_apart:
        return
    if report.attempt != before.attempt or report.sequence <= before.sequence:
        return
    evaluations = before.evaluations
    if report.progress.evaluations:  # kept once, in the job
        evaluations = target.evaluations(evaluations, report.progress.evaluations)
        report = replace(report, progress=replace(report.progress, evaluations=()))
    progress = _merge(before.progress, report.progress)
    changes: JobChanges = {
        "sequence": report.sequence,
        "observed": report,
        "progress": progress,
        "answered": True,
        "reachable": True,
        "longest_save_s": max(before.longest_save_s, _save_s(tx, before, report)),
    }
    judged = progress.trajectory != before.progress.trajectory
    evaluated = evaluations is not before.evaluations
    if evaluated:
        changes["evaluations"] = evaluations
    if report.saves not in (None, before.saves):
        changes["saves"] = report.saves
        judged = True
    if before.late and report.progress.step > before.progress.step:
        changes |= {"late": "", "reason": ""}
    judged = judged or starts.differ(before.observed, report)
    proof = report.progress.proof
    if proof is not None and not _is_new(before, report):
        proof = None
    if proof is not None:
        changes["proofs"] = before.proofs.with_result(proof)
        judged = True
    if report.phase in _ENDED:
        _note_proof(tx, before, proof)
    if before.stage is _TRAINING and report.phase is _RUNNING:
        # Most reports are of a job that goes on training, and can meet none of the rules.
        learning.add_progress(changes, tx, before, report, before.progress, progress)
        on_trend = before.trend is not None and "trend" not in changes
        changes_view = not (on_trend and before.answered and before.reachable)
        tx.take_changes(job_id, changes, changes_view=changes_view or judged or evaluated)
        unused_gpus.take(tx, job_id, report)
    else:
        tx.take_changes(job_id, changes)
        _move_on(tx, job_id, report)
        learning.learn_report(tx, before, report)
    if report.phase not in _ENDED:
        _note_proof(tx, before, proof)
    if before.prepare is not None and job_id in tx.state.jobs:
        handover.advance_prepared(tx, job_id)
    if judged:
        _take_verdict(tx, before)
    if not before.answered or not before.reachable:
        tx.state.plan_wanted = True


def _save_s(tx: Transaction, job: Job, report: Observed) -> float:
    """Return how long the job's save took, at most the time since it was asked: its save deadline
    follows, for which others may wait."""
    said_s = report.times.save_s or 0.0
    if not tx.limits.word_rules or not said_s:
        return said_s
    return min(said_s, tx.now_s - job.change.asked_at_s) if job.change is not None else 0.0


def _is_new(job: Job, report: Observed) -> bool:
    """Whether a report's proof is the first word of the job's process on it, which alone counts."""
    if job.proofs.is_noted or not job.stage.has_gpus:
        return False
    return job.stage is not Stage.STARTING or proofs.is_of_newest_start(report, job.generation)


def _note_proof(tx: Transaction, before: Job, proof: Proof | None) -> None:
    """Note a new proof: before the end of its process, after its first step."""
    if proof is not None:
        job = tx.state.jobs.get(before.id, before)
        tx.note(job, proofs.ENTRIES[proofs.kind_of(proof)], proofs.sentence(proof))


def _take_verdict(tx: Transaction, before: Job) -> None:
    """Plan again if the new verdict allows a reshape that the one before forbade."""
    job = tx.state.jobs.get(before.id)
    if job is not None and before.fixed_because and not job.fixed_because:
        tx.state.plan_wanted = tx.state.plan_wanted or _can_be_named(tx.state, job)


def _move_on(tx: Transaction, job_id: JobId, report: Observed) -> None:
    job = tx.state.jobs.get(job_id)
    for rule in ON_REPORT:
        if job is None:
            break
        if job.stage in rule.stages and rule.condition(job, report):
            rule.action(tx, job_id, report)
            job = tx.state.jobs.get(job_id)


def silent(tx: Transaction, job_id: JobId, attempt: int) -> None:
    """Mark a job with a silent SideCar as unreachable, which counts as an answer (R6)."""
    job = tx.state.jobs.get(job_id)
    if job is None or job.attempt != attempt or job.stage is Stage.NONE or job.set_apart:
        return
    ends = job.stage is Stage.ENDING
    job = _lose_word(tx, job, job.reason if ends else "its SideCar is unreachable")
    what = "its container is ending" if ends else "training is left running"
    tx.note(job, "unreachable", f"its SideCar does not report; {what}")
    _leave_open_hand_overs(tx, job, "is unreachable")


def set_apart(tx: Transaction, job_id: JobId, attempt: int, reason: str) -> None:
    """Believe nothing more that is said with the token of an attempt, until its next attempt.

    Its GPUs stay its own until the launcher shows that they are empty, and no plan names it.
    Nothing of another job waits for its word: a request that has no outcome yet is withdrawn.
    """
    job = tx.state.jobs.get(job_id)
    if job is None or job.attempt != attempt or job.stage is Stage.NONE or job.set_apart:
        return
    job = _lose_word(tx, job, f"set apart: {reason}")
    job = tx.update(job_id, set_apart=reason)
    tx.note(job, "set-apart", reason)
    if job.stage is Stage.SAVING:
        handover_abort.abort_request(tx, job_id, f"{job.spec.name} is set apart: {reason}")
        tx.update(job_id, reason=f"set apart: {reason}")
    _leave_open_hand_overs(tx, job, "is set apart")


def _lose_word(tx: Transaction, job: Job, reason: str) -> Job:
    """Count a job whose SideCar says nothing that counts as answered (R6), and return the job."""
    tx.state.plan_wanted = tx.state.plan_wanted or not job.answered
    job = tx.update(job.id, answered=True, reachable=False, reason=reason)
    if job.stage is Stage.STARTING and job.left_at_step:
        job = tx.update(job.id, left_at_step=0)
    return job


def _leave_open_hand_overs(tx: Transaction, job: Job, what: str) -> None:
    """Abort what a job without a word gives or gets, before the point of no return (R2)."""
    if job.donation is not None:
        handover_abort.abort(tx, job.donation.to, f"the SideCar of {job.spec.name} {what}")
    gets = job.hand_over if job.stage in (Stage.READY, Stage.TRAINING) else None
    if gets is not None and not gets.shrink_asked:
        handover_abort.abort(tx, job.id, f"its SideCar {what}")


def resume_hand_overs(tx: Transaction) -> None:
    """Continue every hand-over, once every attempt has answered, is silent, or is gone (R6)."""
    tx.state.plan_wanted = True
    for job in sorted(tx.state.jobs.values(), key=lambda job: job.place):
        handover.advance(tx, job.id)


def settle(tx: Transaction, job_id: JobId) -> None:
    """Carry out what had to wait until the job trains or waits initialised: halt, drain, shrink."""
    if job_exit.leave_as_wanted(tx, job_id) or job_exit.leave_unseen(tx, job_id):
        return
    job = tx.state.jobs[job_id]
    if _can_be_named(tx.state, job):
        tx.state.plan_wanted = True
    if job.donation is not None:
        handover.advance(tx, job.donation.to)


def _can_be_named(state: State, job: Job) -> bool:
    """Whether a plan could name a settled job, to start, shrink or preempt it, or to give it idle
    GPUs. If not, its change of stage is no reason for a new plan."""
    if job.stage is not Stage.TRAINING:
        return True
    if state.mechanism is Mechanism.NONE:
        return False
    sizes = job.sizes
    if state.any_idle or (bool(sizes) and sizes[0] < len(job.gpus)):
        return True
    return state.has_queued_above(job.spec.priority)


def _is_initialized(job: Job, report: Observed) -> bool:
    return report.phase is Phase.INITIALIZED and report.generation == job.generation


def on_initialized(tx: Transaction, job_id: JobId, report: Observed) -> None:
    """Make a launched job ready for its GPUs, and grant them if they are there."""
    attempts.count_late_loss(tx, job_id, report.reached)
    job = tx.state.jobs[job_id]
    waits = job.hand_over is not None
    job = tx.move(
        job_id,
        Stage.READY,
        state=JobState.INITIALIZED,
        initialized_at_s=tx.now_s,
        deadline=None,
        suspended="",
        reason="initialised; waits for its GPUs" if waits else job.reason,
    )
    tx.note(job, "initialized", "its SideCar is ready; it holds no GPU yet")
    if waits:
        handover.on_initialized(tx, job_id)
        return
    hold_s = tx.limits.initialized_hold_s
    tx.update(job_id, deadline=attempts.until(tx, DeadlineKind.INITIALIZED_HOLD, hold_s))
    settle(tx, job_id)


def _has_imported(job: Job, report: Observed) -> bool:
    return imports.have_ended(job)


def on_imported(tx: Transaction, job_id: JobId, report: Observed) -> None:
    """Have the donors of a newcomer asked, which trained on while it imported."""
    handover.on_imported(tx, job_id)


def _has_complete_outcome(job: Job, report: Observed) -> bool:
    outcome = report.outcome
    stopping = outcome is not None and outcome.kind is OutcomeKind.STOPPING and outcome.complete
    return stopping and _has_outcome(job, report)


def on_complete_outcome(tx: Transaction, job_id: JobId, report: Observed) -> None:
    """Complete a job whose checkpoint says that its training is."""
    job = tx.state.jobs[job_id]
    job_exit.complete(
        tx, job_id, target.end_reason(job, "its checkpoint says that training is complete")
    )


def _has_outcome(job: Job, report: Observed) -> bool:
    return report.outcome is not None and report.outcome.generation == job.generation


def on_outcome(tx: Transaction, job_id: JobId, report: Observed) -> None:
    """Take in the SideCar's answer to the request to save and stop."""
    assert report.outcome is not None
    handover.on_answer(tx, job_id, report.outcome, report.devices)
    if tx.state.jobs[job_id].stage is Stage.TRAINING:
        settle(tx, job_id)


def _is_stopped(job: Job, report: Observed) -> bool:
    return report.stopped_generation >= job.generation


def on_stopped(tx: Transaction, job_id: JobId, report: Observed) -> None:
    """Start the job again, or have its container end, as the request wants."""
    handover.on_stopped(tx, job_id)


def _trains(job: Job, report: Observed) -> bool:
    runs = report.phase in (Phase.RUNNING, Phase.SAVING)
    return runs and report.generation == job.generation


def on_first_step(tx: Transaction, job_id: JobId, report: Observed) -> None:
    """Have a started job train, and carry out what waited for that."""
    job = tx.state.jobs[job_id]
    size = len(job.gpus)
    failures.begin_trial(tx, job)
    job = tx.move(
        job_id,
        Stage.TRAINING,
        state=JobState.RUNNING,
        change=None,
        start_failures=failures.after_first_step(tx, job),
        trained_on=size if attempts.counts_starts(tx) else 0,
        failed_starts=(),
        failed_attempt=0,
        deadline=None,
        starts_since_s=None,
        late="",
        reason="",
    )
    job = attempts.look_later(tx, job_id)
    if job.saves is Saves.SIGTERM:
        _see_resume(tx, job, report.progress.step)
    tx.note(job, "first-step", f"trains on {gpus(size)}", report.times.first_step_s)
    settle(tx, job_id)


def _see_resume(tx: Transaction, job: Job, step: int) -> None:
    """Note whether a program that handles SIGTERM itself went on from the step at which it left;
    ``step``: that of its first report. After a break of the controller or of the reports, the
    first report may be that of a later step, so it shows nothing."""
    changes: JobChanges = {"trains_since_s": tx.now_s, "left_at_step": 0}
    if job.left_at_step and job.watched:
        changes["has_resumed"] = step >= job.left_at_step
    tx.update(job.id, **changes)


def _is_finished(job: Job, report: Observed) -> bool:
    return report.phase is Phase.FINISHED and bool(job.gpus)


def on_finished(tx: Transaction, job_id: JobId, report: Observed) -> None:
    """Complete a job whose training has ended."""
    reason = target.end_reason(tx.state.jobs[job_id], "training finished")
    job_exit.complete(tx, job_id, reason)


def _is_unfit(job: Job, report: Observed) -> bool:
    return report.phase is Phase.UNFIT and report.generation == job.generation


def on_unfit(tx: Transaction, job_id: JobId, report: Observed) -> None:
    """End an attempt that cannot train where it is."""
    job_exit.on_unfit(tx, job_id, report.error or "its SideCar's self-check failed")


def _has_crashed(job: Job, report: Observed) -> bool:
    return report.phase is Phase.CRASHED and report.generation == job.generation


def _crash_reason(report: Observed) -> str:
    return report.error or f"its training process ended with exit code {report.exit_code}"


def on_start_failed(tx: Transaction, job_id: JobId, report: Observed) -> None:
    """Start a job again that crashed before its first step, or end it (R5)."""
    failure = failures.failure_of(tx.state.jobs[job_id], report)
    failures.on_start_failed(tx, job_id, _crash_reason(report), failure)


def on_crash(tx: Transaction, job_id: JobId, report: Observed) -> None:
    """Start a job again in its container after a crash, or end it without a retry left."""
    failure = failures.failure_of(tx.state.jobs[job_id], report)
    failures.on_crash(tx, job_id, _crash_reason(report), failure)


def _merge(old: Progress, new: Progress) -> Progress:
    """Return the newest progress; figures that a new process does not have yet stay as before."""
    if new.step < old.step and new.loss is None and new.seconds_per_step is None:
        return replace(old, checkpoint_step=new.checkpoint_step or old.checkpoint_step)
    if (
        (new.total_steps is not None or old.total_steps is None)
        and (new.steps_per_epoch or new.steps_per_epoch is old.steps_per_epoch)
        and (new.checkpoint_step is not None or old.checkpoint_step is None)
        and (new.trajectory or new.trajectory is old.trajectory)
        and (old.target is None or _says_more(new.target))
    ):
        return new
    return replace(
        new,
        total_steps=new.total_steps if new.total_steps is not None else old.total_steps,
        steps_per_epoch=new.steps_per_epoch or old.steps_per_epoch,
        checkpoint_step=(
            new.checkpoint_step if new.checkpoint_step is not None else old.checkpoint_step
        ),
        trajectory=new.trajectory or old.trajectory,
        trajectory_reason=new.trajectory_reason if new.trajectory else old.trajectory_reason,
        target=new.target if _says_more(new.target) else old.target,
    )


def _says_more(target: TargetProgress | None) -> bool:
    """Whether a process says more of its target accuracy than that there is one."""
    return target is not None and bool(target.metric or target.note)


@dataclass(frozen=True, slots=True)
class Rule:
    """An action for a job in one of ``stages`` whose report meets ``condition``."""

    stages: tuple[Stage, ...]
    event: str
    """The condition in words."""
    condition: Callable[[Job, Observed], bool]
    action: Callable[[Transaction, JobId, Observed], None]


ON_REPORT = (
    Rule(WITH_GPUS, "`finished`", _is_finished, on_finished),
    Rule((Stage.LAUNCHING,), "`initialized`", _is_initialized, on_initialized),
    Rule(
        (Stage.READY,),
        "its zygote is ready or off, and its donors wait for that",
        _has_imported,
        on_imported,
    ),
    Rule(
        (Stage.SAVING,),
        "outcome `stopping`; its checkpoint has the end of its training",
        _has_complete_outcome,
        on_complete_outcome,
    ),
    Rule((Stage.SAVING,), "outcome `stopping` or `refused`", _has_outcome, on_outcome),
    Rule((Stage.STOPPING,), "its process tree is gone", _is_stopped, on_stopped),
    Rule((Stage.STARTING,), "`running` or `saving`", _trains, on_first_step),
    Rule((Stage.LAUNCHING, Stage.READY, Stage.STARTING), "`unfit`", _is_unfit, on_unfit),
    Rule((Stage.STARTING,), "`crashed`", _has_crashed, on_start_failed),
    Rule((Stage.TRAINING,), "`crashed`", _has_crashed, on_crash),
)
"""The rules of a report, in order. Several may apply to one report, as each may move the job into a
stage that a later rule names."""
