"""The rows that users read, as one append changed them.

Does: turns the engine's change set, the events and the plans of one record into ``Changes``, for
the running loop and for the repair at a start.
"""

from __future__ import annotations

from collections.abc import Iterable

from reshape_controller.core.engine import Engine
from reshape_controller.core.events import JobRejected
from reshape_controller.core.model import GpuId, JobId, JobState
from reshape_controller.core.record import HistoryEntry, LogRecord
from reshape_controller.core.state import State
from reshape_controller.store.protocol import Changes, Decision, JobRow, ProfileRow


def changes_of(engine: Engine, record: LogRecord, history: Iterable[HistoryEntry]) -> Changes:
    """Collect the rows that ``record`` changed; drops the ended jobs among them from the state."""
    state, changes = engine.state, engine.drain_changes()
    rows = []
    gpus = dict.fromkeys(changes.gpus)
    for job_id in changes.jobs:
        job = state.jobs.get(job_id) or state.ended.pop(job_id, None)
        if job is not None:
            spec = job.spec
            rows.append(
                JobRow(job.id, spec.name, spec.user, job.state, record.seq, job.submitted_at_s, job)
            )
    for job_id in changes.regrouped:
        if (job := state.jobs.get(job_id)) is not None:
            gpus.update(dict.fromkeys(job.gpus))
    rows += [_rejected(event, record) for event in record.events if isinstance(event, JobRejected)]
    return Changes(
        seq=record.seq,
        at_s=record.at_s,
        jobs=tuple(rows),
        gpus=tuple(state.gpus[gpu] for gpu in gpus),
        workers=_workers(state, gpus),
        hosts=tuple(state.hosts[host] for host in changes.hosts),
        history=tuple(history),
        decisions=tuple(
            Decision(record.seq, number, record.at_s, record.policy, plan)
            for number, plan in enumerate(record.plans)
            if plan.targets or plan.options or plan.notes
        ),
        profiles=tuple(profile_row(engine, kind, record.seq) for kind in changes.job_types),
    )


def profile_row(engine: Engine, job_type: str, seq: int) -> ProfileRow:
    """The row of a job type: its recorded profile and its learned speeds and costs."""
    book = engine.state.profiles
    return ProfileRow(job_type, seq, book.profiles.get(job_type), book.learned.get(job_type))


def _workers(state: State, gpus: Iterable[GpuId]) -> tuple[tuple[GpuId, int], ...]:
    """The worker of each GPU on which a job trains: workers have equal shares of ``Job.gpus``."""
    found = []
    for gpu in gpus:
        owner = state.gpus[gpu].owner
        job = state.jobs.get(owner) if owner is not None else None
        if job is not None and gpu in job.gpus:
            found.append((gpu, job.gpus.index(gpu) * job.spec.workers // len(job.gpus)))
    return tuple(found)


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
