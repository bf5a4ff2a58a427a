"""What a SideCar's report does to its job.

Does: takes in progress, and moves the job on as far as the report says: initialised, first step,
outcome, stopped, finished, crashed. One report may carry several of these, because it is a state
and not a message (R3). Never: believes a report of an earlier attempt, or one that is late.
"""

from __future__ import annotations

from reshape_controller.core import attempts, job_exit, learning
from reshape_controller.core.coordinator import handover, handover_abort
from reshape_controller.core.explanation import gpus
from reshape_controller.core.model import DeadlineKind, Job, JobId, JobState, Mechanism, Stage
from reshape_controller.core.replacing import replace
from reshape_controller.core.state import State, Transaction
from reshape_sidecar.wire import Observed, OutcomeKind, Phase, Progress

# An enum finds its members slowly, so what is asked of every report has a name here.
_NONE, _TRAINING, _RUNNING = Stage.NONE, Stage.TRAINING, Phase.RUNNING
_OVER = (Stage.NONE, Stage.ENDING)


def take(tx: Transaction, seen: Observed) -> None:
    """Take in one report."""
    job = tx.state.jobs.get(JobId(seen.job))
    if job is None or job.stage is _NONE:
        return
    if seen.attempt != job.attempt or seen.sequence <= job.sequence:
        return
    before = job
    save_s = seen.times.save_s or 0.0
    job = replace(
        job,
        sequence=seen.sequence,
        observed=seen,
        progress=_merge(job.progress, seen.progress),
        answered=True,
        reachable=True,
        longest_save_s=max(job.longest_save_s, save_s),
    )
    if job.stage is _TRAINING and seen.phase is _RUNNING:
        # Most reports are of a job that trains on: nothing of the rest can be in them.
        job = learning.trains_on(tx, before, job, seen)
        on_trend = job.trend is not None and job.trend is before.trend
        shown = not (on_trend and before.answered and before.reachable)
        tx.state.put_job(job, shown=shown)
    else:
        tx.state.put_job(job)
        _move_on(tx, job.id, seen)
        learning.observe(tx, before, seen)
    if not before.answered or not before.reachable:
        tx.state.plan_wanted = True


def _move_on(tx: Transaction, job_id: JobId, seen: Observed) -> None:
    for step in _STEPS:
        job = tx.state.jobs.get(job_id)
        if job is None or job.stage in _OVER:
            break
        step(tx, job, seen)


def silent(tx: Transaction, job_id: JobId, attempt: int) -> None:
    """No word of the SideCar for long: unreachable, which is an answer too (R6)."""
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
    """Go on with every hand-over: every attempt has answered, is known to be silent, or is gone."""
    tx.state.plan_wanted = True
    for job in sorted(tx.state.jobs.values(), key=lambda job: job.place):
        handover.advance(tx, job.id)


def settle(tx: Transaction, job: Job) -> None:
    """A job trains, or waits initialised: do what had to wait until then."""
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
    """Whether a plan could name a job that has settled: it starts, gives GPUs or takes idle ones.
    If not, nothing can be decided now that could not be before."""
    if job.stage is not _TRAINING:
        return True
    if state.mechanism is Mechanism.NONE:
        return False
    sizes = job.sizes
    return state.any_idle or (bool(sizes) and sizes[0] < len(job.gpus))


def _initialized(tx: Transaction, job: Job, seen: Observed) -> None:
    if job.stage is not Stage.LAUNCHING or seen.generation != job.generation:
        return
    if seen.phase is not Phase.INITIALIZED:
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


def _outcome(tx: Transaction, job: Job, seen: Observed) -> None:
    outcome = seen.outcome
    if job.stage is not Stage.SAVING or outcome is None or outcome.generation != job.generation:
        return
    if outcome.complete and outcome.kind is OutcomeKind.STOPPING:
        job_exit.complete(tx, job, "its checkpoint says that training is complete")
        return
    handover.on_answer(tx, job, outcome, seen.devices)
    current = tx.state.jobs[job.id]
    if current.stage is Stage.TRAINING:
        settle(tx, current)


def _stopped(tx: Transaction, job: Job, seen: Observed) -> None:
    if job.stage is Stage.STOPPING and seen.stopped_generation >= job.generation:
        handover.on_stopped(tx, job)


def _first_step(tx: Transaction, job: Job, seen: Observed) -> None:
    if job.stage is not Stage.STARTING or seen.generation != job.generation:
        return
    if seen.phase not in (Phase.RUNNING, Phase.SAVING):
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
    tx.note(job, "first-step", f"trains on {gpus(len(job.gpus))}", seen.times.first_step_s)
    settle(tx, job)


def _finished(tx: Transaction, job: Job, seen: Observed) -> None:
    if seen.phase is Phase.FINISHED and job.stage.has_gpus and job.gpus:
        job_exit.complete(tx, job, "training finished")


def _unfit(tx: Transaction, job: Job, seen: Observed) -> None:
    if seen.phase is not Phase.UNFIT or seen.generation != job.generation:
        return
    if job.stage in (Stage.LAUNCHING, Stage.READY, Stage.STARTING):
        job_exit.unfit(tx, job, seen.error or "its SideCar's self-check failed")


def _crashed(tx: Transaction, job: Job, seen: Observed) -> None:
    if seen.phase is not Phase.CRASHED or seen.generation != job.generation:
        return
    reason = seen.error or f"its training process ended with exit code {seen.exit_code}"
    if job.stage is Stage.STARTING:
        job_exit.start_failed(tx, job, reason)
    elif job.stage is Stage.TRAINING:
        _crashed_in_training(tx, job, reason)


def _crashed_in_training(tx: Transaction, job: Job, reason: str) -> None:
    job = attempts.count_failure(tx, attempts.lost_work(job), reason)
    if job.state.terminal:
        job_exit.leave_terminal(tx, job)
        return
    job = replace(job, process_restarts=job.process_restarts + 1)
    attempts.start(tx, job, job.gpus, f"starts again after a failure: {reason}")


def _merge(old: Progress, new: Progress) -> Progress:
    """The newest progress; what a fresh process cannot know yet is kept from before."""
    if new.step < old.step and new.loss is None and new.seconds_per_step is None:
        return replace(old, checkpoint_step=new.checkpoint_step or old.checkpoint_step)
    if (
        (new.total_steps is not None or old.total_steps is None)
        and (new.steps_per_epoch or new.steps_per_epoch is old.steps_per_epoch)
        and (new.checkpoint_step is not None or old.checkpoint_step is None)
        and (new.trajectory or new.trajectory is old.trajectory)
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
    )


_STEPS = (_finished, _initialized, _outcome, _stopped, _first_step, _unfit, _crashed)
