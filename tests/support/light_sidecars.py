"""SideCars without containers: many attempts in one process, each on the agent's own link.

Does: for each container of ``light_daemon`` takes its desired state and reports at once what a
SideCar reports that has done it; a training of a step each 0.1 s. The link is the agent's
``CoordinatorLink``: a held poll, a report at each change, and a heartbeat. Counts every exchange.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from reshape_sidecar import limits
from reshape_sidecar.agent.coordinator_link import CoordinatorLink
from reshape_sidecar.agent.spec import AttemptSpec, DeviceMode
from reshape_sidecar.wire import (
    Desired,
    Mode,
    Observed,
    Outcome,
    OutcomeKind,
    Phase,
    Progress,
    Saves,
)
from tests.support.light_daemon import Line, lines

STEP_S = 0.1
TOTAL_STEPS = 10**9
LOOK_S = 0.2
"""Pause between two looks for containers that were started."""


@dataclass
class Counts:
    """What the exchanges of all SideCars came to."""

    reports: int = 0
    """Reports without a wait that were answered."""
    polls: int = 0
    dropped: list[str] = field(default_factory=list)
    """Exchanges without an answer of use, each with its reason."""
    answers_s: list[float] = field(default_factory=list)
    """Time from a report without a wait to its answer."""


class _Link(CoordinatorLink):
    """The agent's link, with counts."""

    counts: Counts

    async def _exchange(self, wait_s: float) -> bool:
        begin_s = time.monotonic()
        useful = await super()._exchange(wait_s)
        if self._trouble is not None or not useful:
            self.counts.dropped.append(self._trouble or "an answer of no use")
        elif wait_s:
            self.counts.polls += 1
        else:
            self.counts.reports += 1
            self.counts.answers_s.append(time.monotonic() - begin_s)
        return useful


class LightSidecar:
    """The SideCar of one attempt."""

    def __init__(self, line: Line, counts: Counts) -> None:
        self.job, self._attempt = line.job, line.attempt
        self.desired: Desired | None = None
        self.starts = 0
        """How often training began."""
        self.step = 0
        self._sequence = 0
        self._began_s: float | None = None
        spec = AttemptSpec(
            line.job, line.attempt, line.job, (), "/", "/", line.url, line.epoch,
            DeviceMode.SIMULATED,
        )  # fmt: skip
        self._link = _Link(
            spec,
            token=lambda: line.token,
            observe=self._observe,
            learn=self._learn,
            on_acknowledged=lambda: None,
        )
        self._link.counts = counts

    async def run(self) -> None:
        """Poll and report until cancelled."""
        await asyncio.gather(self._link.poll_forever(), self._link.push_forever())

    def _learn(self, desired: Desired) -> bool:
        old = self.desired
        if old is not None and (desired.epoch, desired.generation) <= (old.epoch, old.generation):
            return False
        self.desired = desired
        if desired.mode is not Mode.RUN:
            self._began_s = None
        elif old is None or old.devices != desired.devices:
            self.starts += 1
            self._began_s = time.monotonic() - self.step * STEP_S
        self._link.push()
        return True

    def _observe(self) -> Observed:
        self._sequence += 1
        desired = self.desired
        if self._began_s is not None:
            self.step = int((time.monotonic() - self._began_s) / STEP_S) + 1
        generation = desired.generation if desired is not None else 0
        trains = self._began_s is not None
        return Observed(
            self.job,
            self._attempt,
            generation,
            self._sequence,
            Phase.RUNNING if trains else Phase.INITIALIZED,
            epoch=desired.epoch if desired is not None else 0,
            devices=desired.devices if desired is not None and trains else (),
            pid=1 if trains else None,
            progress=Progress(self.step, total_steps=TOTAL_STEPS, seconds_per_step=STEP_S),
            outcome=None if trains else Outcome(generation, OutcomeKind.STOPPING),
            stopped_generation=generation,
            saves=Saves.BOUNDARY if trains else None,
        )


class LightSidecars:
    """The SideCars of every container that a light daemon has started below ``root``."""

    def __init__(self, root: Path, heartbeat_s: float) -> None:
        limits.HEARTBEAT_S = heartbeat_s  # in this process, which is no agent
        logging.getLogger("agent").setLevel(logging.CRITICAL)  # failures are counted
        self._root = root
        self.counts = Counts()
        self.of: dict[str, LightSidecar] = {}
        """By job: the SideCar of its newest attempt."""
        self._tasks: dict[tuple[str, int], asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Play the SideCar of each container from its start to its removal, until cancelled."""
        position = 0
        try:
            while True:
                found = lines(self._root)
                for line in found[position:]:
                    self._apply(line)
                position = len(found)
                await asyncio.sleep(LOOK_S)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def clear(self) -> None:
        """Begin to count again."""
        self.counts = Counts()
        for sidecar in self.of.values():
            sidecar._link.counts = self.counts

    def reasons(self) -> Counter[str]:
        """Return why exchanges were dropped, with their numbers."""
        return Counter(self.counts.dropped)

    def _apply(self, line: Line) -> None:
        key = (line.job, line.attempt)
        if not line.runs:
            self._tasks.pop(key).cancel()
            return
        self.of[line.job] = sidecar = LightSidecar(line, self.counts)
        self._tasks[key] = asyncio.create_task(sidecar.run())
