"""A daemon's live loop in this process, on two hosts of four GPUs."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from reshape_controller.core.limits import Limits
from reshape_controller.core.model import GpuId, GpuState, HostId, Job, JobId, JobSpec, Spans
from reshape_controller.core.record import LogRecord
from reshape_controller.live.admission import Admission
from reshape_controller.live.clock import WallClock
from reshape_controller.live.control import Control
from reshape_controller.live.effects import Effects
from reshape_controller.live.hosts import HostWatch
from reshape_controller.live.launching import LaunchSettings
from reshape_controller.live.loop import Loop, Settings
from reshape_controller.live.sidecar_hub import SidecarHub
from reshape_controller.live.tokens import Tokens
from reshape_controller.store.sqlite.store import SqliteStore
from tests.support.gang_fakes import GangLauncher
from tests.support.gang_policy import HalveGangs
from tests.support.live_daemon import LiveDaemon

HOSTS = (HostId("host-0"), HostId("host-1"))
GPUS = {host: tuple(GpuId(f"{host}-gpu-{number}") for number in range(4)) for host in HOSTS}
SILENT_S = 0.3
"""Silence of a host after which its GPUs are lost."""
LOOK_S = 0.05
"""Pause between two looks at the hosts."""


@dataclass
class GangDaemon(LiveDaemon):
    wait_s: ClassVar[float] = 20.0
    launcher: GangLauncher

    def job(self, job: JobId) -> Job:
        state = self.loop.engine.state
        return state.jobs.get(job) or state.ended[job]

    async def trains(self, job: JobId, size: int) -> None:
        """Wait until the job runs on so many GPUs."""
        await self.until(lambda: self.state_of(job) == ("running", size))

    def held(self, host: HostId) -> set[GpuState]:
        """The states of a host's GPUs."""
        return {self.loop.engine.state.gpus[gpu].state for gpu in GPUS[host]}


def launcher_of_two_hosts() -> GangLauncher:
    return GangLauncher({str(host): tuple(map(str, gpus)) for host, gpus in GPUS.items()})


async def start(path: Path, launcher: GangLauncher) -> GangDaemon:
    """Start a daemon on the store below ``path``, which may be one that was killed; return it once
    it knows the hosts."""
    store = SqliteStore(path / "store.db")
    await store.open()
    clock = WallClock()
    loop = Loop(store, Settings(HalveGangs(), limits=Limits(host_silent_s=SILENT_S)), clock)
    launcher.hub = hub = SidecarHub(loop.post, time.monotonic, clock.now_s)
    settings = LaunchSettings("http://127.0.0.1:1", path / "work")
    effects = Effects(launcher, hub, Tokens(b"secret"), settings, loop.post)
    hosts = HostWatch(launcher, launcher, loop.post, time.monotonic)
    admission = Admission(lambda: loop.engine.state, effects.refusals)
    control = Control(loop, admission, effects.log_folder, hub.observed, effects.trouble)
    await loop.start(effects)

    async def watch_hosts() -> None:
        while True:
            await hosts.check(loop.engine.state)
            await asyncio.sleep(LOOK_S)

    watches = (loop.run(), effects.watch(lambda: loop.engine), watch_hosts())
    tasks = [asyncio.create_task(each) for each in watches]
    daemon = GangDaemon(loop, effects, control, tasks, launcher)
    await daemon.until(lambda: len(loop.engine.state.hosts) == len(HOSTS))
    return daemon


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
