"""One append of the log, and one line of a job's history: the values that stores keep."""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.core.commands import Command
from reshape_controller.core.events import Event
from reshape_controller.core.model import JobId
from reshape_controller.core.plan import Plan
from reshape_sidecar.wire import StartKind

LOG_VERSION = 1


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One append of the log, which is the commit of its events, plans and commands."""

    seq: int
    """Number of the record: unique, and without a gap from 1."""
    epoch: int
    writer: str
    policy: str
    at_s: float
    events: tuple[Event, ...]
    plans: tuple[Plan, ...]
    commands: tuple[Command, ...]
    digest: str
    """Hash over this record and the digest of the record before it."""
    version: int = LOG_VERSION


@dataclass(frozen=True, slots=True)
class PhaseCost:
    """Predicted and measured seconds of one phase of a start or reshape."""

    phase: str
    predicted_s: float | None
    """None if nothing was known of it."""
    measured_s: float
    how: StartKind | None = None
    """How the process was started, of its start alone; None from a SideCar that does not say."""
    fallback: str | None = None
    """Why the start was slower than the settings allow; None if it was not."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One line of the history of a job or host, for people and for timelines.

    ``kind`` is stable (docs/history.md), ``text`` is for reading, ``value`` is the figure of it.
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
    """Phases of the start or reshape that ends with this entry; of a job start, the first part."""
