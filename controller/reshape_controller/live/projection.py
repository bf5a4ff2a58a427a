"""What one append changed, as the rows that users read.

Does: turns the engine's touched ids, the events and the plans of one record into ``Changes``. The
same code serves the running loop and the repair at start. Never: writes. State: none.
"""

from __future__ import annotations

from collections.abc import Iterable

from reshape_controller.core.engine import Engine
from reshape_controller.core.events import JobRejected
from reshape_controller.core.model import JobId, JobState
from reshape_controller.core.record import HistoryEntry, LogRecord
from reshape_controller.store.protocol import Changes, Decision, JobRow, ProfileRow


def changes_of(engine: Engine, record: LogRecord, history: Iterable[HistoryEntry]) -> Changes:
    """The rows that ``record`` changed; forgets the ended jobs that it takes along."""
    state, touched = engine.state, engine.drain_changes()
    rows = []
    for job_id in touched.jobs:
        job = state.jobs.get(job_id) or state.ended.pop(job_id, None)
        if job is not None:
            spec = job.spec
            rows.append(
                JobRow(job.id, spec.name, spec.user, job.state, record.seq, job.submitted_at_s, job)
            )
    rows += [_rejected(event, record) for event in record.events if isinstance(event, JobRejected)]
    return Changes(
        seq=record.seq,
        at_s=record.at_s,
        jobs=tuple(rows),
        gpus=tuple(state.gpus[gpu] for gpu in touched.gpus),
        hosts=tuple(state.hosts[host] for host in touched.hosts),
        history=tuple(history),
        decisions=tuple(
            Decision(record.seq, number, record.at_s, record.policy, plan)
            for number, plan in enumerate(record.plans)
            if plan.targets or plan.options
        ),
        profiles=tuple(profile_row(engine, kind, record.seq) for kind in touched.job_types),
    )


def profile_row(engine: Engine, job_type: str, seq: int) -> ProfileRow:
    """What the engine knows of a job type."""
    book = engine.state.profiles
    return ProfileRow(job_type, seq, book.profiles.get(job_type), book.learned.get(job_type))


def _rejected(event: JobRejected, record: LogRecord) -> JobRow:
    return JobRow(
        JobId(event.job),
        event.name,
        event.user,
        JobState.REJECTED,
        record.seq,
        record.at_s,
        None,
        tuple((error.path, error.message, error.hint) for error in event.errors),
    )
