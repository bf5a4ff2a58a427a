"""The effect of a SideCar's report on its job.

Does: takes in progress, and moves the job on as far as the report says: initialised, first step,
outcome, stopped, finished, crashed. One report may carry several of these, because it is a state
and not a message (R3). A late report, or a report of an earlier attempt, changes nothing.
"""

from __future__ import annotations

from reshape_controller.core import attempts, job_exit, learning, target
from reshape_controller.core.coordinator import handover, handover_abort
from reshape_controller.core.explanation import gpus
from reshape_controller.core.fast_replace import replace
from reshape_controller.core.model import DeadlineKind, Job, JobId, JobState, Mechanism, Stage
from reshape_controller.core.state import State
from reshape_controller.core.transaction import Transaction
from reshape_sidecar.wire import Observed, OutcomeKind, Phase, Progress, TargetProgress

_OVER = (Stage.NONE, Stage.ENDING)


def take(tx: Transaction, report: Observed) -> None:
    """Take in one report."""
    job = tx.state.jobs.get(JobId(report.job))
    if job is None or job.stage is Stage.NONE:
        return
    if report.attempt != job.attempt or report.sequence <= job.sequence:
        return
    before = job
    save_s = report.times.save_s or 0.0
    job = replace(
        job,
        sequence=report.sequence,
        observed=report,
        progress=_merge(job.progress, report.progress),
        answered=True,
        reachable=True,
        longest_save_s=max(job.longest_save_s, save_s),
    )
    judged = job.progress.trajectory != before.progress.trajectory
    if job.stage is Stage.TRAINING and report.phase is Phase.RUNNING:
        # Most reports are of a job that goes on training, and can carry none of the other steps.
        job = learning.learn_progress(tx, before, job, report)
        on_trend = job.trend is not None and job.trend is before.trend
        changes_view = not (on_trend and before.answered and before.reachable)
        tx.state.put_job(job, changes_view=changes_view or judged)
    else:
        tx.state.put_job(job)
        _move_on(tx, job.id, report)
        learning.learn_report(tx, before, report)
    if judged:
        _take_verdict(tx, before)
    if not before.answered or not before.reachable:
        tx.state.plan_wanted = True


def _take_verdict(tx: Transaction, before: Job) -> None:
    """Plan again if the new verdict allows a reshape that the one before forbade."""
    job = tx.state.jobs.get(before.id)
    if job is not None and before.fixed_because and not job.fixed_because:
        tx.state.plan_wanted = tx.state.plan_wanted or _can_be_named(tx.state, job)


def _move_on(tx: Transaction, job_id: JobId, report: Observed) -> None:
    for step in _STEPS:
        job = tx.state.jobs.get(job_id)
        if job is None or job.stage in _OVER:
            break
        step(tx, job, report)


def silent(tx: Transaction, job_id: JobId, attempt: int) -> None:
    """Mark a job with a silent SideCar as unreachable, which counts as an answer (R6)."""
    job = tx.state.jobs.get(job_id)
    if job is None or job.attempt != attempt or job.stage is Stage.NONE:
        return
    tx.state.plan_wanted = tx.state.plan_wanted or not job.answered
    job = replace(job, answered=True, reachable=False, reason="its SideCar is unreachable")
    tx.state.put_job(job)
    tx.note(job, "unreachable", "its SideCar does not report; training is left running")
    if job.donation is not None:
        newcomer = tx.state.jobs[job.donation.to]
        handover_abort.abort(tx, newcomer, f"the SideCar of {job.spec.name} is unreachable")
    if job.stage is Stage.READY and job.hand_over is not None and not job.hand_over.shrink_asked:
        handover_abort.abort(tx, job, "its SideCar is unreachable")


def resume_hand_overs(tx: Transaction) -> None:
    """Continue every hand-over, once every attempt has answered, is silent, or is gone (R6)."""
    tx.state.plan_wanted = True
    for job in sorted(tx.state.jobs.values(), key=lambda job: job.place):
        handover.advance(tx, job.id)


def settle(tx: Transaction, job: Job) -> None:
    """Carry out what had to wait until the job trains or waits initialised: halt, drain, shrink."""
    host = tx.state.hosts.get(job.host) if job.host is not None else None
    drained = host is not None and host.drained
    if job.halt_wanted:
        job = replace(job, halt_wanted=False)
        tx.state.put_job(job)
        job_exit.leave(tx, job, "paused on request", after=JobState.HALTED)
    elif drained:
        job_exit.leave(tx, job, f"{job.host} is drained", after=JobState.SUBMITTED)
    elif not job_exit.leave_unseen(tx, job):
        if _can_be_named(tx.state, job):
            tx.state.plan_wanted = True
        if job.donation is not None:
            handover.advance(tx, job.donation.to)


def _can_be_named(state: State, job: Job) -> bool:
    """Whether a plan could name a settled job, to start it, to shrink it or to give it idle GPUs.
    If not, its change of stage is no reason for a new plan."""
    if job.stage is not Stage.TRAINING:
        return True
    if state.mechanism is Mechanism.NONE:
        return False
    sizes = job.sizes
    return state.any_idle or (bool(sizes) and sizes[0] < len(job.gpus))


def _initialized(tx: Transaction, job: Job, report: Observed) -> None:
    if job.stage is not Stage.LAUNCHING or report.generation != job.generation:
        return
    if report.phase is not Phase.INITIALIZED:
        return
    job = replace(
        job,
        state=JobState.INITIALIZED,
        stage=Stage.READY,
        initialized_at_s=tx.now_s,
        deadline=None,
        reason="initialised; waits for its GPUs" if job.hand_over else job.reason,
    )
    tx.state.put_job(job)
    tx.note(job, "initialized", "its SideCar is ready; it holds no GPU yet")
    if job.hand_over is None:
        hold_s = tx.limits.initialized_hold_s
        deadline = attempts.until(tx, DeadlineKind.INITIALIZED_HOLD, hold_s)
        tx.state.put_job(replace(job, deadline=deadline))
        settle(tx, tx.state.jobs[job.id])
    else:
        handover.advance(tx, job.id)


def _outcome(tx: Transaction, job: Job, report: Observed) -> None:
    outcome = report.outcome
    if job.stage is not Stage.SAVING or outcome is None or outcome.generation != job.generation:
        return
    if outcome.complete and outcome.kind is OutcomeKind.STOPPING:
        reason = target.end_reason(job, "its checkpoint says that training is complete")
        job_exit.complete(tx, job, reason)
        return
    handover.on_answer(tx, job, outcome, report.devices)
    current = tx.state.jobs[job.id]
    if current.stage is Stage.TRAINING:
        settle(tx, current)


def _stopped(tx: Transaction, job: Job, report: Observed) -> None:
    if job.stage is Stage.STOPPING and report.stopped_generation >= job.generation:
        handover.on_stopped(tx, job)


def _first_step(tx: Transaction, job: Job, report: Observed) -> None:
    if job.stage is not Stage.STARTING or report.generation != job.generation:
        return
    if report.phase not in (Phase.RUNNING, Phase.SAVING):
        return
    job = replace(
        job,
        state=JobState.RUNNING,
        stage=Stage.TRAINING,
        change=None,
        start_failures=(),
        failed_attempt=0,
        deadline=None,
        reason="",
    )
    tx.state.put_job(job)
    tx.note(job, "first-step", f"trains on {gpus(len(job.gpus))}", report.times.first_step_s)
    settle(tx, job)


def _finished(tx: Transaction, job: Job, report: Observed) -> None:
    if report.phase is Phase.FINISHED and job.stage.has_gpus and job.gpus:
        job_exit.complete(tx, job, target.end_reason(job, "training finished"))


def _unfit(tx: Transaction, job: Job, report: Observed) -> None:
    if report.phase is not Phase.UNFIT or report.generation != job.generation:
        return
    if job.stage in (Stage.LAUNCHING, Stage.READY, Stage.STARTING):
        job_exit.on_unfit(tx, job, report.error or "its SideCar's self-check failed")


def _crashed(tx: Transaction, job: Job, report: Observed) -> None:
    if report.phase is not Phase.CRASHED or report.generation != job.generation:
        return
    reason = report.error or f"its training process ended with exit code {report.exit_code}"
    if job.stage is Stage.STARTING:
        job_exit.on_start_failed(tx, job, reason)
    elif job.stage is Stage.TRAINING:
        _crashed_in_training(tx, job, reason)


def _crashed_in_training(tx: Transaction, job: Job, reason: str) -> None:
    job = attempts.count_failure(tx, attempts.count_lost_work(job), reason)
    if job.state.terminal:
        job_exit.leave_terminal(tx, job)
        return
    job = replace(job, process_restarts=job.process_restarts + 1)
    attempts.start(tx, job, job.gpus, f"starts again after a failure: {reason}")


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


_STEPS = (_finished, _initialized, _outcome, _stopped, _first_step, _unfit, _crashed)
