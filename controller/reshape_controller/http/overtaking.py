"""Which job has gone ahead of a queued one that was there before it, and why.

Does: finds the newest start of a later job in the state, and its decision in the store, which it
reads once. State: the decisions of the starts that were asked for last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from reshape_controller.core.model import Job, JobId
from reshape_controller.store.protocol import Decision, Store

STARTS_MAX = 1000
"""Starts whose decision is remembered."""
DECISIONS_MAX = 100
"""Newest decisions about a job among which that of its start is looked for."""


def goes_ahead(jobs: Iterable[Job]) -> list[tuple[float, Job]]:
    """Return those of some jobs that hold GPUs or are about to, with the time of their start, the
    newest start first. A job whose start is not known is left out."""
    found = [
        (job.runs_since_s, job)
        for job in jobs
        if job.runs_since_s is not None and (job.gpus or job.hand_over is not None)
    ]
    found.sort(key=lambda pair: (pair[0], pair[1].place), reverse=True)
    return found


def newest_ahead(waiting: Job, ahead: Iterable[tuple[float, Job]]) -> tuple[float, Job] | None:
    """Return the newest start of a job that has a later place than ``waiting`` and started while
    it waited; None without one. ``ahead``: of ``goes_ahead``."""
    since_s = waiting.submitted_at_s
    if waiting.preempted_at_s is not None:
        since_s = waiting.preempted_at_s
    for at_s, job in ahead:
        if at_s <= since_s:
            return None
        if job.place > waiting.place:
            return at_s, job
    return None


@dataclass(slots=True)
class StartReasons:
    """Why jobs started, in the words of their decisions; one per daemon."""

    _texts: dict[tuple[JobId, float], str] = field(default_factory=dict)

    async def of(self, store: Store, job: JobId, at_s: float) -> str:
        """Return the text of the decision that started a job at a time; empty if none is stored.
        Raises StoreError."""
        known = self._texts.get((job, at_s))
        if known is None:
            known = _text_of(await store.decisions(job, limit=DECISIONS_MAX), job, at_s)
            self._texts[job, at_s] = known
            if len(self._texts) > STARTS_MAX:
                del self._texts[next(iter(self._texts))]
        return known


def _text_of(decisions: Iterable[Decision], job: JobId, at_s: float) -> str:
    for decision in decisions:
        names_it = any(target.job == job and target.size for target in decision.plan.targets)
        if names_it and decision.at_s == at_s:
            return decision.plan.text
    return ""
