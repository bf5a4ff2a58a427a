"""The overview of all that goes on, as the page shows it first.

Does: values alone, as in ``values``. State: none.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuCounts:
    """Numbers of GPUs. ``preparing``: reserved for a job, or not verified empty yet."""

    in_use: int = 0
    idle: int = 0
    preparing: int = 0
    quarantined: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Overtaking:
    """A job that was submitted later than a queued one and has started before it, at ``at_s``.
    ``reason``: why, in the words of its decision; empty if the reader may not see it."""

    job: str
    name: str
    at_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job that has not ended, in short. ``reason`` is empty for a job of another user."""

    id: str
    name: str
    user: str
    state: str
    stage: str
    reason: str
    size: int
    optional_gpus: tuple[int, ...]
    pinned: int | None
    host: str | None
    submitted_at_s: float
    position: int | None
    progress_ratio: float | None
    predicted_start_at_s: float | None
    predicted_end_at_s: float | None
    reported_at_s: float | None = None
    """When its SideCar first reported this progress; null before the first step."""
    overtaken_by: Overtaking | None = None
    """The newest start of a later job while it waits; null without one."""
    hosts: tuple[str, ...] = ()
    """All its hosts, if its workers are on several; ``host`` is that of the first."""


@dataclass(frozen=True, slots=True)
class FailureLine:
    """A job that has failed or completed, in short."""

    id: str
    name: str
    user: str
    at_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Overview:
    """What goes on, in one answer. ``runs`` and ``queue`` have the first jobs of each."""

    seq: int
    role: str
    ready: bool
    reason: str
    gpus: GpuCounts
    running: int
    queued: int
    paused: int
    failed: int
    """Jobs that failed in the last 24 hours."""
    runs: tuple[JobLine, ...]
    """Jobs that hold GPUs, by submission."""
    queue: tuple[JobLine, ...]
    """Jobs that wait, by position."""
    failures: tuple[FailureLine, ...]
    """The newest failures of these 24 hours, newest first."""
    completions: tuple[FailureLine, ...] = ()
    """The newest jobs that completed in these 24 hours, newest first."""
