"""Submissions of a trace's jobs: a window of the trace, and the load of its jobs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from reshape_controller.replay.conversion import Conversion, LeftOut, TraceJob
from reshape_controller.replay.inputs import ReplayError


@dataclass(frozen=True, slots=True)
class Bound:
    """A time on the trace's own clock, or from its first submission on."""

    at_s: float
    from_first: bool


def window(
    found: Conversion, start: Bound | None = None, end: Bound | None = None
) -> tuple[Conversion, int]:
    """Return the jobs that are submitted from ``start`` on and before ``end``, and the number of
    rows outside.

    The first submission is that of all rows, also of those that are left out: so a window does not
    move with the options that leave rows out. Raises ReplayError without a job in the window.
    """
    times = [job.submit_s for job in found.jobs]
    times += [row.submit_s for row in found.left_out if row.submit_s is not None]
    first_s, last_s = min(times), max(times)

    def clock_s(bound: Bound | None, default_s: float) -> float:
        if bound is None:
            return default_s
        return bound.at_s + (first_s if bound.from_first else 0.0)

    low_s, high_s = clock_s(start, -float("inf")), clock_s(end, float("inf"))
    jobs = tuple(job for job in found.jobs if low_s <= job.submit_s < high_s)
    left_out = tuple(
        row for row in found.left_out if row.submit_s is None or low_s <= row.submit_s < high_s
    )
    if not jobs:
        raise ReplayError(
            f"no job is submitted in the window{_span(low_s, high_s)}; the trace has submissions "
            f"from {first_s:.10g} to {last_s:.10g} s"
        )
    outside = _rows(found.jobs) + _rows(found.left_out) - _rows(jobs) - _rows(left_out)
    return replace(found, jobs=jobs, left_out=left_out), outside


def _rows(entries: Sequence[TraceJob | LeftOut]) -> int:
    """Return the number of rows of the trace that jobs, or rows left out, are made of."""
    return sum(entry.rows for entry in entries)


def _span(low_s: float, high_s: float) -> str:
    """Return the bounds of a window in words; a missing bound is not named."""
    low = f" from {low_s:.10g} s" if math.isfinite(low_s) else ""
    return f"{low} to {high_s:.10g} s" if math.isfinite(high_s) else f"{low} on" if low else ""


def load(jobs: Sequence[TraceJob], gpus: int) -> float:
    """Return the GPU time of jobs over that of ``gpus`` GPUs from the first to the last submission.

    Raises ReplayError if all jobs are submitted at once.
    """
    span_s = jobs[-1].submit_s - jobs[0].submit_s
    if span_s <= 0.0:
        raise ReplayError("all jobs are submitted at once, so their load is not defined")
    return sum(job.gpu_s for job in jobs) / (gpus * span_s)
