"""When jobs are predicted to start and to end, for people who wait for them.

Does: makes a forecast of the engine's state, as policies do, at most every ``FRESH_S``. It changes
nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from reshape_controller.core.engine import Engine
from reshape_controller.core.model import JobId
from reshape_controller.core.plan import JobView, Snapshot
from reshape_controller.core.profile_book import total_steps
from reshape_controller.core.state import State
from reshape_controller.scheduling.forecast import Forecast
from reshape_controller.scheduling.predictor import Predictor

FRESH_S = 2.0
"""Time for which a forecast is used again."""
PAUSES = 9.0
"""Least pause between two forecasts, in durations of one: a tenth of the time goes to them."""


@dataclass(frozen=True)
class Expectation:
    """The fields of a job's view that a forecast fills in."""

    position: int | None = None
    predicted_start_at_s: float | None = None
    predicted_end_at_s: float | None = None


NOTHING = Expectation()


class Expectations:
    """The expectation of every job; one per daemon."""

    def __init__(self) -> None:
        self._jobs: dict[JobId, Expectation] = {}
        self._seq = -1
        self._until_s = 0.0
        self._again_s = 0.0
        """When a job that is not in the forecast may have another made."""

    def of(self, job: JobId, engine: Engine, seq: int) -> Expectation:
        """Return the expectation of a job; ``seq`` is the newest record of the engine's log."""
        state = engine.state
        if job not in state.jobs:
            return NOTHING
        now_s = time.monotonic()
        due_s = self._until_s if job in self._jobs else self._again_s
        if seq != self._seq and now_s >= due_s:
            self._jobs = dict.fromkeys(state.jobs, NOTHING) | forecast_of(engine.snapshot(), state)
            end_s = time.monotonic()
            self._again_s = end_s + PAUSES * (end_s - now_s)
            self._seq, self._until_s = seq, max(self._again_s, end_s + FRESH_S)
        return self._jobs.get(job, NOTHING)


def forecast_of(snapshot: Snapshot, state: State) -> dict[JobId, Expectation]:
    """Return the expectations of all queued and running jobs."""
    found = {job.id: Expectation(at) for at, job in enumerate(snapshot.queued, 1)}
    if not snapshot.hosts:
        return found
    forecast = Forecast(snapshot, Predictor(snapshot))
    now_s, known = snapshot.now_s, {job.id for job in _with_length(snapshot, state)}
    for job in snapshot.running:
        if job.id in known:
            found[job.id] = Expectation(None, None, now_s + forecast.end_ms(job) / 1e3)
    if not forecast.head:
        return found
    ends_ms = forecast.queue[1].ends_ms
    for job_id, work, end_ms in zip(forecast.head_ids, forecast.head, ends_ms, strict=True):
        if end_ms >= 0:
            start_ms = max(0, end_ms - min(work.durations_ms))
            end_s = now_s + end_ms / 1e3 if job_id in known else None
            position = found[job_id].position
            found[job_id] = Expectation(position, now_s + start_ms / 1e3, end_s)
    return found


def _with_length(snapshot: Snapshot, state: State) -> list[JobView]:
    """Return the jobs whose number of steps is known."""
    book, jobs = state.profiles, state.jobs
    return [
        view
        for view in (*snapshot.queued, *snapshot.running)
        if total_steps(book, view.spec, jobs[view.id].progress, jobs[view.id].curve) is not None
    ]
