"""The seconds of a start or reshape by phase, computed from timestamps. Pure.

Timestamps are seconds of the machine's monotonic clock. A missing one (the agent died meanwhile)
gives None.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reshape_sidecar.contract import HookReport
from reshape_sidecar.init.values import TrainingProcess
from reshape_sidecar.wire import PhaseTimes


@dataclass(frozen=True, slots=True)
class Timestamps:
    """When each event of the newest generation happened; None: unknown, or not yet."""

    learned_at_s: float
    asked_at_s: float | None = None
    """Time of the SIGTERM."""
    saved_at_s: float | None = None
    """Time of the hook's report that its checkpoint is published."""
    ended_at_s: float | None = None
    swept_at_s: float | None = None
    spawned_at_s: float | None = None


def stop_times(timestamps: Timestamps) -> PhaseTimes:
    """Return the seconds of save and stop.

    Save: from SIGTERM to the published checkpoint, with the wait for a step boundary. Stop: from
    there until no process of the tree is left. A program without a hook saves until it ends.
    """
    saved_at_s = (
        timestamps.saved_at_s if timestamps.saved_at_s is not None else timestamps.ended_at_s
    )
    return PhaseTimes(
        save_s=_between(timestamps.asked_at_s, saved_at_s),
        stop_s=_between(saved_at_s, timestamps.swept_at_s),
    )


def add_start_times(times: PhaseTimes, timestamps: Timestamps) -> PhaseTimes:
    """Add the SideCar's own seconds between learning of the generation and the new process."""
    whole_s = _between(timestamps.learned_at_s, timestamps.spawned_at_s)
    if whole_s is None or (timestamps.ended_at_s is not None and times.save_s is None):
        return times
    own_s = whole_s - (times.save_s or 0.0) - (times.stop_s or 0.0)
    return replace(times, sidecar_s=max(0.0, own_s))


def add_kind(times: PhaseTimes, training: TrainingProcess) -> PhaseTimes:
    """Add how init started the process."""
    return replace(times, how=training.how, fallback=training.fallback)


def add_reported_times(times: PhaseTimes, report: HookReport) -> PhaseTimes:
    """Add the phases that training measured and reported.

    The hook and a session of one process report apart, both from the start of the process on: a
    report without the import is the session's, and its first step has the import in it.
    """
    first_step_s = report.first_step_s
    if first_step_s is not None and report.import_s is None:
        first_step_s = max(0.0, first_step_s - (times.import_s or 0.0))
    return replace(
        times,
        import_s=_newest(report.import_s, times.import_s),
        build_s=_newest(report.build_s, times.build_s),
        restore_s=_newest(report.restore_s, times.restore_s),
        first_step_s=_newest(first_step_s, times.first_step_s),
    )


def _between(start_s: float | None, end_s: float | None) -> float | None:
    return None if start_s is None or end_s is None else max(0.0, end_s - start_s)


def _newest(new: float | None, old: float | None) -> float | None:
    return old if new is None else new
