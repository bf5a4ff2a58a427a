"""The hosts of a daemon: this machine, or the nodes of a cluster.

Does: add them to the log before submissions are accepted, and then watch them. Never: let an
inventory have hosts of two launchers.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

import structlog

from reshape_controller.cli.exits import CliError, Exit, failed
from reshape_controller.cli.home import Home
from reshape_controller.cli.serve.devices import Devices, clash
from reshape_controller.cli.serve.foreign_containers import any_lives, refuse_pods
from reshape_controller.core import events as ev
from reshape_controller.core.model import GpuId, HostId, JobState
from reshape_controller.live.hosts import HostWatch
from reshape_controller.live.loop import Loop
from reshape_controller.store.protocol import Store, StoreError
from reshape_launcher.kubernetes.launcher import KubernetesLauncher
from reshape_launcher.local.naming import HOST
from reshape_launcher.spec import HostSource, Launcher

log = structlog.get_logger("reshape.daemon")
JOBS_LOOKED_AT = 1000
STORE_ID_CHARS = 16
IN_CONTAINERS = (JobState.INITIALIZED, JobState.RUNNING, JobState.ADJUSTING)


class HostSync(Protocol):
    """Keeps the hosts in the log in step with a launcher."""

    async def recovered(self, loop: Loop) -> None:
        """Post what happened to the hosts while no daemon ran.

        Raises CliError if the log does not know what runs there.
        """

    async def add(self, loop: Loop) -> None:
        """Commit the present hosts. Raises CliError."""

    async def watch(self, loop: Loop) -> None:
        """Post what happens to the hosts until cancelled."""


class ThisMachine:
    """The host of the local launcher, or the hosts that this machine plays (``several``)."""

    def __init__(
        self,
        home: Home,
        devices: Devices,
        launcher: Launcher,
        several: HostSource | None = None,
    ) -> None:
        self._home = home
        self._devices = devices
        self._launcher = launcher
        self._several = several
        self._gpus = {
            HostId(name): tuple(map(GpuId, gpus)) for name, gpus in devices.by_host.items()
        }

    async def recovered(self, loop: Loop) -> None:
        journal = loop.journal
        lives = await any_lives(
            self._launcher,
            self._home,
            loop.engine.state,
            journal.epoch,
            loss_accepted=journal.marks.loss_accepted,
        )
        restarted = self._home.machine_restarted() and not lives
        for host, gpus in self._gpus.items():
            if restarted:
                # Before any effect, and before the ends of its containers count as failures.
                loop.post(ev.HostCleaned(host, "the machine was restarted"))
            # Before the first plan, which could assign GPUs that are gone.
            loop.post(ev.GpusSeen(host, gpus))

    async def add(self, loop: Loop) -> None:
        silent = set() if self._several is None else await _silent(self._several)
        for host, gpus in self._gpus.items():
            if host in silent:  # it is added once it answers
                continue
            await loop.commit(ev.HostAdded(host, self._devices.gpu_type, gpus))
            missing = set(loop.engine.state.hosts[host].gpus) - set(gpus)
            if missing:
                log.warning("gpus-not-found", gpus=sorted(missing), remedy="reshape gpus says why")

    async def watch(self, loop: Loop) -> None:
        if self._several is None:
            await asyncio.Event().wait()
        else:
            watch = HostWatch(self._several, self._launcher, loop.post, time.monotonic)
            await watch.watch(lambda: loop.engine.state)


async def _silent(source: HostSource) -> set[str]:
    """Return the names of the hosts that do not answer now."""
    return {host.name for host in await source.hosts() if not host.ready}


class Nodes:
    """The nodes of a Kubernetes cluster."""

    def __init__(self, launcher: KubernetesLauncher) -> None:
        self._launcher = launcher
        self._has_id = False

    async def recovered(self, loop: Loop) -> None:
        accepted = loop.journal.marks.loss_accepted
        await refuse_pods(self._launcher, loop.engine.state, loss_accepted=accepted)

    async def add(self, loop: Loop) -> None:
        await self._take_nodes(loop)
        seen = [host for host in await self._launcher.hosts() if host.ready]
        for host in (host for host in seen if host.gpus):
            gpus = tuple(GpuId(name) for name in host.gpus)
            await loop.commit(ev.HostAdded(HostId(host.name), host.gpu_type, gpus))
        if not seen:
            log.warning("no-node-is-ready", remedy="see kubectl get nodes; ready nodes are added")

    async def watch(self, loop: Loop) -> None:
        await self._take_nodes(loop)  # it may be the first to look at the nodes
        watch = HostWatch(self._launcher, self._launcher, loop.post, time.monotonic)
        await watch.watch(lambda: loop.engine.state)

    async def _take_nodes(self, loop: Loop) -> None:
        """Have the launcher use only nodes whose Lease this store holds."""
        if not self._has_id:
            self._launcher.take_nodes_as(await store_id(loop.store))
            self._has_id = True


async def store_id(store: Store) -> str:
    """Return the id of a store whose log has begun: a digest of its oldest record."""
    async for record in store.read(0):
        return record.digest[:STORE_ID_CHARS]
    raise StoreError("the log has no record")


async def check_inventory(devices: Devices, launcher: str, store: Store, home: Home) -> None:
    """Check that this home's log has these GPUs and containers. Raises CliError."""
    known = await store.gpus()
    kind = clash(devices, tuple(str(gpu.id) for gpu in known))
    if kind:
        raise failed(
            Exit.FAILED,
            f"this home was used with {kind} GPUs; the settings now ask for others",
            str(home.folder),
            f"start with {kind} GPUs as before, or give another --home",
        )
    hosts = {str(gpu.host) for gpu in known}
    before = "local" if HOST in hosts else "kubernetes" if hosts else launcher
    if before != launcher:
        raise failed(
            Exit.FAILED,
            f"this home was used with --launcher {before}",
            str(home.folder),
            "start with that launcher as before, or give another --home",
        )
    if launcher == "local":
        if hosts - devices.by_host.keys():
            raise failed(
                Exit.FAILED,
                f"this home was used with --hosts {len(hosts)}, and jobs may run on each of them",
                str(home.folder),
                f"start with --hosts {len(hosts)} as before, or give another --home",
            )
        await _check_containers(store, home)


async def _check_containers(store: Store, home: Home) -> None:
    """Check that no job of the store has a container in another home. Raises CliError.

    This home cannot see such containers and would start their jobs a second time.
    """
    page = await store.jobs(limit=JOBS_LOOKED_AT, states=IN_CONTAINERS)
    started = [row.job for row in page.rows if row.job and row.job.initialized_at_s is not None]
    here = [job for job in started if (home.jobs / job.id).is_dir()]
    if started and not here:
        job = started[0].id
        remedy = (
            "start with that home (--home); or, if it is lost and none of its containers run, "
            f"confirm that: mkdir -p {home.jobs / job}"
        )
        what = f"job {job} of this store has a container of another home, which may still run"
        raise failed(Exit.FAILED, what, str(home.folder), remedy)


def not_reached(error: OSError, where: str) -> CliError:
    """Return the error for a cluster that did not answer."""
    remedy = "check it with: reshape doctor"
    return failed(Exit.FAILED, f"the cluster cannot be used: {error}", where, remedy)
