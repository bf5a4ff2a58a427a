"""Hosts that a launcher finds by itself, as events: added, silent, cleaned, cordoned, and which
GPUs they show.

Does: reads the hosts every few seconds and compares them with the engine's. A silent host keeps its
GPUs; its return counts only once nothing of ours runs there, or its machine was started again. At a
restart of the controller every wait starts again (R6).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog

from reshape_controller.core import events as ev
from reshape_controller.core.model import GpuId, GpuState, Host, HostId, JobId, Stage
from reshape_controller.core.state import State
from reshape_launcher.spec import ContainerStatus, HostSeen, HostSource, Launcher

CHECK_EVERY_S = 2.0
"""Pause between two checks of the hosts."""
CORDONED_BY = "the cluster (cordoned)"

_UNUSED = (GpuState.IDLE, GpuState.LOST)
"""States of a GPU without an owner that no operator has to look at."""

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
        self._released: set[str] = set()
        """Hosts that were released and have not come back."""
        self._unused: dict[str, str] = {}
        """Why each host is not used, as it was logged last."""
        self._boots: dict[str, str] = {}
        """Id of each host's boot, as of the newest check."""

    async def watch(self, state: Callable[[], State]) -> None:
        """Check the hosts until cancelled."""
        trouble = ""
        while True:
            try:
                await self.check(state())
                trouble = ""
            except Exception as error:
                if repr(error) != trouble:
                    log.warning("hosts-not-seen", error=repr(error), consequence="nothing changes")
                trouble = repr(error)
            await asyncio.sleep(CHECK_EVERY_S)

    async def check(self, state: State) -> None:
        """Read the hosts once and post what changed. Raises OSError if they cannot be read."""
        hosts = {host.name: host for host in await self._source.hosts()}
        self._released -= hosts.keys()
        for host in hosts.values():
            self._log_unused(state, host)
            self._post_added(state, host)
            self._post_shown(state, host)
            self._post_cordon(state, host)
        now_s = self._monotonic_s()
        for known in tuple(state.hosts.values()):
            found = hosts.get(known.id)
            self._post_closed(known, found)
            if found is not None and found.ready:
                self._silent_since_s.pop(known.id, None)
                await self._post_return(state, known, found)
            elif found is None and await self._release(state, known):
                continue
            elif known.present:
                since_s = self._silent_since_s.setdefault(known.id, now_s)
                if now_s - since_s >= state.limits.host_silent_s:
                    what = "is not ready" if found is not None else "is no longer in the cluster"
                    reason = f"its node {what} for {now_s - since_s:.0f} s"
                    self._post(ev.HostFellSilent(known.id, reason))

    def _post_added(self, state: State, host: HostSeen) -> None:
        known = state.hosts.get(HostId(host.name))
        new = set(host.gpus) - set(known.gpus if known is not None else ())
        if new and host.ready:
            gpus = tuple(GpuId(gpu) for gpu in host.gpus)
            self._post(ev.HostAdded(HostId(host.name), host.gpu_type, gpus))
            if known is None and host.closed:  # before a plan can place a job there
                self._post(ev.HostClosed(HostId(host.name), host.closed))

    def _log_unused(self, state: State, host: HostSeen) -> None:
        """Log once why a host of the cluster has no GPU for this controller."""
        reason = host.closed if not host.gpus and HostId(host.name) not in state.hosts else ""
        if reason and self._unused.get(host.name) != reason:
            log.warning("host-not-used", host=host.name, reason=reason)
        self._unused[host.name] = reason

    def _post_shown(self, state: State, host: HostSeen) -> None:
        """Post the GPUs that a host shows if they differ from the engine's."""
        known = state.hosts.get(HostId(host.name))
        if known is None or host.shown is None or not host.ready:
            return
        shown = frozenset(host.shown)
        if any((gpu.id in shown) == bool(gpu.unseen) for gpu in state.gpus_of_host(known.id)):
            self._post(ev.GpusSeen(known.id, tuple(GpuId(gpu) for gpu in host.shown)))

    def _post_closed(self, known: Host, found: HostSeen | None) -> None:
        """Post that a host takes no new job for now, at once: its loss has its own deadline."""
        reason = "its node is not in the cluster" if found is None else found.closed
        if reason and reason != known.closed:
            answers = found is not None and found.ready
            self._post(ev.HostClosed(known.id, reason, answers))
        elif known.closed and not reason:
            self._post(ev.HostOpened(known.id))

    def _post_cordon(self, state: State, host: HostSeen) -> None:
        """Post a drain for a host that the cluster cordoned, and its end."""
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

    async def _release(self, state: State, known: Host) -> bool:
        """Release a host that is not this controller's any more, once nothing of it is used there;
        return whether it was released. The engine has closed it, so nothing starts there."""
        used = any(gpu.state not in _UNUSED for gpu in state.gpus_of_host(known.id))
        if not known.closed or used or known.id in self._released:
            return False
        if any(job.is_on(known.id) for job in state.jobs.values()):
            return False
        if not await self._source.release(known.id):
            return False
        self._released.add(known.id)
        log.info("host-released", host=known.id)
        return True

    async def _post_return(self, state: State, known: Host, host: HostSeen) -> None:
        """Post that a ready host is clean: its machine was rebooted, or nothing runs there."""
        before = self._boots.get(host.name, host.boot)
        self._boots[host.name] = host.boot
        if before != host.boot:
            self._post(ev.HostCleaned(known.id, "its machine was rebooted"))
            return
        if known.present:
            return
        running = [s for s in await self._launcher.containers() if _runs_on(s, known)]
        orphans = [status for status in running if not _is_current(state, status)]
        await self._remove(orphans, state.limits.kill_after_s)
        if not running:
            reason = "its node is back and runs no container of this controller"
            self._post(ev.HostCleaned(known.id, reason))

    async def _remove(self, orphans: Iterable[ContainerStatus], grace_s: float) -> None:
        for status in orphans:
            log.info("stray-removed", job=status.job, attempt=status.attempt, host=status.host)
            # Of a gang only what is there: its other hosts may not answer.
            only = (status.host or "",) if self._launcher.no_gang() is None else ()
            await self._launcher.remove(status.job, status.attempt, grace_s, only)


def _runs_on(status: ContainerStatus, host: Host) -> bool:
    return status.running and status.host == host.id


def _is_current(state: State, status: ContainerStatus) -> bool:
    """Whether the container is of its job's newest attempt, which the engine wants to run."""
    job = state.jobs.get(JobId(status.job))
    return job is not None and job.attempt == status.attempt and job.stage is not Stage.NONE
