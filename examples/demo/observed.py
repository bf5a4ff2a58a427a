"""The traces of one run as values: its records, and facts that only its log has.

Does: reads the log of a run whose daemon has stopped. Never: writes, or asks anybody. State: none.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from reshape_controller.core.events import SideCarReported
from reshape_controller.http.timeline import Timeline
from reshape_controller.store.protocol import Store
from reshape_gpu.values import EventView, JobView
from reshape_sidecar.wire import PhaseTimes


@dataclass(frozen=True, slots=True)
class Sample:
    """Where a job was at a moment: Unix seconds, and the generation that its steps belong to."""

    job: str
    at_s: float
    attempt: int
    generation: int
    step: int


@dataclass(frozen=True, slots=True)
class Process:
    """One training process of a job, as its SideCar reported it. ``number`` counts from 1."""

    job: str
    number: int
    attempt: int
    late_steps: int


@dataclass(frozen=True, slots=True)
class Run:
    """One run of both jobs under one preset."""

    preset: str
    jobs: tuple[JobView, ...]
    """In order of submission, as they ended."""
    history: tuple[EventView, ...]
    timeline: Timeline
    samples: tuple[Sample, ...]
    phases: dict[tuple[str, int, int], PhaseTimes]
    """By job, attempt and generation: seconds of that start or stop, as the SideCar measured."""
    processes: tuple[Process, ...]
    containers: dict[str, int]
    """By job: different inits that its attempts had, counted in its folders."""

    def of(self, job: JobView) -> tuple[EventView, ...]:
        """The history of one job, oldest first."""
        return tuple(event for event in self.history if event.job == job.id)


@dataclass(frozen=True, slots=True)
class LogFacts:
    phases: dict[tuple[str, int, int], PhaseTimes]
    processes: tuple[Process, ...]


def read_log(store: Store) -> LogFacts:
    """Every report of every SideCar in the log of a stopped daemon. Opens and closes the store."""
    return asyncio.run(_read(store))


async def _read(store: Store) -> LogFacts:
    phases: dict[tuple[str, int, int], PhaseTimes] = {}
    late: dict[tuple[str, int, int, int], int] = {}
    await store.open()
    try:
        async for record in store.read(0):
            for event in record.events:
                if isinstance(event, SideCarReported):
                    seen = event.observed
                    phases[seen.job, seen.attempt, seen.generation] = seen.times
                    if seen.pid is not None and seen.start_time is not None:
                        key = (seen.job, seen.attempt, seen.pid, seen.start_time)
                        late[key] = max(late.get(key, 0), seen.progress.late_steps)
    finally:
        await store.close()
    numbers: dict[str, int] = {}
    processes = []
    for (job, attempt, _, _), late_steps in late.items():
        numbers[job] = numbers.get(job, 0) + 1
        processes.append(Process(job, numbers[job], attempt, late_steps))
    return LogFacts(phases, tuple(processes))
