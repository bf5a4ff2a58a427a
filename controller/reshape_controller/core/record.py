"""One append of the log, and one line of a job's history: the values that stores keep."""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.core.commands import Command
from reshape_controller.core.events import Event
from reshape_controller.core.model import JobId
from reshape_controller.core.plan import Plan

LOG_VERSION = 1


@dataclass(frozen=True, slots=True)
class LogRecord:
    """The commit. ``seq`` is unique and gap-free from 1; ``digest`` chains to the one before."""

    seq: int
    epoch: int
    writer: str
    policy: str
    at_s: float
    events: tuple[Event, ...]
    plans: tuple[Plan, ...]
    commands: tuple[Command, ...]
    digest: str
    version: int = LOG_VERSION


@dataclass(frozen=True, slots=True)
class PhaseCost:
    """What one phase of a start or reshape took, beside what had been predicted, in seconds."""

    phase: str
    predicted_s: float
    measured_s: float


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """Something that happened to a job or host, for people and for timelines.

    ``kind`` is stable (docs/history.md); ``text`` is for reading; figures are in ``value``.
    """

    job: JobId | None
    at_s: float
    kind: str
    text: str
    attempt: int = 0
    generation: int = 0
    size: int = 0
    value: float | None = None
    costs: tuple[PhaseCost, ...] = ()
    """Of a start or reshape that has come to its end (or, the job start, to a part of it)."""
