"""The use of GPUs that SideCars report, for users who read the store.

Does: writes the newest readings of each job's own GPUs every half minute. They are measurements, so
they are no part of the log, and a store that fails is tried again at the next time. Never: write a
reading twice, or one of a GPU that the job sees but does not train on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog

from reshape_controller.core.model import GpuId, Job, JobId
from reshape_controller.live.loop import Loop
from reshape_controller.store.protocol import GpuUseRow, StoreError
from reshape_sidecar.wire import Observed

USE_EVERY_S = 30.0
"""Pause before each write, the first one of a controller included."""

log = structlog.get_logger("reshape.gpu-use")

Shown = dict[JobId, tuple[int, int]]
"""Attempt and sequence of the newest report of each job whose readings are in the store."""


async def watch(
    loop: Loop,
    observed: Callable[[JobId], Observed | None],
    now_s: Callable[[], float],
    every_s: float = USE_EVERY_S,
) -> None:
    """Write readings until cancelled. ``observed``: the newest report of a job."""
    shown: Shown = {}
    while True:
        await asyncio.sleep(every_s)
        reports = {
            job.id: report
            for job in loop.engine.state.jobs.values()
            if job.gpus and (report := observed(job.id)) is not None
        }
        newest = {job: (each.attempt, each.sequence) for job, each in reports.items()}
        jobs = [loop.engine.state.jobs[job] for job in newest if shown.get(job) != newest[job]]
        rows = rows_of(jobs, reports, now_s())
        try:
            if rows:
                await loop.store.show_gpu_use(rows, loop.journal.epoch)
            shown = newest
        except StoreError as error:
            log.warning("gpu-use-not-shown", error=str(error))


def rows_of(
    jobs: Iterable[Job], reports: dict[JobId, Observed], seen_at_s: float
) -> tuple[GpuUseRow, ...]:
    """Return a row for each GPU that a job trains on and its report has a reading of."""
    return tuple(
        GpuUseRow(GpuId(use.uuid), job.id, use.memory_used_bytes, use.utilization_ratio, seen_at_s)
        for job in jobs
        for use in reports[job.id].gpu_use
        if use.uuid in job.gpus and reports[job.id].attempt == job.attempt
    )
