"""One attempt of a job: its container, the state that its SideCar shall reach, and its end.

Does: launches, asks the SideCar for another state (always with a new generation), counts failures
and retries, ends. GPUs pass between jobs in ``core.coordinator`` alone.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Unpack

from reshape_controller.core import gang, run_bounds
from reshape_controller.core.commands import Launch, Remove, SetDesired
from reshape_controller.core.limits import RETRY_BACKOFF_MAX_S
from reshape_controller.core.model import (
    Deadline,
    DeadlineKind,
    GpuId,
    HostId,
    Job,
    JobId,
    JobState,
    Stage,
)
from reshape_controller.core.phrases import lost_text
from reshape_controller.core.state import State
from reshape_controller.core.transaction import JobChanges, Transaction
from reshape_profiles.schema import SECONDS_MAX
from reshape_sidecar.wire import Desired, Mode, OnSaveTimeout, Reached

PAUSED = "paused, checkpoint kept: "
"""Begins the reason of a job that was paused because it has no retry or no size left."""


def is_given_up(job: Job) -> bool:
    """Return whether the job has failed for good: it is not started again unless a person asks."""
    paused = job.after_end is JobState.HALTED and job.reason.startswith(PAUSED)
    return job.state is JobState.FAILED or paused


def save_deadline_s(state: State, job: Job) -> float:
    """Return the seconds that the SideCar gives training to save.

    Nothing of a cancelled job needs to be saved: it has the time from TERM to KILL.
    """
    if job.state is JobState.CANCELLED and state.limits.cancel_rules:
        return state.limits.kill_after_s
    return max(state.limits.save_min_s, state.limits.save_factor * job.longest_save_s)


def count_reshape(tx: Transaction, job_id: JobId, before: int, after: int) -> Job:
    """Count a change of the job's size, up or down, and return the job; a mere move is neither."""
    job = tx.state.jobs[job_id]
    if after == before:
        return job
    return tx.update(
        job_id,
        reshape_ups=job.reshape_ups + (after > before),
        reshape_downs=job.reshape_downs + (after < before),
        reshaped_at_s=tx.now_s,
    )


def desired_of(state: State, job: Job) -> Desired | None:
    """Return the state that the job's SideCar shall reach; None if it has no container."""
    if job.stage is Stage.NONE:
        return None
    return Desired(
        epoch=state.epoch,
        job=job.id,
        attempt=job.attempt,
        generation=job.generation,
        mode=job.mode,
        devices=tuple(job.devices),
        on_save_timeout=OnSaveTimeout.KILL if job.force else job.spec.on_save_timeout,
        save_deadline_s=save_deadline_s(state, job),
        kill_after_s=state.limits.kill_after_s,
        prepare=job.prepare,
    )


def repeat(tx: Transaction, job: Job) -> None:
    """Send the job's SideCar its desired state, of the same generation, once more."""
    desired = desired_of(tx.state, job)
    if desired is not None:
        tx.commands.append(SetDesired(desired))


def until(tx: Transaction, kind: DeadlineKind, length_s: float) -> Deadline:
    """Return a deadline that starts now."""
    return Deadline(kind, tx.now_s + length_s, length_s)


def launch(tx: Transaction, job_id: JobId, host: HostId, hosts: tuple[HostId, ...] = ()) -> Job:
    """Start a new attempt on ``host``, without GPUs (early initialisation). ``hosts``: the host of
    each worker, if they are on several."""
    job = tx.state.jobs[job_id]
    where = " and ".join(dict.fromkeys(hosts)) if hosts else host
    job = tx.move(
        job_id,
        Stage.LAUNCHING,
        host=host,
        hosts=hosts,
        attempt=job.attempt + 1,
        generation=job.generation + 1,
        mode=Mode.SAVE_AND_STOP,
        devices=(),
        force=False,
        sequence=-1,
        observed=None,
        answered=True,
        reachable=True,
        watched=job.watched or job.change is None,
        after_end=JobState.SUBMITTED,
        suspended="",
        set_apart="",
        container_restarts=job.container_restarts + (1 if job.attempt else 0),
        reason=f"its container starts on {where}",
        deadline=until(tx, DeadlineKind.EARLY_INIT, tx.limits.early_init_s),
    )
    tx.commands.append(launch_command(tx.state, job))
    tx.note(job, "launched", f"container {job.attempt} launched on {where}")
    return job


def launch_command(state: State, job: Job) -> Launch:
    """Return the command that launches the job's attempt."""
    assert job.host is not None
    return Launch(state.epoch, job.id, job.attempt, job.host, gang.shares_of(job.hosts))


def ask(
    tx: Transaction,
    job_id: JobId,
    mode: Mode,
    devices: tuple[GpuId, ...] = (),
    /,
    *,
    to: Stage | None = None,
    **changes: Unpack[JobChanges],
) -> Job:
    """Raise the job's generation, send its SideCar the new desired state, and return the job. What
    is prepared for these devices is used; nothing is prepared after this (R2).

    ``to``: stage to move the job to; None: it stays in its stage. ``changes``: further fields.
    """
    asked: JobChanges = {
        "generation": tx.state.jobs[job_id].generation + 1,
        "mode": mode,
        "devices": devices,
        "force": False,
        "prepare": None,
    }
    if to is None:
        job = tx.take_changes(job_id, asked | changes)
    else:
        job = tx.move(job_id, to, **(asked | changes))
    repeat(tx, job)
    return job


def start(tx: Transaction, job_id: JobId, gpus: tuple[GpuId, ...], reason: str) -> Job:
    """Have an initialised or crashed attempt train on ``gpus``, which are its own."""
    ask(tx, job_id, Mode.RUN, gpus, to=Stage.STARTING, gpus=gpus, reason=reason)
    return wait_for_first_step(tx, job_id)


def wait_for_first_step(tx: Transaction, job_id: JobId) -> Job:
    """Have a job that starts now be judged by the bounds of a start, and return it. Its process
    shows anew whether its first step agrees."""
    proofs = tx.state.jobs[job_id].proofs
    if proofs.is_noted:
        tx.update(job_id, proofs=proofs.begun())
    if not tx.limits.bounds_runs:
        deadline = until(tx, DeadlineKind.FIRST_STEP, tx.limits.first_step_s)
        return tx.update(job_id, deadline=deadline)
    tx.update(job_id, deadline=None, starts_since_s=tx.now_s, late="")
    return look_later(tx, job_id)


def look_later(tx: Transaction, job_id: JobId) -> Job:
    """Note when the bounds of the job's run are to be looked at next, and return the job."""
    look_at_s = None
    if tx.limits.bounds_runs:
        look_at_s = run_bounds.next_look_s(tx.limits, tx.state.jobs[job_id], tx.now_s)
    return tx.update(job_id, changes_view=False, look_at_s=look_at_s)


def end(
    tx: Transaction, job_id: JobId, reason: str, *, after: JobState = JobState.SUBMITTED
) -> Job:
    """Have the SideCar stop training and end the container.

    If the deadline passes first, the launcher removes the container. ``after``: the job's state
    once the container has ended.
    """
    save_s = save_deadline_s(tx.state, tx.state.jobs[job_id])
    wait_s = save_s + tx.limits.kill_after_s + tx.limits.end_s
    return ask(
        tx,
        job_id,
        Mode.EXIT,
        force=True,
        to=Stage.ENDING,
        after_end=after,
        reason=reason,
        deadline=until(tx, DeadlineKind.END, wait_s),
    )


def remove(
    tx: Transaction, job_id: JobId, reason: str, *, after: JobState = JobState.SUBMITTED
) -> Job:
    """Have the launcher end the container, with or without its SideCar's help.

    ``after``: the job's state once the container has ended.
    """
    grace_s = tx.limits.kill_after_s
    tx.commands.append(Remove(tx.state.epoch, job_id, tx.state.jobs[job_id].attempt, grace_s))
    return tx.move(
        job_id,
        Stage.ENDING,
        after_end=after,
        reason=reason,
        deadline=until(tx, DeadlineKind.REMOVE, grace_s + tx.limits.remove_retry_s),
    )


def without_container(tx: Transaction, job_id: JobId, reason: str) -> Job:
    """Queue a job whose container is gone again, or halt it, or drop it if it is over.

    A hand-over stays: with the mechanism ``terminate`` the job is launched again for it. A job that
    never got GPUs has left no files on its host, so it may start on any other.
    """
    job = tx.state.jobs[job_id]
    after = JobState.HALTED if job.halt_wanted else job.after_end
    if after.terminal and not job.state.terminal:
        job = finish(tx, job_id, after, job.reason)
    over = job.state.terminal
    if job.halt_wanted:
        reason = "paused on request"
    elsewhere = job.only_host not in (None, job.host)
    stays = job.only_host is not None and (elsewhere or job.started_at_s is not None)
    if stays:
        reason += f"; can run only on {job.only_host}: {job.only_host_because}"
    job = tx.move(
        job_id,
        Stage.NONE,
        state=job.state if over else after,
        host=None,
        hosts=(),
        mode=Mode.SAVE_AND_STOP,
        devices=(),
        gpus=(),
        donation=None,
        prepare=None,
        change=None,
        deadline=None,
        halt_wanted=False,
        suspended="",
        answered=True,
        reachable=True,
        only_host=job.only_host if stays else None,
        only_host_because=job.only_host_because if stays else "",
        reason=job.reason if over else reason,
    )
    if over:
        # This needs no new plan: each GPU asks for a plan when it becomes idle.
        tx.state.drop_job(job)
    else:
        tx.state.plan_wanted = True
    return job


def finish(tx: Transaction, job_id: JobId, state: JobState, reason: str) -> Job:
    """Put the job into a final state. The caller ends the container, if there is one."""
    job = tx.update(job_id, state=state, reason=reason, finished_at_s=tx.now_s, deadline=None)
    tx.note(job, state.value, reason)
    if not job.stage.has_gpus:  # GPUs ask for a plan themselves when they become idle
        tx.state.plan_wanted = True
    return job


class LastWord(Enum):
    """What is known of the steps of a process that ended."""

    TOLD = auto()
    """Its SideCar has told its last step."""
    WITH_CONTAINER = auto()
    """Its SideCar ended with it. The next attempt tells that step if it can read it."""
    WITH_HOST = auto()
    """Its host may have lost what the process wrote last."""


def count_lost_work(tx: Transaction, job_id: JobId, word: LastWord) -> Job:
    """Count the unsaved steps of the job as lost, if it trains, and return the job.

    Steps lost earlier, in a crash or in an earlier attempt, are counted already. Of a program that
    has reported no step the loss is unknown.
    """
    job = tx.state.jobs[job_id]
    if job.stage not in (Stage.TRAINING, Stage.SAVING):
        return job
    step, saved = job.progress.step, job.progress.checkpoint_step or 0
    job = lose_steps(tx, job_id, max(0, step - saved))
    if not tx.limits.loss_rules:
        return job
    if not job.reports_steps or word is LastWord.WITH_HOST:
        job = tx.update(job_id, steps_lost_known=False)
    if job.reports_steps and word is not LastWord.TOLD:
        job = tx.update(job_id, lost_to=Reached(job.attempt, step))
    return job


def lose_steps(tx: Transaction, job_id: JobId, steps: int) -> Job:
    """Count lost steps, and the time in which they were trained, and return the job.

    A program that reports no steps and cannot save has lost all since its process began to train.
    """
    job = tx.state.jobs[job_id]
    if not tx.limits.bounds_runs:
        return tx.update(job_id, steps_lost=job.steps_lost + steps)
    step_s = job.progress.seconds_per_step or 0.0
    seconds = steps * (step_s + (job.progress.apart_s_per_step or 0.0))
    since_s = job.trial.since_s
    if not job.reports_steps and job.program.loses and since_s is not None:
        seconds = tx.now_s - since_s
    # A log of an earlier release may hold any figure; a sum that is not finite fits into no table.
    repeated_gpu_s = job.repeated_gpu_s + min(max(0.0, seconds), SECONDS_MAX) * job.trained_on
    return tx.update(job_id, steps_lost=job.steps_lost + steps, repeated_gpu_s=repeated_gpu_s)


def count_late_loss(tx: Transaction, job_id: JobId, reached: Reached | None) -> None:
    """Count what ``reached`` tells beyond the last report of an attempt that ended without one; if
    it tells nothing of that attempt, more steps may be lost than are counted."""
    job = tx.state.jobs[job_id]
    if job.lost_to is None:
        return
    if reached is not None and reached.attempt == job.lost_to.attempt:
        lose_steps(tx, job_id, max(0, reached.step - job.lost_to.step))
        tx.update(job_id, lost_to=None)
    else:
        tx.update(job_id, steps_lost_known=False, lost_to=None)


def count_failure(tx: Transaction, job_id: JobId, reason: str) -> Job:
    """Count one failure of the job's container, and return the job. Without a retry left it is to
    be halted if it has a checkpoint, and becomes FAILED if not.

    It does not count after a failed process of the same attempt: when the container of a worker
    dies, the processes of the other workers often fail first.
    """
    job = tx.state.jobs[job_id]
    if job.failed_attempt == job.attempt:
        return tx.update(job_id, reason=reason)
    used_up = spend_retry(tx, job_id, reason)
    if used_up and keeps_checkpoint(tx, job_id):
        return tx.update(job_id, after_end=JobState.HALTED, reason=PAUSED + used_up)
    return finish(tx, job_id, JobState.FAILED, used_up) if used_up else tx.state.jobs[job_id]


def counts_starts(tx: Transaction) -> bool:
    """Return whether each start that follows a failure spends a retry; not in a log of an earlier
    release, which has to read as it was written."""
    return tx.limits.start_rules >= 2


def goes_back(tx: Transaction) -> bool:
    """Return whether a job that fails soon after a reshape goes back, and a refusal is final; not
    in a log of an earlier release."""
    return tx.limits.start_rules >= 3


def keeps_checkpoint(tx: Transaction, job_id: JobId) -> bool:
    """Return whether a job without a retry left is paused, because it has a checkpoint."""
    return counts_starts(tx) and bool(tx.state.jobs[job_id].progress.checkpoint_step)


def spend_retry(tx: Transaction, job_id: JobId, reason: str) -> str:
    """Count one failure of the job, for which its next start spends one of its retries.

    Returns why it may not start again; empty if a retry was left.
    """
    job = tx.state.jobs[job_id]
    job = tx.update(job_id, failures=job.failures + 1, failed_attempt=job.attempt, reason=reason)
    tx.note(job, "failure", reason)
    if job.failures <= job.spec.retries:
        return ""
    used_up = f"failure {job.failures}, no retries left (retries: {job.spec.retries})"
    return f"{used_up}; last error: {reason}"


def loss(job: Job) -> str:
    """Return what a stop of a program that cannot save loses now."""
    lost = lost_text(job.unsaved_steps, known=job.reports_steps)
    return f"it cannot save, so {lost} will be lost"


def unseen(tx: Transaction, job: Job) -> str:
    """Return that the job's host no longer shows some of its GPUs; empty if it shows all."""
    gone = [gpu for gpu in job.gpus if tx.state.gpus[gpu].unseen]
    named = " or ".join(job.all_hosts)
    return f"{named} no longer reports {', '.join(gone)}" if gone else ""


def back_off(tx: Transaction, job_id: JobId) -> Job:
    """Have a queued job that failed wait before it starts again."""
    failures = tx.state.jobs[job_id].failures
    wait_s = tx.limits.retry_backoff_s * 2.0 ** max(0, failures - 1)
    deadline = until(tx, DeadlineKind.RETRY, min(wait_s, RETRY_BACKOFF_MAX_S))
    return tx.update(job_id, deadline=deadline)
