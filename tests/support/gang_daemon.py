"""A daemon's live loop in this process on two hosts of four GPUs, and a policy that moves gangs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reshape_controller.core import events as ev
from reshape_controller.core.engine import Engine
from reshape_controller.core.model import GpuId, GpuState, HostId, Job, JobId, JobSpec, Share, Spans
from reshape_controller.core.plan import JobView, Plan, Snapshot, Target
from reshape_controller.core.record import LogRecord
from reshape_controller.live.admission import Admission
from reshape_controller.live.clock import WallClock
from reshape_controller.live.control import Control
from reshape_controller.live.effects import Effects
from reshape_controller.live.launching import LaunchSettings
from reshape_controller.live.loop import Loop, Settings
from reshape_controller.live.sidecar_hub import SidecarHub
from reshape_controller.live.tokens import Tokens
from reshape_controller.store.sqlite.store import SqliteStore
from reshape_sidecar import codec
from tests.support.gang_fakes import GangLauncher

HOSTS = (HostId("host-0"), HostId("host-1"))
GPUS = {host: tuple(GpuId(f"{host}-gpu-{number}") for number in range(4)) for host in HOSTS}
BOTH = (Share(HOSTS[0], 1), Share(HOSTS[1], 1))
WAIT_S = 10.0


class HalveGangs:
    """A newcomer of two workers gets its largest size on both hosts, else half of a gang's GPUs;
    with one host usable it gets that. A gang grows as soon as nothing is queued."""

    name = "halve-gangs"

    def decide(self, snapshot: Snapshot) -> Plan:
        idle = {host.id: host.idle for host in snapshot.hosts}
        if not idle:
            return Plan()
        for job in snapshot.queued:
            plan = self._start(snapshot, job, idle)
            if plan is not None:
                return plan
        for job in snapshot.running:
            sizes = [size for size in job.sizes if size > job.size]
            fits = [s for s in sizes if all(s - job.size <= 2 * room for room in idle.values())]
            if fits and job.shares and not job.frozen and not snapshot.queued:
                return Plan((Target(job.id, fits[-1], HOSTS[0], BOTH),), "grow", about=job.id)
        return Plan()

    def _start(self, snapshot: Snapshot, job: JobView, idle: dict[HostId, int]) -> Plan | None:
        if len(idle) == 1 or job.spec.span is Spans.NEVER:
            host, room = max(idle.items(), key=lambda item: item[1])
            on_one = [size for size in job.sizes if size <= room]
            return (
                Plan((Target(job.id, on_one[-1], host),), "one", about=job.id) if on_one else None
            )
        least = min(idle.values())
        fits = [size for size in job.sizes if size <= 2 * least]
        if fits:
            return Plan((Target(job.id, fits[-1], HOSTS[0], BOTH),), "idle", about=job.id)
        for other in snapshot.running:
            half = other.size // 2
            if other.shares and not other.frozen and half in other.sizes and half in job.sizes:
                gives = Target(other.id, half, HOSTS[0], BOTH)
                return Plan((Target(job.id, half, HOSTS[0], BOTH), gives), "half", about=job.id)
        return None


@dataclass
class GangDaemon:
    loop: Loop
    effects: Effects
    control: Control
    launcher: GangLauncher
    tasks: list[asyncio.Task[None]]

    async def until(self, holds: Callable[[], bool]) -> None:
        end_s = time.monotonic() + WAIT_S
        while not holds():
            assert time.monotonic() < end_s, codec.dumps(
                tuple(self.loop.engine.state.jobs.values())
            )
            await asyncio.sleep(0.01)

    def job(self, job: JobId) -> Job:
        state = self.loop.engine.state
        return state.jobs.get(job) or state.ended[job]

    def state_of(self, job: JobId) -> tuple[str, int]:
        found = self.loop.engine.state.jobs.get(job)
        return (found.state.value, len(found.gpus)) if found is not None else ("over", 0)

    async def trains(self, job: JobId, size: int) -> None:
        """Wait until the job runs on so many GPUs."""
        await self.until(lambda: self.state_of(job) == ("running", size))

    def held(self, host: HostId) -> set[GpuState]:
        """The states of a host's GPUs."""
        return {self.loop.engine.state.gpus[gpu].state for gpu in GPUS[host]}

    async def die(self) -> None:
        """As kill -9: nothing is finished, nothing is said."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.effects.stop()
        await self.loop.store.close()


async def start(path: Path, launcher: GangLauncher) -> GangDaemon:
    """Start a daemon on the store below ``path``, which may be one that was killed."""
    store = SqliteStore(path / "store.db")
    await store.open()
    clock = WallClock()
    loop = Loop(store, Settings(HalveGangs()), clock)
    launcher.hub = hub = SidecarHub(loop.post, time.monotonic, clock.now_s)
    settings = LaunchSettings("http://127.0.0.1:1", path / "work")
    effects = Effects(launcher, hub, Tokens(b"secret"), settings, loop.post)
    admission = Admission(lambda: loop.engine.state, effects.refusals)
    control = Control(loop, admission, effects.log_folder, hub.observed, effects.trouble)
    await loop.start(effects)

    def engine() -> Engine:
        return loop.engine

    tasks = [asyncio.create_task(loop.run()), asyncio.create_task(effects.watch(engine))]
    for host in HOSTS:
        await loop.commit(ev.HostAdded(host, "V100", GPUS[host]))
    return GangDaemon(loop, effects, control, launcher, tasks)


def gang(name: str, *sizes: int) -> JobSpec:
    """The record of a job of two workers that may be on several hosts."""
    command = ("python", "train.py")
    return JobSpec(name, command, sizes, workers=2, span=Spans.ANY, min_runtime_s=0.0)


async def records(path: Path) -> list[LogRecord]:
    """Return the log below ``path``."""
    store = SqliteStore(path / "store.db")
    await store.open()
    found = [record async for record in store.read(0)]
    await store.close()
    return found
