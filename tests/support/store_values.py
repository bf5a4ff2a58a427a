"""Small log records, rows and changes for the tests of stores."""

from __future__ import annotations

from dataclasses import replace

from reshape_controller.core.events import DeadlinesDue, JobSubmitted
from reshape_controller.core.knowledge import Curve, Learned, Measured
from reshape_controller.core.model import (
    Gpu,
    GpuId,
    GpuState,
    Host,
    HostId,
    Job,
    JobId,
    JobSpec,
    JobState,
)
from reshape_controller.core.plan import Option, Plan, Target
from reshape_controller.core.record import HistoryEntry, LogRecord
from reshape_controller.store.digest import GENESIS, seal
from reshape_controller.store.protocol import Changes, Decision, JobRow, ProfileRow
from reshape_profiles.schema import AccuracyPoint, Overhead, Profile, SpeedPoint

SPEC = JobSpec("mnist", ("python", "train.py", "--ä"), (1, 2))


def record(seq: int, previous: str = GENESIS, *, writer: str = "w", size: int = 0) -> LogRecord:
    """A sealed record that is about ``size`` bytes long."""
    spec = replace(SPEC, user="u" * size)
    event = JobSubmitted(JobId(f"job-{seq}"), spec) if size or seq % 2 else DeadlinesDue()
    return seal(previous, LogRecord(seq, 1, writer, "paper", float(seq), (event,), (), (), ""))


def records(count: int, *, first: int = 1, previous: str = GENESIS) -> tuple[LogRecord, ...]:
    """``count`` records, each chained to the one before."""
    made: list[LogRecord] = []
    for seq in range(first, first + count):
        made.append(record(seq, made[-1].digest if made else previous))
    return tuple(made)


def job_row(
    number: int,
    seq: int,
    *,
    state: JobState = JobState.SUBMITTED,
    name: str | None = None,
    user: str = "ada",
    at_s: float = 0.0,
) -> JobRow:
    """Row of job ``job-<number>`` as it is at ``seq``."""
    identity, name = JobId(f"job-{number:03}"), name or f"name-{number}"
    job = None
    if state is not JobState.REJECTED:
        job = Job(identity, replace(SPEC, name=name), number, at_s, state, reason=f"seq {seq}")
    errors = () if job is not None else (("sizes", "none given", "give one"),)
    return JobRow(identity, name, user, state, seq, at_s, job, errors)


def changes(seq: int, *rows: JobRow) -> Changes:
    """One append's changes with one of everything beside the rows."""
    job = rows[0].id if rows else None
    host = HostId("host")
    plan = Plan((Target(JobId("job-900"), seq, host),), "why", f"seq {seq}", job, (Option(()),), 0)
    return Changes(
        seq,
        float(seq),
        rows,
        (Gpu(GpuId("gpu-0"), host, 0, GpuState.IN_USE, job, generation=seq),),
        (Host(host, f"type-{seq}", (GpuId("gpu-0"),)),),
        (
            HistoryEntry(job, float(seq), "first", f"a {seq}"),
            HistoryEntry(None, float(seq), "second", f"b {seq}"),
        ),
        (Decision(seq, 0, float(seq), "paper", plan),),
        (profile_row("resnet", seq),),
        ((GpuId("gpu-0"), 0),) if job is not None else (),
    )


def profile_row(job_type: str, seq: int) -> ProfileRow:
    """One of everything that is known of a job type."""
    cost = Overhead(1.0, 2.0, 3.0, 4.0, float(seq), "measured")
    profile = Profile(
        job_type,
        "a test",
        64,
        100,
        (SpeedPoint("V100", 1, 0.5, "paper, Table IV"), SpeedPoint("V100", 2, 0.3)),
        (AccuracyPoint(10, 0.5, "paper, Table V"),),
        cost,
    )
    learned = Learned(job_type, (Measured("V100", 1, 0.4, seq),), 1.5, curve=Curve(0.1, 1.0, 0.0))
    return ProfileRow(job_type, seq, profile, learned)
