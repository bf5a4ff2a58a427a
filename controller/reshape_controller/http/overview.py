"""GET /v1/overview: what goes on, in one cheap answer, from the state in memory.

Does: counts GPUs and jobs, and shows the first jobs of the queue and of those that run. State:
none; ``failures`` has some.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import fields
from typing import TypeVar

from reshape_controller.core.fast_replace import replace
from reshape_controller.core.model import GpuState, Job, JobId, JobState
from reshape_controller.http.base import LIMIT_MAX
from reshape_controller.http.jobs import QUEUED, VIEWS_AT_ONCE, JobHandler
from reshape_controller.http.overtaking import goes_ahead
from reshape_controller.store.protocol import JobRow
from reshape_gpu.overview import FailureLine, GpuCounts, JobLine, Overview
from reshape_gpu.values import JobView

LINES = 50
"""Jobs of the queue, and jobs that run, if the request names no number."""
FAILURES_SHOWN = 10
PLACES_AT_ONCE = 500
"""Jobs whose place is found between which the rest of the daemon goes on."""
DAY_S = 86400.0
T = TypeVar("T")


class OverviewPage(JobHandler):
    """GET the overview; a user who does not see the jobs of others gets their own alone."""

    async def get(self) -> None:
        lines = self.count("lines", LINES, 0, LIMIT_MAX)
        async with self.context.room.turn(self.identity.name):
            await self._answer_overview(lines)

    async def _answer_overview(self, lines: int) -> None:
        context, control = self.context, self.context.control
        user = self.listed_user()
        since_s = context.clock.now_s() - DAY_S
        seq = control.shown_seq()
        failures, completions = [
            tuple(
                self._seen(line)
                for line in await ends.read(control.store, context.timeline, seq, since_s)
                if user in (None, line.user)
            )
            for ends in (context.failures, context.completions)
        ]
        jobs = [job for job in control.live_jobs() if user in (None, job.spec.user)]
        runs = [job for job in jobs if job.gpus]
        queue = [job for job in jobs if not job.gpus and job.state in QUEUED]
        places = [(self._position(job.id), job) async for job in in_pieces(queue, PLACES_AT_ONCE)]
        places.sort(key=lambda each: (each[0], each[1].submitted_at_s, each[1].id))
        ahead = goes_ahead(runs)
        waits = [
            replace(self._line(job), overtaken_by=await self.overtaking(job, ahead))
            async for _, job in in_pieces(places[:lines], VIEWS_AT_ONCE)
        ]
        trains = [self._line(job) async for job in in_pieces(runs[:lines], VIEWS_AT_ONCE)]
        ready, reason = control.ready()
        self.answer(
            Overview(
                seq,
                "leader",
                ready,
                reason or self.waits_for(),
                _gpu_counts(Counter(gpu.state for gpu, _, _ in control.holders())),
                len(runs),
                len(queue),
                sum(job.state is JobState.HALTED for job in jobs),
                len(failures),
                tuple(trains),
                tuple(waits),
                failures[:FAILURES_SHOWN],
                completions,
            )
        )

    def _position(self, job: JobId) -> int:
        """The place in the queue; 0 for a job that is about to get its GPUs."""
        return self.context.control.expectation(job).position or 0

    def _line(self, job: Job) -> JobLine:
        spec = job.spec
        row = JobRow(job.id, spec.name, spec.user, job.state, 0, job.submitted_at_s, job)
        return line_of(self.view(row))

    def _seen(self, line: FailureLine) -> FailureLine:
        """The line as the author may see it."""
        if self.owns_jobs_of(line.user):
            return line
        return FailureLine(line.id, line.name, line.user, line.at_s, "")


async def in_pieces(values: Sequence[T], at_once: int) -> AsyncIterator[T]:
    """Yield the values; between each few of them the rest of the daemon goes on."""
    for number, value in enumerate(values, 1):
        yield value
        if number % at_once == 0:
            await asyncio.sleep(0)


def line_of(view: JobView) -> JobLine:
    """Return a job's view in short."""
    return JobLine(**{each.name: getattr(view, each.name) for each in fields(JobLine)})


def _gpu_counts(counts: Counter[GpuState]) -> GpuCounts:
    return GpuCounts(
        in_use=counts[GpuState.IN_USE],
        idle=counts[GpuState.IDLE],
        preparing=counts[GpuState.RESERVED] + counts[GpuState.RELEASING],
        quarantined=counts[GpuState.QUARANTINED],
        lost=counts[GpuState.LOST],
    )
