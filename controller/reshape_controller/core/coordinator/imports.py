"""The imports of a newcomer's training process, during which its donors train on.

Does: has an initialised newcomer wait, for a limited time, while its SideCar reports that the
framework is imported, so that no donor saves before (R2). Imports that fail or are late delay no
hand-over any longer: the start that follows is slower and no failure (R5).
Never: changes a generation or a GPU, or waits for a SideCar that reports no imports.
"""

from __future__ import annotations

from reshape_controller.core import attempts
from reshape_controller.core.model import DeadlineKind, Job, JobId, Stage
from reshape_controller.core.transaction import Transaction
from reshape_sidecar.wire import StandbyState


def begin(tx: Transaction, job_id: JobId) -> None:
    """Have an initialised newcomer whose donors are not asked yet wait for its imports, if its
    SideCar reports that they are under way."""
    job = tx.state.jobs[job_id]
    hand_over = job.hand_over
    takes = hand_over is not None and bool(hand_over.donors) and not hand_over.shrink_asked
    if not (tx.limits.import_rules and takes and job.stage is Stage.READY and _are_under_way(job)):
        return
    deadline = attempts.until(tx, DeadlineKind.IMPORTS, tx.limits.imports_s)
    reason = "imports its framework; the jobs that give it GPUs train on meanwhile"
    job = tx.update(job_id, deadline=deadline, reason=reason)
    tx.note(job, "imports-awaited", f"its donors train on for at most {tx.limits.imports_s:g} s")


def is_awaited(job: Job) -> bool:
    """Return whether the job's donors train on because it imports."""
    return _has_deadline(job) and _are_under_way(job)


def have_ended(job: Job) -> bool:
    """Return whether the newest report ends the job's wait for its imports."""
    return _has_deadline(job) and not _are_under_way(job)


def end_wait(tx: Transaction, job_id: JobId) -> None:
    """Let the hand-over go on without waiting any longer, and say why."""
    job = tx.state.jobs[job_id]
    job = tx.update(job_id, deadline=None, reason="initialised; waits for its GPUs")
    tx.note(job, "imports-ended", _how_they_ended(job, tx.limits.imports_s))


def _how_they_ended(job: Job, limit_s: float) -> str:
    standby = job.observed.standby if job.observed is not None else None
    if standby is not None and standby.state is StandbyState.READY:
        return "its framework is imported"
    if standby is not None and standby.state is StandbyState.STARTING:
        return f"its framework is not imported after {limit_s:g} s; it imports on, on its GPUs"
    why = standby.reason if standby is not None else "its SideCar does not report imports"
    return f"it starts without early imports: {why or 'its SideCar gives no reason'}"


def _are_under_way(job: Job) -> bool:
    standby = job.observed.standby if job.observed is not None else None
    return standby is not None and standby.state is StandbyState.STARTING


def _has_deadline(job: Job) -> bool:
    return job.deadline is not None and job.deadline.kind is DeadlineKind.IMPORTS
