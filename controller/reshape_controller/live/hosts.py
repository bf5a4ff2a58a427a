"""Hosts that a launcher finds by itself, as events: added, silent, cleaned, cordoned, and which
GPUs they show.

Does: looks at the hosts every few seconds and compares them with the engine's. Never: takes a GPU
back because a host is silent; that a host comes back is evidence only once nothing of ours runs
there, or its machine was started again. State: since when a host is silent, which are cordoned, and
each host's boot; forgotten at a restart, when every wait begins anew (R6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog

from reshape_controller.core import events as ev
from reshape_controller.core.model import GpuId, Host, HostId, JobId, Stage
from reshape_controller.core.state import State
from reshape_launcher.spec import ContainerStatus, HostSeen, HostSource, Launcher

LOOK_EVERY_S = 2.0
CORDONED_BY = "the cluster (cordoned)"

log = structlog.get_logger("reshape.hosts")


class HostWatch:
    """One per daemon. ``post`` takes events; ``monotonic_s`` is any steady clock."""

    def __init__(
        self,
        source: HostSource,
        launcher: Launcher,
        post: Callable[[ev.Event], None],
        monotonic_s: Callable[[], float],
    ) -> None:
        self._source = source
        self._launcher = launcher
        self._post = post
        self._monotonic_s = monotonic_s
        self._silent_since_s: dict[str, float] = {}
        self._cordoned: set[str] = set()
        self._boots: dict[str, str] = {}

    async def watch(self, state: Callable[[], State]) -> None:
        """Look until cancelled."""
        trouble = ""
        while True:
            try:
                await self.look(state())
                trouble = ""
            except Exception as error:
                if repr(error) != trouble:
                    log.warning("hosts-not-seen", error=repr(error), consequence="nothing changes")
                trouble = repr(error)
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self, state: State) -> None:
        """One look; posts what is news. Raises OSError while the hosts cannot be seen."""
        seen = {host.name: host for host in await self._source.hosts()}
        for host in seen.values():
            self._added(state, host)
            self._shown(state, host)
            self._cordon(state, host)
        now_s = self._monotonic_s()
        for known in tuple(state.hosts.values()):
            found = seen.get(known.id)
            if found is not None and found.ready:
                self._silent_since_s.pop(known.id, None)
                await self._back(state, known, found)
            elif known.present:
                since_s = self._silent_since_s.setdefault(known.id, now_s)
                if now_s - since_s >= state.limits.host_silent_s:
                    what = "is not ready" if found is not None else "is no longer in the cluster"
                    reason = f"its node {what} for {now_s - since_s:.0f} s"
                    self._post(ev.HostFellSilent(known.id, reason))

    def _added(self, state: State, host: HostSeen) -> None:
        known = state.hosts.get(HostId(host.name))
        fresh = set(host.gpus) - set(known.gpus if known is not None else ())
        if fresh and host.ready:
            gpus = tuple(GpuId(gpu) for gpu in host.gpus)
            self._post(ev.HostAdded(HostId(host.name), host.gpu_type, gpus))

    def _shown(self, state: State, host: HostSeen) -> None:
        """Whether it shows other GPUs of the inventory than at the last look that could tell."""
        known = state.hosts.get(HostId(host.name))
        if known is None or host.shown is None or not host.ready:
            return
        shown = frozenset(host.shown)
        if any((gpu.id in shown) == bool(gpu.unseen) for gpu in state.gpus_of_host(known.id)):
            self._post(ev.GpusSeen(known.id, tuple(GpuId(gpu) for gpu in host.shown)))

    def _cordon(self, state: State, host: HostSeen) -> None:
        """Somebody told the cluster to start nothing there, or took that back."""
        known = state.hosts.get(HostId(host.name))
        if known is None:
            return
        if not host.schedulable and host.name not in self._cordoned:
            self._cordoned.add(host.name)
            if not known.drained:
                self._post(ev.HostDrained(known.id, CORDONED_BY))
        elif host.schedulable:
            self._cordoned.discard(host.name)
            if known.drained and known.drained_by == CORDONED_BY:
                self._post(ev.HostUndrained(known.id, CORDONED_BY))

    async def _back(self, state: State, known: Host, found: HostSeen) -> None:
        """A host that answers: cleaned if its machine was started again, or if nothing is left."""
        before = self._boots.get(found.name, found.boot)
        self._boots[found.name] = found.boot
        if before != found.boot:
            self._post(ev.HostCleaned(known.id, "its machine was rebooted"))
            return
        if known.present:
            return
        left = [status for status in await self._launcher.containers() if _there(status, known)]
        strays = [status for status in left if not _meant(state, status)]
        await self._remove(strays, state.limits.kill_after_s)
        if not left:
            reason = "its node is back and runs no container of this controller"
            self._post(ev.HostCleaned(known.id, reason))

    async def _remove(self, strays: Iterable[ContainerStatus], grace_s: float) -> None:
        for status in strays:
            log.info("stray-removed", job=status.job, attempt=status.attempt, host=status.host)
            await self._launcher.remove(status.job, status.attempt, grace_s)


def _there(status: ContainerStatus, host: Host) -> bool:
    return status.running and status.host == host.id


def _meant(state: State, status: ContainerStatus) -> bool:
    """Whether the engine wants this very attempt to run."""
    job = state.jobs.get(JobId(status.job))
    return job is not None and job.attempt == status.attempt and job.stage is not Stage.NONE
