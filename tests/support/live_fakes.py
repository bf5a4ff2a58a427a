"""A launcher whose SideCars are coroutines that talk to the real ``SidecarHub``, and a controller
that does nothing of its own; for fast tests of live.

Never used where a test is about processes: those start real ones.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from reshape_controller.access.identities import Identities
from reshape_controller.core.commands import Command
from reshape_controller.core.engine import Engine
from reshape_controller.core.plan import Plan, Snapshot
from reshape_controller.live.sidecar_hub import SidecarHub, UnknownAttempt
from reshape_launcher.spec import (
    ContainerStatus,
    LaunchError,
    LaunchSpec,
    OneHost,
    RecordRefused,
    ReleaseCheck,
)
from reshape_sidecar.wire import (
    Desired,
    Mode,
    Observed,
    Outcome,
    OutcomeKind,
    Phase,
    PhaseTimes,
    Prepared,
    PrepareStage,
    StartKind,
)

ONE_PERSON = Identities(lambda: "operators-token")
"""The identities of a daemon without named tokens."""


class Nothing:
    """A policy that decides nothing, and effects without effect."""

    name = "nothing"

    def decide(self, snapshot: Snapshot) -> Plan:
        return Plan()

    def carry_out(self, engine: Engine, commands: tuple[Command, ...]) -> None:
        return None


@dataclass
class FakeSideCar:
    """Takes up each desired state at once; ``finish`` ends training with success."""

    spec: LaunchSpec
    hub: SidecarHub
    observed: Observed
    task: asyncio.Task[None] | None = None
    over: bool = False
    asked: list[tuple[str, ...]] = field(default_factory=list)
    """Devices for which it has prepared a successor."""

    async def run(self) -> None:
        seen = self.observed
        seen = replace(seen, phase=Phase.INITIALIZED)
        while not self.over:
            self.observed = seen = replace(seen, sequence=seen.sequence + 1)
            try:
                desired = await self.hub.exchange(seen.job, seen.attempt, seen, 0.2)
            except UnknownAttempt:
                await asyncio.sleep(0.02)
                continue
            assert desired is not None, "none of these jobs has several workers"
            if self.observed.phase in (Phase.FINISHED, Phase.CRASHED):
                seen = replace(self.observed, generation=desired.generation, devices=())
            else:
                seen = self._take_up(seen, desired)
            if desired.mode is Mode.EXIT and seen.generation == desired.generation:
                self.over = True

    def _take_up(self, seen: Observed, desired: Desired) -> Observed:
        prepared = None
        if desired.prepare is not None:
            prepared = Prepared(desired.prepare, PrepareStage.READY)
            self.asked.append(desired.prepare)
        seen = replace(seen, prepare=desired.prepare, prepared=prepared)
        if (desired.epoch, desired.generation) <= (seen.epoch, seen.generation):
            step = seen.progress.step + (1 if seen.phase is Phase.RUNNING else 0)
            return replace(seen, progress=replace(seen.progress, step=step))
        outcome = seen.outcome
        if desired.generation > seen.generation and seen.devices:
            step = seen.progress.step
            outcome = Outcome(desired.generation, OutcomeKind.STOPPING, step)
        runs = desired.mode is Mode.RUN
        return replace(
            seen,
            epoch=desired.epoch,
            generation=desired.generation,
            devices=desired.devices if runs else (),
            phase=Phase.RUNNING if runs else Phase.INITIALIZED,
            outcome=outcome,
            stopped_generation=desired.generation,
            times=PhaseTimes(save_s=0.01, first_step_s=0.01, how=StartKind.COLD),
        )

    def finish(self) -> None:
        self.observed = replace(self.observed, phase=Phase.FINISHED, exit_code=0)


class FakeLauncher:
    """Containers as coroutines."""

    def __init__(self) -> None:
        self.hub: SidecarHub | None = None
        self.running: dict[tuple[str, int], FakeSideCar] = {}
        self.launches: list[tuple[str, int, str]] = []
        self.fail_next: str | None = None
        self.occupied = False
        """What jobs released is not empty."""
        self.nowhere = False
        """What is launched never comes up, and never would."""
        self.prepares = False
        """SideCars that start from now on can prepare successors."""

    def no_gang(self) -> RecordRefused | None:
        return None

    async def launch(self, spec: LaunchSpec, token: str) -> None:
        self.launches.append((spec.job, spec.attempt, token))
        if self.fail_next is not None:
            message, self.fail_next = self.fail_next, None
            raise LaunchError(message, retryable=True)
        key = (spec.job, spec.attempt)
        if key in self.running or self.hub is None:
            return
        start = Observed(
            spec.job, spec.attempt, 0, 0, Phase.INITIALIZING, can_prepare=self.prepares
        )
        sidecar = FakeSideCar(spec, self.hub, start)
        self.running[key] = sidecar
        if self.nowhere:
            sidecar.over = True
        else:
            sidecar.task = asyncio.create_task(sidecar.run())

    def refusals(self, spec: LaunchSpec) -> tuple[RecordRefused, ...]:
        if spec.image == "nowhere":
            return (RecordRefused("image", "'nowhere' is nowhere", "name another"),)
        return ()

    async def one_host(self, spec: LaunchSpec) -> OneHost | None:
        return None

    async def remove(
        self, job: str, attempt: int, grace_s: float, hosts: tuple[str, ...] = ()
    ) -> None:
        sidecar = self.running.get((job, attempt))
        if sidecar is not None:
            sidecar.over = True

    async def containers(self) -> tuple[ContainerStatus, ...]:
        lasting = self.nowhere
        return tuple(
            ContainerStatus(job, n, not car.over, 0 if car.over else None, lasting=lasting)
            for (job, n), car in self.running.items()
        )

    async def check_release(
        self, job: str, attempt: int, generation: int, devices: tuple[str, ...], host: str = ""
    ) -> ReleaseCheck:
        sidecar = self.running.get((job, attempt))
        if self.occupied:
            return ReleaseCheck(False, "1 GiB still used")
        if sidecar is None or sidecar.over or sidecar.observed.generation >= generation:
            return ReleaseCheck(True)
        return ReleaseCheck(False, "still running")

    def log_path(self, job: str, attempt: int) -> str | None:
        return None

    def job(self, job: str) -> FakeSideCar:
        """The newest attempt of a job."""
        return self.running[max(key for key in self.running if key[0] == job)]

    async def close(self) -> None:
        for sidecar in self.running.values():
            if sidecar.task is not None:
                sidecar.task.cancel()
        await asyncio.gather(
            *(s.task for s in self.running.values() if s.task is not None), return_exceptions=True
        )
