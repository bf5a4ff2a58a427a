"""The bounds that a record and the daemon give a run: of its starts, its progress and its length.

Does: judges by what the job's SideCar has told, and says when to look again. Pure values;
``deadlines`` acts on them. A start that works is not ended for its age unless its record says so.
Never: takes the silence of a SideCar for that of its job.
"""

from __future__ import annotations

from collections.abc import Iterator

from reshape_controller.core.limits import LOOK_MIN_S, PROGRESS_ALERT_S, START_ALERT_S, Limits
from reshape_controller.core.model import Job, Stage

LATE_START = f"no first training step for {START_ALERT_S / 3600:g} h"
LATE_STEP = f"no training step for {PROGRESS_ALERT_S / 3600:g} h"
LATE_SIGN = f"no sign of work for {PROGRESS_ALERT_S / 3600:g} h"
NO_SIGN = "no output, and less than 1 s of processor time a minute"


def start_timeout_s(limits: Limits, job: Job) -> float:
    """Return the silence after which a start of the job has failed; 0: it may be silent."""
    own_s = job.spec.start_timeout_s
    return limits.start_timeout_s if own_s is None else own_s


def ran_s(job: Job, now_s: float) -> float:
    """Return for how long the job has had GPUs since its first grant, or its last resume."""
    since_s = job.serves_since_s
    return job.ran_s + now_s - since_s if job.gpus and since_s is not None else job.ran_s


def run_problem(job: Job, now_s: float) -> str:
    """Return why the job must not have GPUs any longer; empty if it may."""
    limit_s = job.spec.max_run_s
    is_over = limit_s is not None and ran_s(job, now_s) >= limit_s
    return f"it has had GPUs for its max_run_s of {limit_s:g} s" if is_over else ""


def start_problem(limits: Limits, job: Job, now_s: float) -> str:
    """Return why the start that is under way has failed; empty if it may go on."""
    assert job.starts_since_s is not None
    took_s = now_s - job.starts_since_s
    limit_s, timeout_s = job.spec.start_limit_s, start_timeout_s(limits, job)
    error = job.observed.error if job.observed is not None else None
    because = f": {error}" if error else ""
    if limit_s and took_s >= limit_s:
        return f"no first training step within its start_limit_s of {limit_s:g} s{because}"
    silent_s = _silent_s(job, took_s)
    if timeout_s and silent_s is not None and silent_s >= timeout_s:
        return (
            f"no first training step, and no sign of work for {timeout_s:g} s ({NO_SIGN}); "
            f"start_timeout_s in its record is another bound, 0 is none{because}"
        )
    return ""


def progress_problem(job: Job, now_s: float) -> str:
    """Return why a job that trains has failed; empty if it may go on."""
    timeout_s, stood_s = job.spec.progress_timeout_s, _stood_s(job, now_s)
    if timeout_s is None or stood_s is None or stood_s < timeout_s:
        return ""
    what = "no further training step" if job.reports_steps else f"no sign of work ({NO_SIGN})"
    return f"{what} within its progress_timeout_s of {timeout_s:g} s"


def lateness(job: Job, now_s: float) -> str:
    """Return what the job does for too long, so that it is an alert; empty if nothing is."""
    if job.stage is Stage.STARTING:
        took_s = 0.0 if job.starts_since_s is None else now_s - job.starts_since_s
        return LATE_START if job.late or took_s >= START_ALERT_S else ""
    stood_s = _stood_s(job, now_s)
    if stood_s is None:
        return job.late
    if stood_s < PROGRESS_ALERT_S:
        return ""
    return LATE_STEP if job.reports_steps else LATE_SIGN


def next_look_s(limits: Limits, job: Job, now_s: float) -> float | None:
    """Return when the job is to be judged next; None: never."""
    waits_s = [*_waits_s(limits, job, now_s)]
    if job.spec.max_run_s is not None:
        waits_s.append(job.spec.max_run_s - ran_s(job, now_s))
    return now_s + max(LOOK_MIN_S, min(waits_s)) if waits_s else None


def _waits_s(limits: Limits, job: Job, now_s: float) -> Iterator[float]:
    """Yield the time to the next look for each bound of the job's stage."""
    if job.stage is Stage.STARTING and job.starts_since_s is not None:
        took_s = now_s - job.starts_since_s
        if not job.late:
            yield START_ALERT_S - took_s
        if job.spec.start_limit_s:
            yield job.spec.start_limit_s - took_s
        if timeout_s := start_timeout_s(limits, job):
            yield timeout_s - (_silent_s(job, took_s) or 0.0)
    if job.stage is Stage.TRAINING:
        stood_s = _stood_s(job, now_s) or 0.0
        yield PROGRESS_ALERT_S - (0.0 if job.late else stood_s)
        if job.spec.progress_timeout_s is not None:
            yield job.spec.progress_timeout_s - stood_s


def _silent_s(job: Job, took_s: float) -> float | None:
    """Return for how long the start has been silent; None while nobody tells.

    A SideCar that reports, but nothing of this start, has not begun it, or is of a release that
    does not measure: then all the time since the request counts.
    """
    if not (job.reachable and job.answered):
        return None
    report = job.observed
    if report is None or report.generation < job.generation or report.silent_s is None:
        return took_s
    return report.silent_s


def _stood_s(job: Job, now_s: float) -> float | None:
    """Return for how long the job has made no further step; of a program that reports no steps, for
    how long it has been silent. None while nobody tells."""
    if not (job.reachable and job.answered):
        return None
    if job.reports_steps:
        return None if job.progress_at_s is None else now_s - job.progress_at_s
    return job.observed.silent_s if job.observed is not None else None
