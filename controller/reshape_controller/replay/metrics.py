"""Metrics of a replay, by the names in every table and JSON (docs/replay.md); not rounded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from reshape_controller.core.fast_replace import fast_init
from reshape_controller.core.model import JobId
from reshape_controller.replay.account import Account, EndedJob, Use


@fast_init
@dataclass(frozen=True, slots=True)
class JobResult:
    """The result of a job. Times are seconds of the replay."""

    job: JobId
    job_type: str
    state: str
    submitted_s: float
    launched_s: float | None
    started_s: float | None
    """Time of the first grant of GPUs."""
    first_step_s: float | None
    finished_s: float
    steps: int
    reshape_ups: int
    reshape_downs: int
    pause_s: float
    process_restarts: int
    container_restarts: int
    moves: int = 0
    """Reshapes to as many other GPUs. A controller does not count them."""

    @property
    def jct_s(self) -> float:
        """Time from submission to completion."""
        return self.finished_s - self.submitted_s

    @property
    def wait_s(self) -> float:
        """Time from submission to the first grant of GPUs (or to the end, without a grant)."""
        return (self.finished_s if self.started_s is None else self.started_s) - self.submitted_s


@dataclass(frozen=True, slots=True)
class ReplayMetrics:
    """All metrics of a replay (docs/replay.md)."""

    makespan_s: float
    """Time from the first submission to the last completion."""
    mean_jct_s: float
    median_jct_s: float
    p95_jct_s: float
    mean_wait_s: float
    gpu_use_ratio: float
    """GPU seconds with training over all GPU seconds of the makespan."""
    gpu_idle_s: float
    """GPU seconds without training: the sum of unallocated, reserved, starting and stopping."""
    gpu_unallocated_s: float
    gpu_reserved_s: float
    gpu_starting_s: float
    gpu_stopping_s: float
    overhead_ratio: float
    """Pauses of all reshapes over the run times of all jobs."""
    overhead_with_starts_ratio: float
    reshape_ups: int
    reshape_downs: int
    moves: int
    """Moves of running jobs to other GPUs at the same size."""
    reshape_up_s: float
    """Mean pause of an adding event."""
    reshape_down_s: float
    steps_lost: int
    process_restarts: int
    container_restarts: int
    pending_at_last_submission: int
    jobs: int


def job_rows(account: Account) -> tuple[JobResult, ...]:
    """Return the results of the ended jobs, in the order of submission."""
    ups: dict[JobId, int] = {}
    downs: dict[JobId, int] = {}
    moves: dict[JobId, int] = {}
    pauses: dict[JobId, float] = {}
    for event in account.reshapes:
        ups[event.job] = ups.get(event.job, 0) + event.up
        downs[event.job] = downs.get(event.job, 0) + event.down
        moves[event.job] = moves.get(event.job, 0) + (not event.up and not event.down)
        pauses[event.job] = pauses.get(event.job, 0.0) + event.seconds
    rows = []
    for job in sorted(account.ended, key=lambda job: job.place):
        rows.append(
            JobResult(
                job=job.id,
                job_type=job.job_type,
                state=job.state,
                submitted_s=job.submitted_s,
                launched_s=account.launched_s.get(job.id),
                started_s=job.started_s,
                first_step_s=account.first_step_s.get(job.id),
                finished_s=job.finished_s,
                steps=job.steps,
                reshape_ups=ups.get(job.id, 0),
                reshape_downs=downs.get(job.id, 0),
                pause_s=pauses.get(job.id, 0.0),
                process_restarts=job.process_restarts,
                container_restarts=job.container_restarts,
                moves=moves.get(job.id, 0),
            )
        )
    return tuple(rows)


def percentile(ordered: Sequence[float], ratio: float) -> float:
    """Return the percentile of sorted values by nearest rank."""
    return ordered[max(0, math.ceil(ratio * len(ordered)) - 1)]


def measure(
    account: Account, rows: Sequence[JobResult], jobs: Sequence[EndedJob], gpus: int, pending: int
) -> ReplayMetrics:
    """Return the metrics of an ended replay; ``pending``: jobs at the last submission."""
    first_s = min(row.submitted_s for row in rows)
    makespan_s = max(row.finished_s for row in rows) - first_s
    times = sorted(row.jct_s for row in rows)
    pauses = [event.seconds for event in account.reshapes]
    ups = [event.seconds for event in account.reshapes if event.up]
    downs = [event.seconds for event in account.reshapes if event.down]
    runs_s = sum(row.finished_s - row.started_s for row in rows if row.started_s is not None)
    starts_s = sum(
        row.first_step_s - row.launched_s
        for row in rows
        if row.first_step_s is not None and row.launched_s is not None
    )
    all_s = gpus * makespan_s
    used_s = account.seconds[Use.TRAINING]
    parts = [account.seconds[use] for use in (Use.RESERVED, Use.STARTING, Use.STOPPING)]
    idle_s = all_s - used_s
    return ReplayMetrics(
        makespan_s=makespan_s,
        mean_jct_s=fmean(times),
        median_jct_s=median(times),
        p95_jct_s=percentile(times, 0.95),
        mean_wait_s=fmean(row.wait_s for row in rows),
        gpu_use_ratio=used_s / all_s if all_s else 0.0,
        gpu_idle_s=idle_s,
        gpu_unallocated_s=account.seconds[Use.UNALLOCATED],
        gpu_reserved_s=parts[0],
        gpu_starting_s=parts[1],
        gpu_stopping_s=parts[2],
        overhead_ratio=sum(pauses) / runs_s if runs_s else 0.0,
        overhead_with_starts_ratio=(sum(pauses) + starts_s) / runs_s if runs_s else 0.0,
        reshape_ups=len(ups),
        reshape_downs=len(downs),
        moves=len(pauses) - len(ups) - len(downs),
        reshape_up_s=fmean(ups) if ups else 0.0,
        reshape_down_s=fmean(downs) if downs else 0.0,
        steps_lost=sum(job.steps_lost for job in jobs),
        process_restarts=sum(row.process_restarts for row in rows),
        container_restarts=sum(row.container_restarts for row in rows),
        pending_at_last_submission=pending,
        jobs=len(rows),
    )
