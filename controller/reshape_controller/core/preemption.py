"""The rules by which a plan may preempt running jobs: send them back to the queue for another.

Does: checks a plan that gives a running job size 0, and counts a preemption once the job has saved.
``scheduling.preemption_reason`` confirms the plan's reason before the engine sees the plan.
"""

from __future__ import annotations

from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.limits import EQUAL_PREEMPTION_EVERY_S, EQUAL_RUNTIME_MIN_S
from reshape_controller.core.model import ChangeKind, Job, JobId, Share
from reshape_controller.core.plan import JobView, Preemption, Target
from reshape_controller.core.state import State
from reshape_controller.core.states import PreemptionReason
from reshape_controller.core.transaction import Transaction


def check(
    state: State, reason: Preemption | None, receiver: Target | None, donors: list[Target]
) -> None:
    """Check the donors that a plan preempts, those with size 0. Raises PlanRejected.

    ``receiver``: the queued job that the plan starts; None: it starts none. ``donors``: all that
    the plan shrinks or preempts.
    """
    preempted = [state.jobs[donor.job] for donor in donors if donor.size == 0]
    if not preempted:
        return
    if reason is None:
        raise PlanRejected(f"{preempted[0].id}: the plan gives no reason to preempt it")
    if receiver is None:
        raise PlanRejected(f"{preempted[0].id}: only a queued job can preempt it")
    newcomer = state.jobs[receiver.job]
    for job in preempted:
        _check_one(state, reason, newcomer, job)
    if _shrinks_would_do(state, newcomer, receiver, donors):
        named = ", ".join(donor.job for donor in donors)
        what = f"it can start if {named} give GPUs and train on, so none is preempted"
        raise PlanRejected(f"{newcomer.id}: {what}")


def _check_one(state: State, reason: Preemption, newcomer: Job, job: Job) -> None:
    if job.program.loses:
        raise PlanRejected(f"{job.id}: it cannot save its steps, so no job preempts it")
    start_s = start_of(job)
    run_s = state.now_s - start_s
    if _is_early(state, start_s, job.spec.min_runtime_s):
        least_s = job.spec.min_runtime_s
        raise PlanRejected(f"{job.id}: has run {run_s:.0f} s of its min_runtime_s of {least_s:g} s")
    ours, theirs = newcomer.spec.priority, job.spec.priority
    if ours > theirs:
        return
    priorities = f"{newcomer.id} has priority {ours}, {job.id} {theirs}"
    if ours < theirs or reason.reason is PreemptionReason.PRIORITY:
        raise PlanRejected(f"{job.id}: {priorities}: only a higher one preempts")
    if _is_early(state, start_s, EQUAL_RUNTIME_MIN_S):
        least = f"{EQUAL_RUNTIME_MIN_S:g} s before a job of equal priority preempts it"
        raise PlanRejected(f"{job.id}: has run {run_s:.0f} s of the {least}")
    last_s = job.preempted_at_s
    if last_s is not None and _is_early(state, last_s, EQUAL_PREEMPTION_EVERY_S):
        ago = f"{state.now_s - last_s:.0f} s ago; at equal priority once in"
        raise PlanRejected(f"{job.id}: was preempted {ago} {EQUAL_PREEMPTION_EVERY_S:g} s")


def _is_early(state: State, since_s: float, least_s: float) -> bool:
    """Whether less than ``least_s`` has passed, by the sum and by the difference: a policy may have
    computed either, and they differ by a rounding."""
    return state.now_s < since_s + least_s and state.now_s - since_s < least_s


def start_of(job: Job | JobView) -> float:
    """Return when a plan started a running job; of a job that an earlier release started, when it
    got its first GPUs ever."""
    if job.runs_since_s is not None:
        return job.runs_since_s
    return job.started_at_s if job.started_at_s is not None else job.submitted_at_s


def _shrinks_would_do(state: State, newcomer: Job, receiver: Target, donors: list[Target]) -> bool:
    """Whether the newcomer could start, at any size, on idle GPUs and those of these donors
    without one of them at size 0."""
    places = receiver.shares or (Share(receiver.host, newcomer.spec.workers),)
    workers = {share.host: share.workers for share in places}
    count = {host: len(state.idle_gpus(host)) for host in workers}
    for donor in donors:
        job = state.jobs[donor.job]
        least = min(job.sizes, default=len(job.gpus))
        for host in job.hosts or (job.host,) * job.spec.workers:
            if host in count:
                count[host] += max(0, len(job.gpus) - least) // job.spec.workers
    each = min(newcomer.sizes) // newcomer.spec.workers
    return all(count[host] >= each * workers[host] for host in workers)


def count(tx: Transaction, job_id: JobId) -> None:
    """Count the preemption of a job that has saved, or whose container has ended in order, if it
    was asked to leave for another job."""
    change = tx.state.jobs[job_id].change
    if change is None or change.kind is not ChangeKind.LEAVE or change.for_job is None:
        return
    job = tx.state.jobs[job_id]
    job = tx.update(
        job_id,
        preempted_by=change.for_job,
        preempted_at_s=tx.now_s,
        preemptions=job.preemptions + 1,
    )
    tx.note(job, "preempted", f"{job.reason}; it is queued again in its old place")
