"""A launcher whose containers take a declared time longer to start and stop than on this machine.

Does: wrap another launcher and delay the start and the visible end of its containers. It belongs to
a simulated world, like the speed of simulated GPUs: policies see only that containers take this
long. Never: delay a training process, a save or a release. State: the launches and stops under way;
a new controller forgets the rest of their delays.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from reshape_launcher.spec import (
    ContainerStatus,
    Launcher,
    LaunchError,
    LaunchSpec,
    OneHost,
    RecordRefused,
    ReleaseCheck,
)


@dataclass(frozen=True, slots=True)
class ContainerCosts:
    """Seconds to add to what this machine takes; ``label`` names their source."""

    label: str
    start_s: float
    stop_s: float

    def __post_init__(self) -> None:
        for name in ("start_s", "stop_s"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0:
                raise ValueError(f"{name} is {value}, and must be a number of seconds")


class DeclaredLauncher:
    """``Launcher`` around ``inner``. ``monotonic_s`` is any steady clock."""

    def __init__(
        self,
        inner: Launcher,
        costs: ContainerCosts,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner = inner
        self._costs = costs
        self._monotonic_s = monotonic_s
        self._waiting: dict[tuple[str, int], asyncio.Event] = {}
        """Launches whose declared start is not over; the event cancels the launch."""
        self._ran: dict[tuple[str, int], float | None] = {}
        """Containers that have run, and the time at which their end was first seen (or None)."""

    def refusals(self, spec: LaunchSpec) -> tuple[RecordRefused, ...]:
        return self._inner.refusals(spec)

    def no_gang(self) -> RecordRefused | None:
        return self._inner.no_gang()

    async def launch(self, spec: LaunchSpec, token: str) -> None:
        """Wait the declared time, then launch. Raises LaunchError, also if it is cancelled."""
        key = (spec.job, spec.attempt)
        known = await self._inner.containers()
        if key not in {(status.job, status.attempt) for status in known}:
            await self._wait_for_start(key)
        await self._inner.launch(spec, token)
        self._ran.setdefault(key, None)

    async def one_host(self, spec: LaunchSpec) -> OneHost | None:
        return await self._inner.one_host(spec)

    async def remove(
        self, job: str, attempt: int, grace_s: float, hosts: tuple[str, ...] = ()
    ) -> None:
        """Remove, then wait until the declared stop is over. Cancels a launch that waits."""
        key = (job, attempt)
        called_off = self._waiting.get(key)
        if called_off is not None:
            called_off.set()
        await self._inner.remove(job, attempt, grace_s, hosts)
        await asyncio.sleep(self._left_s(key))

    async def containers(self) -> tuple[ContainerStatus, ...]:
        """Return ``inner``'s containers; each counts as running until its declared stop is over."""
        found = []
        for status in await self._inner.containers():
            key = (status.job, status.attempt)
            if status.running:
                self._ran.setdefault(key, None)
            elif self._left_s(key) > 0:
                reason = f"its container stops ({self._costs.label})"
                status = replace(status, running=True, exit_code=None, reason=reason)
            found.append(status)
        return tuple(found)

    async def check_release(
        self, job: str, attempt: int, generation: int, devices: tuple[str, ...], host: str = ""
    ) -> ReleaseCheck:
        """Return ``inner``'s answer: GPUs are free when no process uses them."""
        return await self._inner.check_release(job, attempt, generation, devices, host)

    def log_path(self, job: str, attempt: int) -> str | None:
        return self._inner.log_path(job, attempt)

    async def _wait_for_start(self, key: tuple[str, int]) -> None:
        called_off = self._waiting.setdefault(key, asyncio.Event())
        try:
            async with asyncio.timeout(self._costs.start_s):
                await called_off.wait()
        except TimeoutError:
            return
        finally:
            self._waiting.pop(key, None)
        raise LaunchError(f"the launch of attempt {key[1]} of {key[0]} was cancelled")

    def _left_s(self, key: tuple[str, int]) -> float:
        """Return the rest of the declared stop, which begins when the end is first seen."""
        if key not in self._ran:
            return 0.0
        now_s = self._monotonic_s()
        ended_s = self._ran[key]
        if ended_s is None:
            self._ran[key] = ended_s = now_s
        return max(0.0, ended_s + self._costs.stop_s - now_s)
