"""What happens when a named wait is over; the figures are in ``core.limits``.

Never: takes a GPU from its owner because time has passed.
"""

from __future__ import annotations

from reshape_controller.core import attempts, endings, giving_up, ledger
from reshape_controller.core.model import Deadline, DeadlineKind, Gpu, GpuId, GpuState, Job, JobId
from reshape_controller.core.replacing import replace
from reshape_controller.core.state import Turn


def due(turn: Turn) -> None:
    """Carry out the consequence of every deadline that has passed, earliest first."""
    wake_at_s = turn.state.wake_at_s
    if wake_at_s is not None and wake_at_s <= turn.now_s:
        turn.state.wake_at_s, turn.state.plan_wanted = None, True
    for key in turn.state.take_due(turn.now_s):
        job = turn.state.jobs.get(JobId(key))
        if job is not None and job.deadline is not None and job.deadline.at_s <= turn.now_s:
            _job_due(turn, job, job.deadline)  # unless what came before it gave it another
        gpu = turn.state.gpus.get(GpuId(key))
        if gpu is not None and gpu.verify_by_s is not None and gpu.state is GpuState.RELEASING:
            _gpu_due(turn, gpu)


def rebase(turn: Turn) -> None:
    """Give every running deadline its full length from now (R6)."""
    for job in tuple(turn.state.jobs.values()):
        if job.deadline is not None:
            deadline = attempts.until(turn, job.deadline.kind, job.deadline.length_s)
            turn.state.put_job(replace(job, deadline=deadline, watched=False))
    for gpu in tuple(turn.state.gpus.values()):
        if gpu.state is GpuState.RELEASING:
            turn.state.put_gpu(replace(gpu, verify_by_s=turn.now_s + turn.limits.verify_s))


def put_off(turn: Turn, held_s: float) -> None:
    """Nobody was heard or told anything for ``held_s`` seconds: no deadline ran meanwhile."""
    for job in tuple(turn.state.jobs.values()):
        if job.deadline is not None:
            deadline = replace(job.deadline, at_s=job.deadline.at_s + held_s)
            turn.state.put_job(replace(job, deadline=deadline, watched=False))
    for gpu in tuple(turn.state.gpus.values()):
        if gpu.verify_by_s is not None:
            turn.state.put_gpu(replace(gpu, verify_by_s=gpu.verify_by_s + held_s))
    turn.note(None, "controller-held-up", f"for {held_s:.0f} s; no deadline ran meanwhile")


def _job_due(turn: Turn, job: Job, deadline: Deadline) -> None:
    waited = f"{deadline.length_s:g} s"
    if deadline.kind is not DeadlineKind.RETRY:
        turn.note(job, "deadline", f"{deadline.kind.value}: {waited} are over")
    match deadline.kind:
        case DeadlineKind.EARLY_INIT:
            reason = f"its SideCar did not initialise within {waited}"
            endings.launch_failed(turn, job, reason, retryable=True)
        case DeadlineKind.SAVE_ANSWER:
            _no_answer(turn, job, deadline)
        case DeadlineKind.STOP:
            reason = f"its process tree was not gone after {waited}"
            attempts.remove(turn, job, reason, after=job.after_end)
        case DeadlineKind.FIRST_STEP:
            endings.start_hung(turn, job, f"no first step within {waited}{_as_told(job)}")
        case DeadlineKind.INITIALIZED_HOLD:
            reason = f"no GPUs for it within {waited} of its initialisation"
            attempts.remove(turn, job, reason)
        case DeadlineKind.END | DeadlineKind.REMOVE:
            attempts.remove(turn, job, job.reason, after=job.after_end)
        case DeadlineKind.RETRY:
            turn.state.put_job(replace(job, deadline=None))
            turn.state.plan_wanted = True


def _no_answer(turn: Turn, job: Job, deadline: Deadline) -> None:
    """Neither ``stopping`` nor ``refused``: take the request back, then wait for either (R2)."""
    assert job.change is not None
    if job.change.withdrawn or not job.reachable:
        again = attempts.until(turn, deadline.kind, deadline.length_s)
        turn.state.put_job(replace(job, deadline=again, reason="its SideCar does not answer"))
        return
    giving_up.take_back(turn, job, f"{job.spec.name} did not answer the request to save")


def _gpu_due(turn: Turn, gpu: Gpu) -> None:
    newcomer = turn.state.jobs.get(gpu.promised_to) if gpu.promised_to is not None else None
    reason = gpu.reason or "its release could not be verified in time"
    if newcomer is not None:
        giving_up.abandon(turn, newcomer, f"GPU {gpu.id}: {reason}")
    ledger.quarantine(turn, turn.state.gpus[gpu.id], reason)


def _as_told(job: Job) -> str:
    """What its SideCar says that the start waits for."""
    told = job.observed.error if job.observed is not None else None
    return f": {told}" if told else ""
