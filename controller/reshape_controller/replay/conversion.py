"""Values of a conversion: the columns and choices that it is given, its jobs, and rows left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from typing import NamedTuple

from reshape_controller.core.model import Spans
from reshape_controller.replay.elastic import Elastic
from reshape_controller.replay.trace_gpus import Parts
from reshape_controller.replay.trace_rows import BadRows, Layout

DURATION = "duration"
"""The column of durations, if no column of lengths is named."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Names of a trace's columns; None: the trace does not have it."""

    submit: str = "submit_time"
    gpus: str = "gpu_num"
    milli: str | None = None
    """Thousandths of each GPU."""
    percent: str | None = None
    """Hundredths of a GPU for each of ``gpus``; 200 are two GPUs."""
    hosts: str | None = None
    """Number of hosts of the job."""
    duration: str | None = None
    start: str | None = None
    end: str | None = None
    iterations: str | None = None
    batch: str | None = None
    """Samples of an iteration, of all GPUs together."""
    model: str | None = None
    gpu_type: str | None = None
    sizes: str | None = None
    user: str | None = None
    priority: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Choices:
    """Choices for what the trace does not say, or says in a way that a job cannot."""

    job_set: str = "one"
    gpu_type: str = "V100"
    largest: int = 8
    sizes: tuple[int, ...] | None = None
    """Numbers of GPUs that each job may use beside its own; None: those of ``elastic``."""
    parts: Parts = Parts.LEAVE_OUT
    cap: bool = False
    """True: a job with more GPUs than ``largest`` gets that number for the same GPU time."""
    span: Spans = Spans.NEVER
    """Whether jobs may be on several hosts with ``largest`` GPUs each."""
    skip_bad: bool = False
    """True: rows that cannot be read are left out."""
    default_unknown: bool = False
    """True: unknown models get a type of the job set, unknown GPU types ``gpu_type``."""
    default_duration_s: float | None = None
    unit_s: float = 1.0
    """Seconds of the unit of times and durations that are numbers."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Job types by the trace's names of models, and GPU types by its names of GPUs."""
    layout: Layout = Layout()
    elastic: Elastic = Elastic.FREE
    zone: tzinfo = UTC
    """Of dates that name no zone."""


class TraceJob(NamedTuple):
    """A converted job. ``gpu_s`` is its GPU time on the number of GPUs that it had."""

    name: str
    submit_s: float
    job_type: str
    optional_gpus: tuple[int, ...]
    steps: int
    priority: int
    user: str
    workers: int
    span: Spans
    gpu_s: float
    rows: int = 1
    """Rows of the trace that it is made of."""
    known_gpus: tuple[int, ...] = ()
    """Those of ``optional_gpus`` that the trace says, if it does not say all of them."""


class LeftOut(NamedTuple):
    """Rows that become no job. ``submit_s`` is None without a submission."""

    submit_s: float | None
    reason: str
    gpu_s: float
    rows: int = 1


@dataclass(frozen=True, slots=True)
class Conversion:
    """The jobs by submission, the assumptions in words, the rows left out, and the bad rows."""

    jobs: tuple[TraceJob, ...]
    assumptions: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    bad: BadRows

    @property
    def used_rows(self) -> int:
        """Rows of the trace that the jobs are made of."""
        return sum(job.rows for job in self.jobs)


def by_reason(left_out: Sequence[LeftOut]) -> list[tuple[str, int, float]]:
    """Return the reasons for which rows are left out, with their rows and their GPU-seconds."""
    counts: dict[str, tuple[int, float]] = {}
    for row in left_out:
        count, gpu_s = counts.get(row.reason, (0, 0.0))
        counts[row.reason] = (count + row.rows, gpu_s + row.gpu_s)
    return sorted((reason, count, gpu_s) for reason, (count, gpu_s) in counts.items())
