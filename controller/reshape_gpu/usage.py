"""The values of ``GET /v1/usage``: GPU-seconds by user, job, type or host."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class By(StrEnum):
    """What the rows of a report are for. ``type`` is the type of the GPUs."""

    USER = "user"
    JOB = "job"
    TYPE = "type"
    HOST = "host"
    JOB_TYPE = "job-type"


@dataclass(frozen=True, slots=True)
class UsageRow:
    """GPU-seconds of one user, job, type or host on GPUs of one type.

    ``name`` is empty for GPUs that no job holds.
    """

    name: str
    gpu_type: str
    trained_gpu_s: float = 0.0
    starting_gpu_s: float = 0.0
    saving_gpu_s: float = 0.0
    waiting_gpu_s: float = 0.0
    held_gpu_s: float = 0.0
    """The sum of the four above."""
    free_gpu_s: float = 0.0
    quarantined_gpu_s: float = 0.0
    silent_gpu_s: float = 0.0
    repeated_gpu_s: float = 0.0
    """The part of ``trained_gpu_s`` that was lost and trained again, as far as it can be known."""


@dataclass(frozen=True, slots=True)
class Usage:
    """GPU-seconds from ``from_s`` to ``to_s`` (Unix seconds); those of all rows are all there are:
    each GPU times the time for which it was in the inventory."""

    from_s: float
    to_s: float
    by: str
    rows: tuple[UsageRow, ...]
    all_gpu_s: float = 0.0
    steps_lost: int = 0
    """Steps that the jobs of these rows have lost since their submission, as far as is known."""
    steps_lost_known: bool = True
    """False if they have lost, or may have lost, more steps than these."""
