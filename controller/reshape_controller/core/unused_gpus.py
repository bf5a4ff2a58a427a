"""GPUs that a job has and its program does not use, by the word of its hook.

Does: notes how many a program uses once it has trained for a while, so that the job's sizes end
there, and says what to do about it. The planner then has the job shrink (``scheduling.due_sizes``).
Never: believes a report about other GPUs than the job has, or any while a person has pinned the job
or its record starts a process for each GPU.
"""

from __future__ import annotations

from reshape_controller.core.limits import UNUSED_AFTER_S
from reshape_controller.core.model import Job, JobId, Stage
from reshape_controller.core.phrases import gpus
from reshape_controller.core.transaction import Transaction
from reshape_sidecar.wire import Observed, Phase, Processes

REMEDY = "to use more, create and compile its model in the scope of a MirroredStrategy"


def take(tx: Transaction, job_id: JobId, report: Observed) -> None:
    """Take in how many GPUs the program of a job uses, if its SideCar says so."""
    used = report.devices_used
    if used is None:
        return
    job = tx.state.jobs[job_id]
    if not _counts(job, report) or not _has_trained_long(tx, job):
        return
    size = len(job.gpus)
    if used >= size:  # as long as it has more than an earlier word allows, that was wrong
        used = 0 if job.uses < size else job.uses
    if used == job.uses:
        return
    job = tx.update(job_id, uses=used)
    tx.state.plan_wanted = True
    keeps = f"reshape pin {job.spec.name} {size} keeps all"
    what = f"its program uses {used} of its {gpus(size)}; {REMEDY}; {keeps}"
    tx.note(job, "gpus-unused", what if used else "its program uses all of them")


def _counts(job: Job, report: Observed) -> bool:
    """Whether the word of a report is about the GPUs that a settled job has."""
    return (
        job.stage is Stage.TRAINING
        and not job.frozen
        and job.pinned is None
        and job.spec.workers == 1
        and job.spec.processes is not Processes.PER_GPU
        and report.phase is Phase.RUNNING
        and report.generation == job.generation
        and set(report.devices) == set(job.gpus)
    )


def _has_trained_long(tx: Transaction, job: Job) -> bool:
    since_s = job.trial.since_s
    return since_s is not None and tx.now_s - since_s >= UNUSED_AFTER_S


def why_not_more(job: Job) -> str:
    """Return that a program with a known number of used GPUs uses no more, and what to do."""
    return f"its program uses {gpus(job.uses)}: {REMEDY}"
