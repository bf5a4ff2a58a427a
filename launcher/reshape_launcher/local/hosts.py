"""Several hosts on one machine: a supervised folder for each, for trials and tests of gangs.

Does: gives each host a ``LocalLauncher`` with a folder of its own, and starts, ends and looks at
each attempt on exactly its hosts. A host falls silent while the file ``silent`` is in its folder:
nothing is started, ended or seen there, and what was there counts as running, as on a machine whose
power or network is gone. State: these folders.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from reshape_launcher.local.launcher import LocalLauncher
from reshape_launcher.spec import (
    ContainerStatus,
    Containment,
    HostSeen,
    LaunchError,
    LaunchSpec,
    OneHost,
    RecordRefused,
    ReleaseCheck,
    check_job_id,
)
from reshape_sidecar.init import files

SILENT_FILE = "silent"
"""While this file is in a host's folder, the host does not answer."""


class HostSilent(OSError):
    """A host does not answer now, so nothing is known of what is there."""


@dataclass(frozen=True, slots=True)
class LocalHost:
    """A host of this machine: its attempts are below ``root``, and jobs there may use ``gpus``."""

    name: str
    root: Path
    gpu_type: str
    gpus: tuple[str, ...]

    @property
    def silence(self) -> str:
        """Why the host does not answer now; empty if it does."""
        mark = self.root / SILENT_FILE
        return f"host {self.name} does not answer, as the file {mark} says" if mark.exists() else ""


class LocalHosts:
    """``Launcher`` and ``HostSource`` of several hosts on this machine; the first has the jobs'
    own folders. ``environment`` and ``home`` are those of each ``LocalLauncher``."""

    def __init__(
        self,
        hosts: tuple[LocalHost, ...],
        environment: Mapping[str, str] | None = None,
        home: Path | None = None,
    ) -> None:
        roots = tuple(host.root for host in hosts)
        self._hosts = {host.name: host for host in hosts}
        self._launchers = {
            host.name: LocalLauncher(host.root, environment, home, host.name, roots)
            for host in hosts
        }
        self._first = self._launchers[hosts[0].name]

    def refusals(self, spec: LaunchSpec) -> tuple[RecordRefused, ...]:
        return self._first.refusals(spec)

    def no_gang(self) -> RecordRefused | None:
        """Return None: an attempt may be on several of the hosts."""
        return None

    async def launch(self, spec: LaunchSpec, token: str) -> None:
        """Start the attempt on each of its hosts, or leave nothing of it. Raises LaunchError."""
        check_job_id(spec.job)
        for host in spec.hosts:
            if host not in self._hosts:
                raise LaunchError(f"host {host} is not one of {', '.join(self._hosts)}")
            if self._hosts[host].silence:
                raise LaunchError(self._hosts[host].silence, retryable=True)
        ran = set(self._having(spec.job, spec.attempt)) == set(spec.hosts)
        try:
            # The first worker's host is the last: an attempt exists once all of its workers do.
            for host in reversed(spec.hosts):
                await self._launchers[host].launch(spec, token)
        except LaunchError:
            if not ran:  # else a torn file of its launch could not be written again
                with contextlib.suppress(LaunchError):
                    await self.remove(spec.job, spec.attempt, 0.0)
            raise

    async def one_host(self, spec: LaunchSpec) -> OneHost | None:
        """Return None: all hosts share the files of this machine."""
        return None

    async def remove(
        self, job: str, attempt: int, grace_s: float, hosts: tuple[str, ...] = ()
    ) -> None:
        """End the attempt on ``hosts``, the first worker's host first; empty: on all.

        Raises LaunchError if a process cannot be ended, or if a host does not answer.
        """
        wanted = [name for name in self._having(job, attempt) if not hosts or name in hosts]
        problems: list[str] = []
        for name in wanted:
            try:
                self._check_answers(name)
                await self._launchers[name].remove(job, attempt, grace_s)
            except (LaunchError, HostSilent) as problem:
                problems.append(str(problem))
        if problems:
            raise LaunchError("; ".join(problems), retryable=True)

    async def containers(self) -> tuple[ContainerStatus, ...]:
        """Return the status of every attempt on each of its hosts.

        Raises OSError if the attempts of a host cannot be listed.
        """
        found = await asyncio.gather(*map(self._of_host, self._hosts))
        whole = [status for statuses in found for status in statuses]
        return tuple(sorted(whole, key=lambda status: (status.job, status.attempt)))

    async def check_release(
        self, job: str, attempt: int, generation: int, devices: tuple[str, ...], host: str = ""
    ) -> ReleaseCheck:
        """Check that nothing of ``attempt`` up to ``generation`` is alive on ``host`` or holds
        memory of ``devices``. Raises OSError while that cannot be found out."""
        check = ReleaseCheck(True)
        for name in [host] if host else self._having(job, attempt):
            self._check_answers(name)
            check = await self._launchers[name].check_release(job, attempt, generation, devices)
            if not check.empty:
                break
        return check

    async def hosts(self) -> tuple[HostSeen, ...]:
        """Return every host; a silent one is not ready."""
        return tuple(map(_seen, self._hosts.values()))

    async def release(self, host: str) -> bool:
        """Return False: no other controller uses these hosts."""
        return False

    def containment(self) -> Containment:
        """Return what holds the processes of attempts that start now.

        Blocks for one short process at first.
        """
        return self._first.containment()

    def log_path(self, job: str, attempt: int) -> str | None:
        """Return the first worker's folder of logs; None if it does not exist."""
        having = self._having(job, attempt)
        return self._launchers[having[0]].log_path(job, attempt) if having else None

    async def _of_host(self, name: str) -> Iterable[ContainerStatus]:
        launcher, silence = self._launchers[name], self._hosts[name].silence
        statuses = await (launcher.unseen(silence) if silence else launcher.containers())
        return [replace(status, host=name) for status in statuses]

    def _having(self, job: str, attempt: int) -> list[str]:
        """Return the hosts on which something of an attempt was started, the first worker's
        first."""
        found = [name for name, one in self._launchers.items() if one.exists(job, attempt)]
        return sorted(
            found, key=lambda name: not self._launchers[name].has_first_worker(job, attempt)
        )

    def _check_answers(self, name: str) -> None:
        """Raise HostSilent if the host does not answer."""
        silence = self._hosts[name].silence
        if silence:
            raise HostSilent(silence)


def _seen(host: LocalHost) -> HostSeen:
    silence = host.silence
    return HostSeen(
        host.name,
        host.gpu_type,
        host.gpus,
        ready=not silence,
        boot=files.boot_id(),
        shown=None if silence else host.gpus,
        closed=silence,
    )
