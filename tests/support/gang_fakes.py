"""A launcher of several hosts whose SideCars are coroutines: for fast tests of live with gangs.

Does: has a container for each worker on its own host, and hosts that can be cut off, on which
everything runs on unseen. Keeps its own account of the process on each GPU (``clashes``). Never
used where a test is about processes: those start real ones.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from reshape_controller.live.sidecar_hub import SidecarHub, UnknownAttempt
from reshape_launcher.spec import (
    ContainerStatus,
    HostSeen,
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
    StartKind,
)

POLL_S = 0.05
STEP_S = 0.005
CUT_OFF_S = 0.02


@dataclass
class FakeWorker:
    """The container of one worker. It takes up each desired state at once."""

    spec: LaunchSpec
    launcher: GangLauncher
    observed: Observed
    task: asyncio.Task[None] | None = None
    over: bool = False
    exit_code: int | None = None
    leaves: bool = False
    """It ends once its last report has an answer."""
    runs_generation: int = 0
    """Generation of its training process."""

    @property
    def key(self) -> tuple[str, int]:
        return self.spec.job, self.spec.attempt

    @property
    def cut_off(self) -> bool:
        return self.spec.host in self.launcher.away

    def end(self, exit_code: int | None) -> None:
        """The container ends, with its training process."""
        if not self.over:
            self.over, self.exit_code = True, exit_code
            self.observed = replace(self.observed, devices=())

    async def run(self) -> None:
        self.observed = replace(self.observed, phase=Phase.INITIALIZED)
        while not self.over:
            hub, seen = (
                self.launcher.hub,
                replace(self.observed, sequence=self.observed.sequence + 1),
            )
            self.observed = seen
            if self.cut_off or hub is None:
                await asyncio.sleep(CUT_OFF_S)
                continue
            try:
                desired = await hub.exchange(*self.key, seen, POLL_S)
            except UnknownAttempt:
                await asyncio.sleep(CUT_OFF_S)
                continue
            if self.leaves:
                self.end(0)
            elif desired is not None and not (self.over or self.cut_off):
                self._take_up(desired)
            await asyncio.sleep(STEP_S)

    def _take_up(self, desired: Desired) -> None:
        seen = replace(self.observed, peers=desired.peers, meeting=desired.meeting)
        if desired.generation > seen.generation:
            seen = self._stopped(seen, desired.generation)
        seen = replace(seen, epoch=desired.epoch)
        if desired.mode is Mode.EXIT:
            self.observed, self.leaves = seen, True
        elif desired.mode is Mode.RUN and not seen.devices and self._may_start(desired):
            self.runs_generation = desired.generation
            self.launcher.occupy(self, desired.devices)
            times = PhaseTimes(save_s=0.01, first_step_s=0.01, how=StartKind.COLD)
            self.observed = replace(
                seen, devices=desired.devices, phase=Phase.RUNNING, pid=1, times=times
            )
        else:
            step = seen.progress.step + bool(seen.devices)
            self.observed = replace(seen, progress=replace(seen.progress, step=step))

    def _may_start(self, desired: Desired) -> bool:
        return self.spec.workers in (1, len(desired.peers))

    def _stopped(self, seen: Observed, generation: int) -> Observed:
        """Training is saved and has ended, and the next one has another address."""
        step = seen.progress.step
        if seen.devices and seen.worker == 0:
            self.launcher.saved[self.spec.job] = step
        return replace(
            seen,
            generation=generation,
            stopped_generation=generation,
            devices=(),
            phase=Phase.INITIALIZED,
            pid=None,
            outcome=Outcome(generation, OutcomeKind.STOPPING, step),
            progress=replace(seen.progress, checkpoint_step=step),
            address=f"{self.spec.host}:{9000 + generation}",
        )


@dataclass
class GangLauncher:
    """Containers as coroutines, on several hosts, which it finds by itself."""

    gpus: dict[str, tuple[str, ...]]
    """The GPUs of each host."""
    hub: SidecarHub | None = None
    workers: dict[tuple[str, int], list[FakeWorker]] = field(default_factory=dict)
    launches: list[LaunchSpec] = field(default_factory=list)
    removals: list[tuple[str, int, tuple[str, ...]]] = field(default_factory=list)
    looks: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)
    """Job, host and GPUs of each check of a release."""
    away: set[str] = field(default_factory=set)
    """Hosts that do not answer."""
    occupied: set[str] = field(default_factory=set)
    """Hosts on which what jobs released is not empty."""
    removal_s: float = 0.02
    """Time of a removal, also once all has ended."""
    unfit: str = ""
    """Host on which no container can be started."""
    saved: dict[str, int] = field(default_factory=dict)
    """Step of the newest checkpoint, by job."""
    clashes: list[str] = field(default_factory=list)
    """GPUs that got a second process."""
    files_on: str = ""
    """The only host that reaches files; empty: all do."""

    def refusals(self, spec: LaunchSpec) -> tuple[RecordRefused, ...]:
        return ()

    def no_gang(self) -> RecordRefused | None:
        return None

    async def launch(self, spec: LaunchSpec, token: str) -> None:
        key = (spec.job, spec.attempt)
        if key in self.workers:
            return
        self.launches.append(spec)
        lacking = [host for host in spec.hosts if host in self.away or host == self.unfit]
        if lacking:
            raise LaunchError(f"no container starts on {lacking[0]}", retryable=True)
        self.workers[key] = [self._start(spec.for_worker(n)) for n in range(spec.workers)]

    def _start(self, spec: LaunchSpec) -> FakeWorker:
        seen = Observed(spec.job, spec.attempt, 0, 0, Phase.INITIALIZING, worker=spec.worker or 0)
        step = self.saved.get(spec.job, 0)
        seen = replace(seen, progress=replace(seen.progress, step=step, checkpoint_step=step))
        worker = FakeWorker(spec, self, replace(seen, address=f"{spec.host}:9000"))
        worker.task = asyncio.create_task(worker.run())
        return worker

    async def one_host(self, spec: LaunchSpec) -> OneHost | None:
        return OneHost(self.files_on, "its files are on a disk of it") if self.files_on else None

    async def remove(
        self, job: str, attempt: int, grace_s: float, hosts: tuple[str, ...] = ()
    ) -> None:
        self.removals.append((job, attempt, hosts))
        wanted = [w for w in self.of(job, attempt) if not hosts or w.spec.host in hosts]
        for worker in wanted:
            if not worker.cut_off:
                worker.end(137)
        await asyncio.sleep(self.removal_s)
        if any(not worker.over for worker in wanted):
            raise LaunchError("a host does not answer", retryable=True)

    async def containers(self) -> tuple[ContainerStatus, ...]:
        return tuple(
            self._status([worker for worker in workers if worker.spec.host == host])
            for workers in self.workers.values()
            for host in dict.fromkeys(worker.spec.host for worker in workers)
        )

    def _status(self, workers: list[FakeWorker]) -> ContainerStatus:
        job, attempt = workers[0].key
        runs, codes = any(not w.over for w in workers), [w.exit_code for w in workers]
        code = None if runs else max(codes, key=lambda code: code or 0)
        return ContainerStatus(job, attempt, runs, code, host=workers[0].spec.host)

    async def check_release(
        self, job: str, attempt: int, generation: int, devices: tuple[str, ...], host: str = ""
    ) -> ReleaseCheck:
        self.looks.append((job, host, devices))
        if host in self.away:
            raise OSError(f"{host} does not answer")
        on_host = [w for w in self.of(job, attempt) if host in ("", w.spec.host)]
        lives = any(w.observed.devices and w.runs_generation <= generation for w in on_host)
        if lives or host in self.occupied:
            return ReleaseCheck(False, f"a process on {host}")
        return ReleaseCheck(True)

    def log_path(self, job: str, attempt: int) -> str | None:
        return None

    # --- its hosts

    async def hosts(self) -> tuple[HostSeen, ...]:
        return tuple(
            HostSeen(host, "V100", gpus, ready=host not in self.away, boot="boot-1", shown=gpus)
            for host, gpus in self.gpus.items()
        )

    async def release(self, host: str) -> bool:
        return False

    # --- for the tests

    def of(self, job: str, attempt: int | None = None) -> list[FakeWorker]:
        """The workers of an attempt; without a number of the newest."""
        numbers = [key[1] for key in self.workers if key[0] == job]
        newest = max(numbers, default=0) if attempt is None else attempt
        return self.workers.get((job, newest), [])

    def occupy(self, worker: FakeWorker, devices: tuple[str, ...]) -> None:
        """A process of the worker starts on GPUs; note those on which another one lives."""
        for other in [each for of in self.workers.values() for each in of if each is not worker]:
            for gpu in {*devices} & {*other.observed.devices}:
                self.clashes.append(f"{gpu}: {other.key} and {worker.key}")
        strange = [gpu for gpu in devices if gpu not in worker.spec.host_devices]
        self.clashes += [f"{gpu} is not on {worker.spec.host}" for gpu in strange]

    async def close(self) -> None:
        tasks = [w.task for workers in self.workers.values() for w in workers if w.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
