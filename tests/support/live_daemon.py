"""A daemon's live loop in this process, and what tests wait for and cut off in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from reshape_controller.core.commands import Command
from reshape_controller.core.engine import Engine
from reshape_controller.core.model import JobId
from reshape_controller.live.control import Control
from reshape_controller.live.effects import Effects
from reshape_controller.live.loop import Loop
from reshape_sidecar import codec

APPENDS_S = 0.7
"""Within this time a hand-over makes the appends that a test counts."""


@dataclass
class LiveDaemon:
    wait_s: ClassVar[float] = 10.0
    """How long ``until`` waits."""
    loop: Loop
    effects: Effects
    control: Control
    tasks: list[asyncio.Task[None]]

    async def until(self, holds: Callable[[], bool]) -> None:
        end_s = time.monotonic() + self.wait_s
        while not holds():
            assert time.monotonic() < end_s, codec.dumps(
                tuple(self.loop.engine.state.jobs.values())
            )
            await asyncio.sleep(0.01)

    def state_of(self, job: str) -> tuple[str, int]:
        found = self.loop.engine.state.jobs.get(JobId(job))
        return (found.state.value, len(found.gpus)) if found is not None else ("over", 0)

    def without_effects_after(self, records: int) -> Callable[[], bool]:
        """Have no effects from the append of so many further records on; return whether they are
        appended."""
        last_seq, carry_out = self.loop.journal.seq + records, self.effects.carry_out

        def only_until(engine: Engine, commands: tuple[Command, ...]) -> None:
            if self.loop.journal.seq < last_seq:
                carry_out(engine, commands)

        self.effects.carry_out = only_until  # type: ignore[method-assign]
        return lambda: self.loop.journal.seq >= last_seq

    async def die_after(self, are_appended: Callable[[], bool]) -> None:
        """Die once the records are appended, or if they do not come."""
        end_s = time.monotonic() + APPENDS_S
        while not are_appended() and time.monotonic() < end_s:
            await asyncio.sleep(0.005)
        await self.die()

    async def die(self) -> None:
        """As kill -9: nothing is finished, nothing is said."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.effects.stop()
        await self.loop.store.close()
