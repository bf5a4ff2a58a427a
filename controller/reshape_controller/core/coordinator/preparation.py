"""The successor of a job that is about to change its GPUs: asked for, awaited, given up.

Does: before the point of no return, repeats the job's desired state with the devices to prepare
for, and waits for the successor for a limited time. A change without a successor is slower and no
failure (R2, R5).
Never: changes a generation or a GPU, or asks for a successor after the point of no return.
"""

from __future__ import annotations

from reshape_controller.core import attempts, learning
from reshape_controller.core.limits import PREPARE_FACTOR
from reshape_controller.core.model import DeadlineKind, GpuId, Job, JobId, Mechanism, Stage
from reshape_controller.core.transaction import Transaction
from reshape_sidecar.wire import PrepareStage

_UNDER_WAY = (PrepareStage.IMPORTING, PrepareStage.SCRIPT)
"""Stages in which a successor still comes further by itself."""


def can_begin(tx: Transaction, job: Job) -> bool:
    """Return whether a successor of the job can be prepared before a reshape in its container."""
    in_place = tx.state.mechanism is Mechanism.SIDECAR and job.stage is Stage.TRAINING
    return in_place and job.observed is not None and job.observed.can_prepare


def begin(tx: Transaction, job_id: JobId, devices: tuple[GpuId, ...]) -> None:
    """Have a successor for ``devices`` prepared, if the job's SideCar can do that."""
    job = tx.state.jobs[job_id]
    if not devices or not can_begin(tx, job) or job.prepare == devices:
        return  # a job that is preempted starts in another container
    learned_s = tx.state.profiles.learned_of(job.spec.job_type).prepare_s
    wait_s = tx.limits.prepare_s
    if learned_s is not None:
        wait_s = min(wait_s, PREPARE_FACTOR * learned_s)
    deadline = attempts.until(tx, DeadlineKind.PREPARE, wait_s)
    job = tx.update(job_id, prepare=devices, deadline=deadline)
    attempts.repeat(tx, job)


def give_up(tx: Transaction, job_id: JobId) -> None:
    """Have no successor of the job prepared any more; it goes on as it is."""
    job = tx.state.jobs[job_id]
    if job.prepare is None:
        return
    job = tx.update(job_id, prepare=None, deadline=None if _has_deadline(job) else job.deadline)
    attempts.repeat(tx, job)


def is_awaited(job: Job) -> bool:
    """Return whether the job's change waits for its successor."""
    if job.prepare is None or not _has_deadline(job):
        return False
    report = job.observed
    if report is None or not report.can_prepare:
        return False
    found = report.prepared
    return found is None or found.devices != job.prepare or found.stage in _UNDER_WAY


def end_wait(tx: Transaction, job_id: JobId, length_s: float) -> None:
    """Let the change go on without waiting any longer; ``length_s``: the wait, in seconds."""
    job = tx.update(job_id, deadline=None)
    learning.learn_prepare(tx, job, length_s)


def _has_deadline(job: Job) -> bool:
    return job.deadline is not None and job.deadline.kind is DeadlineKind.PREPARE
