"""A test bed for gangs: two hosts of one machine, real processes, a coordinator double.

Does: launches one job of three workers, the first on one host and the others on the second, and
finds the processes of each host.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from reshape_launcher.local import processes
from reshape_launcher.local.hosts import SILENT_FILE, LocalHost, LocalHosts
from reshape_launcher.spec import HostShare, LaunchSpec, ReleaseCheck
from reshape_sidecar.agent.spec import Folder
from reshape_sidecar.init.processes import Marker
from reshape_sidecar.wire import Mode, Observed, Phase
from tests.support import training_programs as programs
from tests.support.sidecar_bed import DEVICES, Bed, eventually

FIRST, SECOND = "host-0", "host-1"


class HostsBed(Bed):
    """One job under a launcher of two hosts. A job without shares is on the first."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path)
        self.roots = {FIRST: self.root, SECOND: tmp_path / "hosts" / SECOND}
        self.hosts = LocalHosts(
            tuple(LocalHost(name, root, "simulated", DEVICES) for name, root in self.roots.items())
        )
        self.launcher = self.hosts

    def folders(self, host: str) -> tuple[Folder, ...]:
        """Return the folders that workers of the job may have on a host."""
        own = self.roots[host] / "job-1" / "attempt-1"
        return (Folder(own), *(Folder(own / f"worker-{number}") for number in (1, 2)))

    def markers_on(self, host: str) -> tuple[Marker, ...]:
        return tuple(Marker("job-1", 1, str(each.socket)) for each in self.folders(host))

    @property
    def markers(self) -> tuple[Marker, ...]:
        return self.markers_on(FIRST) + self.markers_on(SECOND)

    def left_on(self, host: str) -> list[int]:
        """Return the pids of every process of the job on a host."""
        found = processes.living(self.markers_on(host))
        return [entry.proc.pid for entries in found.values() for entry in entries]

    def gang(
        self, shares: dict[str, int] | None = None, program: str = programs.PLAIN, *words: str
    ) -> LaunchSpec:
        """A launch with so many workers on each host; default: one and two."""
        placed = shares or {FIRST: 1, SECOND: 2}
        spec = self.spec(program, *words, workers=sum(placed.values()), host=next(iter(placed)))
        found = tuple(HostShare(host, count, DEVICES) for host, count in placed.items())
        return replace(spec, shares=found)

    def begun(self, spec: LaunchSpec | None = None) -> None:
        """Launch a gang, and wait until all workers are initialised."""
        wanted = spec or self.gang()
        self.coordinator.want(Mode.SAVE_AND_STOP)
        self.launch(wanted)
        self.all_report("initialised", wanted.workers, lambda seen: seen.phase is Phase.INITIALIZED)

    def all_report(self, what: str, workers: int, holds: Callable[[Observed], bool]) -> None:
        """Wait until a report of each worker is as described."""

        def all_do() -> bool:
            seen = {report.worker for report in self.coordinator.reports if holds(report)}
            return seen == set(range(workers))

        eventually(f"all {workers} workers {what}", all_do)

    def trains(self, size: int, workers: int = 3) -> int:
        """Have each worker train on so many GPUs, by a new process; the generation."""
        peers = tuple(self.addresses)
        generation = self.coordinator.want(Mode.RUN, *DEVICES[:size], peers=peers)

        def trains(seen: Observed) -> bool:
            there = seen.generation == generation and seen.pid is not None
            return there and len(seen.devices) == size

        self.all_report(f"train on {size}", workers, trains)
        return generation

    @property
    def addresses(self) -> list[str]:
        """The newest address of each worker."""
        newest = {s.worker: s.address for s in self.coordinator.reports if s.address}
        return [newest[worker] or "" for worker in sorted(newest)]

    def released(self, generation: int, host: str) -> ReleaseCheck:
        look = ("job-1", 1, generation, DEVICES)
        return asyncio.run(self.hosts.check_release(*look, host))

    def running(self) -> dict[str | None, bool]:
        """By host, whether what is there of the gang runs."""
        return {one.host: one.running for one in asyncio.run(self.hosts.containers())}

    def silence(self, host: str) -> None:
        (self.roots[host] / SILENT_FILE).touch()

    def remove(self, grace_s: float = 1.0) -> None:
        """Let every host answer again, and end the job on all."""
        for root in self.roots.values():
            (root / SILENT_FILE).unlink(missing_ok=True)
        super().remove(grace_s)
