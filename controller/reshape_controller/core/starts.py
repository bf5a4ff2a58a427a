"""How a job's next training process will start, by the newest report of its SideCar. Pure.

A process that starts in a new container starts cold: nothing is known of that container yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from reshape_controller.core.model import Job, Stage
from reshape_controller.core.record import HistoryEntry
from reshape_sidecar.wire import Observed, StandbyState, StartKind

_BEFORE_RESHAPE = (Stage.TRAINING, Stage.SAVING, Stage.STOPPING)
"""Stages whose next process takes the place of one that trains, so that a successor can be it."""


@dataclass(frozen=True, slots=True)
class StartCount:
    """What starts are counted by."""

    how: StartKind
    fell_back: bool
    """Whether the settings allow a faster start."""


def counted(history: Iterable[HistoryEntry]) -> tuple[StartCount, ...]:
    """Return one value for each start of a process in these entries that says how it was made."""
    costs = [cost for entry in history for cost in entry.costs]
    return tuple(
        StartCount(cost.how, cost.fallback is not None) for cost in costs if cost.how is not None
    )


def offered(report: Observed | None) -> StartKind:
    """Return the fastest start that a SideCar offers; cold from one that offers none."""
    if report is not None and report.can_prepare:
        return StartKind.SUCCESSOR
    return _without_successor(report)


def differ(before: Observed | None, after: Observed) -> bool:
    """Return whether two reports of a job offer different starts."""
    same = (after.standby, after.can_prepare)
    if before is not None and (before.standby, before.can_prepare) == same:
        return False
    return offered(before) is not offered(after)


def promised(job: Job) -> StartKind:
    """Return how the job's next process starts in its present container."""
    if job.stage in _BEFORE_RESHAPE:
        return offered(job.observed)
    return _without_successor(job.observed)


def _without_successor(report: Observed | None) -> StartKind:
    standby = report.standby if report is not None else None
    is_ready = standby is not None and standby.state is StandbyState.READY
    return StartKind.ZYGOTE if is_ready else StartKind.COLD
