"""What a SideCar's report does to its job.

Does: takes in progress, and moves the job on as far as the report says: initialised, first step,
outcome, stopped, finished, crashed. One report may carry several of these, because it is a state
and not a message (R3). Never: believes a report of an earlier attempt, or one that is late.
"""

from __future__ import annotations

from reshape_controller.core import attempts, endings, giving_up, handover, learning
from reshape_controller.core.explain import gpus
from reshape_controller.core.model import DeadlineKind, Job, JobId, JobState, Mechanism, Stage
from reshape_controller.core.replacing import replace
from reshape_controller.core.state import State, Turn
from reshape_sidecar.wire import Observed, OutcomeKind, Phase, Progress

# An enum finds its members slowly, so what is asked of every report has a name here.
_NONE, _TRAINING, _RUNNING = Stage.NONE, Stage.TRAINING, Phase.RUNNING
_OVER = (Stage.NONE, Stage.ENDING)


def take(turn: Turn, seen: Observed) -> None:
    """Take in one report."""
    job = turn.state.jobs.get(JobId(seen.job))
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
        job = learning.trains_on(turn, before, job, seen)
        on_trend = job.trend is not None and job.trend is before.trend
        shown = not (on_trend and before.answered and before.reachable)
        turn.state.put_job(job, shown=shown)
    else:
        turn.state.put_job(job)
        _move_on(turn, job.id, seen)
        learning.observe(turn, before, seen)
    if not before.answered or not before.reachable:
        turn.state.plan_wanted = True


def _move_on(turn: Turn, job_id: JobId, seen: Observed) -> None:
    for step in _STEPS:
        job = turn.state.jobs.get(job_id)
        if job is None or job.stage in _OVER:
            break
        step(turn, job, seen)


def silent(turn: Turn, job_id: JobId, attempt: int) -> None:
    """No word of the SideCar for long: unreachable, which is an answer too (R6)."""
    job = turn.state.jobs.get(job_id)
    if job is None or job.attempt != attempt or job.stage is Stage.NONE:
        return
    turn.state.plan_wanted = turn.state.plan_wanted or not job.answered
    job = replace(job, answered=True, reachable=False, reason="its SideCar is unreachable")
    turn.state.put_job(job)
    turn.note(job, "unreachable", "no word of its SideCar; training is not touched")
    if job.donation is not None:
        newcomer = turn.state.jobs[job.donation.to]
        giving_up.abandon(turn, newcomer, f"the SideCar of {job.spec.name} is unreachable")
    if job.stage is Stage.READY and job.hand_over is not None and not job.hand_over.shrink_asked:
        giving_up.abandon(turn, job, "its SideCar is unreachable")


def resume_hand_overs(turn: Turn) -> None:
    """Go on with every hand-over: every attempt has answered, is known to be silent, or is gone."""
    turn.state.plan_wanted = True
    for job in sorted(turn.state.jobs.values(), key=lambda job: job.place):
        handover.advance(turn, job.id)


def settle(turn: Turn, job: Job) -> None:
    """A job trains, or waits initialised: do what had to wait until then."""
    host = turn.state.hosts.get(job.host) if job.host is not None else None
    drained = host is not None and host.drained
    if job.halt_wanted:
        job = replace(job, halt_wanted=False)
        turn.state.put_job(job)
        endings.leave(turn, job, "halted on request", after=JobState.HALTED)
    elif drained:
        endings.leave(turn, job, f"{job.host} is drained", after=JobState.SUBMITTED)
    elif not endings.leave_unseen(turn, job):
        if _can_be_named(turn.state, job):
            turn.state.plan_wanted = True
        if job.donation is not None:
            handover.advance(turn, job.donation.to)


def _can_be_named(state: State, job: Job) -> bool:
    """Whether a plan could name a job that has settled: it starts, gives GPUs or takes idle ones.
    If not, nothing can be decided now that could not be before."""
    if job.stage is not _TRAINING:
        return True
    if state.mechanism is Mechanism.NONE:
        return False
    sizes = job.sizes
    return state.any_idle or (bool(sizes) and sizes[0] < len(job.gpus))


def _initialized(turn: Turn, job: Job, seen: Observed) -> None:
    if job.stage is not Stage.LAUNCHING or seen.generation != job.generation:
        return
    if seen.phase is not Phase.INITIALIZED:
        return
    job = replace(
        job,
        state=JobState.INITIALIZED,
        stage=Stage.READY,
        initialized_at_s=turn.now_s,
        deadline=None,
        reason="initialised; waits for its GPUs" if job.hand_over else job.reason,
    )
    turn.state.put_job(job)
    turn.note(job, "initialized", "its SideCar is up; no GPU was needed for that")
    if job.hand_over is None:
        hold_s = turn.limits.initialized_hold_s
        deadline = attempts.until(turn, DeadlineKind.INITIALIZED_HOLD, hold_s)
        turn.state.put_job(replace(job, deadline=deadline))
        settle(turn, turn.state.jobs[job.id])
    else:
        handover.advance(turn, job.id)


def _outcome(turn: Turn, job: Job, seen: Observed) -> None:
    outcome = seen.outcome
    if job.stage is not Stage.SAVING or outcome is None or outcome.generation != job.generation:
        return
    if outcome.complete and outcome.kind is OutcomeKind.STOPPING:
        endings.complete(turn, job, "its checkpoint says that training is complete")
        return
    handover.answer(turn, job, outcome, seen.devices)
    current = turn.state.jobs[job.id]
    if current.stage is Stage.TRAINING:
        settle(turn, current)


def _stopped(turn: Turn, job: Job, seen: Observed) -> None:
    if job.stage is Stage.STOPPING and seen.stopped_generation >= job.generation:
        handover.stopped(turn, job)


def _first_step(turn: Turn, job: Job, seen: Observed) -> None:
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
    turn.state.put_job(job)
    turn.note(job, "first-step", f"trains on {gpus(len(job.gpus))}", seen.times.first_step_s)
    settle(turn, job)


def _finished(turn: Turn, job: Job, seen: Observed) -> None:
    if seen.phase is Phase.FINISHED and job.stage.has_gpus and job.gpus:
        endings.complete(turn, job, "training finished")


def _unfit(turn: Turn, job: Job, seen: Observed) -> None:
    if seen.phase is not Phase.UNFIT or seen.generation != job.generation:
        return
    if job.stage in (Stage.LAUNCHING, Stage.READY, Stage.STARTING):
        endings.unfit(turn, job, seen.error or "its SideCar's self-check failed")


def _crashed(turn: Turn, job: Job, seen: Observed) -> None:
    if seen.phase is not Phase.CRASHED or seen.generation != job.generation:
        return
    reason = seen.error or f"its training process ended with exit code {seen.exit_code}"
    if job.stage is Stage.STARTING:
        endings.start_failed(turn, job, reason)
    elif job.stage is Stage.TRAINING:
        _crashed_in_training(turn, job, reason)


def _crashed_in_training(turn: Turn, job: Job, reason: str) -> None:
    job = attempts.count_failure(turn, attempts.lost_work(job), reason)
    if job.state.terminal:
        endings.leave_terminal(turn, job)
        return
    job = replace(job, process_restarts=job.process_restarts + 1)
    attempts.start(turn, job, job.gpus, f"starts again after a failure: {reason}")


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
