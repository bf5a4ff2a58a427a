"""The bounds that a record and the daemon give a run: how long a start may be silent, or last.

Does: judges by what the job's SideCar has told, and says when to look again. Pure values;
``deadlines`` acts on them. A start that works is not ended for its age unless its record says so.
Never: takes the silence of a SideCar for that of its job.
"""

from __future__ import annotations

from reshape_controller.core.fast_replace import replace
from reshape_controller.core.limits import LOOK_MIN_S, START_ALERT_S, Limits
from reshape_controller.core.model import Job

LATE_START = f"no first training step for {START_ALERT_S / 3600:g} h"


def start_timeout_s(limits: Limits, job: Job) -> float:
    """Return the silence after which a start of the job has failed; 0: it may be silent."""
    own_s = job.spec.start_timeout_s
    return limits.start_timeout_s if own_s is None else own_s


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
            f"no first training step, and no sign of work for {timeout_s:g} s (no output, and less "
            "than 1 s of processor time a minute); start_timeout_s in its record is another bound, "
            f"0 is none{because}"
        )
    return ""


def is_late(job: Job, now_s: float) -> bool:
    """Return whether the start that is under way becomes an alert."""
    assert job.starts_since_s is not None
    return not job.late and now_s - job.starts_since_s >= START_ALERT_S


def next_look_s(limits: Limits, job: Job, now_s: float) -> float | None:
    """Return when the start that is under way is to be judged next; None: never."""
    assert job.starts_since_s is not None
    took_s = now_s - job.starts_since_s
    waits_s = [] if job.late else [START_ALERT_S - took_s]
    if job.spec.start_limit_s:
        waits_s.append(job.spec.start_limit_s - took_s)
    if timeout_s := start_timeout_s(limits, job):
        waits_s.append(max(LOOK_MIN_S, timeout_s - (_silent_s(job, took_s) or 0.0)))
    return now_s + min(waits_s) if waits_s else None


def first_look_s(limits: Limits, job: Job, now_s: float) -> float | None:
    """Return when a start that begins now is to be judged first."""
    begun = replace(job, starts_since_s=now_s, observed=None, late="")
    return next_look_s(limits, begun, now_s)


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
