"""The seconds of jobs in each phase of a replay and of a live run.

Does: feed the records of either to an engine again, as the daemon's timeline does, and sum its
spans until each job is completed. Both have the same phases, because both are of the same engine.
"""

from __future__ import annotations

from pathlib import Path

from reshape_controller.core.engine import Engine
from reshape_controller.http.timeline import Recorder, Timeline, TimelineReader
from reshape_controller.replay.bundle import records
from reshape_controller.replay.shell import Result
from reshape_controller.scheduling.rounds import redo
from reshape_controller.store.sqlite.store import SqliteStore


def of_replay(result: Result) -> dict[str, float]:
    """Return the mean seconds of a job by phase, of a replay that kept its rounds."""
    engine, recorder = Engine(), Recorder()
    recorder.begin(engine, 0)
    for record in records(result.policy, result):
        redo(engine, record)
        recorder.record(engine, record.seq, record.at_s)
    return seconds_by_phase(recorder.timeline())


async def of_store(path: Path) -> dict[str, float]:
    """Return the mean seconds of a job by phase, of a daemon's store. Raises StoreError."""
    store = SqliteStore(path)
    await store.open()
    try:
        return seconds_by_phase(await TimelineReader(whole=True).read(store))
    finally:
        await store.close()


def seconds_by_phase(timeline: Timeline) -> dict[str, float]:
    """Return the mean seconds of a job by phase, until its completion."""
    found: dict[str, float] = {}
    for lane in timeline.jobs:
        end_s = timeline.to_s if lane.ended_at_s is None else lane.ended_at_s
        for span in lane.spans:
            last_s = end_s if span.to_s is None else min(span.to_s, end_s)
            found[span.phase] = found.get(span.phase, 0.0) + max(0.0, last_s - span.from_s)
    return {phase: seconds / len(timeline.jobs) for phase, seconds in found.items()}
