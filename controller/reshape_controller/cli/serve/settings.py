"""The settings of a daemon: the value that ``up`` passes to ``daemon``."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from reshape_controller.access import token_file
from reshape_controller.access.identities import Identities
from reshape_controller.access.sessions import Sessions
from reshape_controller.cli.home import Home
from reshape_controller.cli.profiles.files import ProfileFiles
from reshape_controller.cli.serve.devices import Devices
from reshape_controller.cli.serve.kubernetes_settings import KubernetesSettings
from reshape_controller.cli.serve.public_access import PublicAccess
from reshape_controller.cli.serve.store_settings import StoreSettings
from reshape_controller.core.limits import LOCAL, Limits
from reshape_controller.core.model import Mechanism
from reshape_controller.core.plan import Policy
from reshape_controller.live.notifications.targets import Target
from reshape_launcher.declared_costs import ContainerCosts, DeclaredLauncher
from reshape_launcher.kubernetes.pod_mounts import OWN
from reshape_launcher.local import access, job_environment, users
from reshape_launcher.local.hosts import LocalHost, LocalHosts
from reshape_launcher.local.launcher import LocalLauncher
from reshape_launcher.spec import Containment, Hold, Launcher
from reshape_sidecar.wire import Shortcut

if TYPE_CHECKING:
    from reshape_controller.cli.serve.hosts import HostSync


@dataclass(frozen=True, slots=True)
class Backend:
    """Where a daemon's containers run, and how they reach the daemon."""

    name: str
    """The launcher as ``--launcher`` names it."""
    launcher: Launcher
    hosts: HostSync
    work_folder: Path
    """Folder of jobs that name none: on this machine, or in pods."""
    attempts_folders: tuple[Path, ...]
    """Folders of this machine with JOB/attempt-N; empty: the attempts are elsewhere."""
    sidecar_url: str | None = None
    """URL of this daemon for SideCars; None: the same as for people."""
    sidecar_names: frozenset[str] = frozenset()
    """Host names by which SideCars in pods may address this daemon."""
    containment: Callable[[], Containment] = lambda: Containment(Hold.CONTAINER)
    """What holds the processes of attempts; it may block for a moment."""
    isolation: Callable[[], str] = lambda: ""
    """What jobs may do on this machine, in words; it may block for a moment."""
    may_write: Callable[[str, int | None], bool] = lambda folder, uid: True
    """Whether the processes of a Unix user (None: the daemon's) may write in a folder; one user of
    all pods may write in whatever they mount."""
    problem: Callable[[], str] = lambda: ""
    """Why calls to the cluster fail now; empty if they do not."""


@dataclass(frozen=True, slots=True)
class DaemonSettings:
    """The checked settings of ``reshape up``. ``port`` 0: any free port."""

    home: Home
    store: StoreSettings
    address: str
    port: int
    port_is_asked_for: bool
    devices: Devices
    policy: Policy
    mechanism: Mechanism
    device_truth: Path | None = None
    container_costs: ContainerCosts | None = None
    standby: Shortcut = Shortcut.AUTO
    overlap: Shortcut = Shortcut.AUTO
    job_environment: tuple[str, ...] = job_environment.parse(job_environment.DEFAULT)
    """Names of the variables of this process that local jobs get."""
    profiles: ProfileFiles = ProfileFiles()
    limits: Limits = LOCAL
    seed: int | None = None
    kubernetes: KubernetesSettings | None = None
    """None: the local launcher."""
    lease: str | None = None
    """Name of the lease for leader election; None: this daemon is the only one."""
    users_see_all: bool = True
    """Whether a user sees the names and states of the jobs of others."""
    root_jobs: bool = False
    """Whether a daemon that is root runs jobs of tokens without a uid, as root."""
    inserts: str | None = None
    """Name of the identity that writes into the store; None: none is known."""
    keep_logs_days: int | None = None
    """Days after a job's end for which its logs are kept; None: for ever."""
    notify: tuple[Target, ...] = ()
    """Targets of notifications."""
    public: PublicAccess | None = None
    """The socket for people elsewhere; None: there is none."""

    def identities(self, now_s: Callable[[], float] = time.time) -> Identities:
        """Return the identities of this home, which follow its files. Raises CliError."""
        return Identities(
            self.home.current_token(),
            token_file.follow(self.home.named_tokens_file),
            now_s=now_s,
            users_see_all=self.users_see_all,
            inserts=self.inserts,
            uids_required=self.kubernetes is None and users.is_root() and not self.root_jobs,
        )

    def sessions(self, identities: Identities, now_s: Callable[[], float] = time.time) -> Sessions:
        """Return the logins of the page. Raises CliError."""
        return Sessions(identities, self.home.secret(), self.home.sessions_file, now_s)

    def backend(self) -> Backend:
        """Return the launcher of this home with its hosts. Raises CliError."""
        from reshape_controller.cli.serve.hosts import Nodes, ThisMachine  # the daemon's parts

        if self.kubernetes is not None:
            cluster = self.kubernetes.launcher()
            url = self.kubernetes.sidecar_url
            names = frozenset({urlsplit(url).hostname or "", self.kubernetes.sidecar_address})
            storage = self.kubernetes.pods.storage_folder
            return Backend(
                *("kubernetes", cluster, Nodes(cluster), Path(OWN)),
                *(() if storage is None else (Path(storage),), url, names),
                problem=cluster.problem,
            )
        environment = job_environment.allowed(os.environ, self.job_environment)
        folders = {name: self.home.attempts_of(name) for name in self.devices.by_host}
        several: LocalHosts | None = None
        if self.devices.hosts > 1:
            several = self._local_hosts(folders, environment)
        local = several or LocalLauncher(self.home.jobs, environment, self.home.folder)
        launcher: Launcher = local
        if self.container_costs is not None:
            launcher = DeclaredLauncher(launcher, self.container_costs)
        hosts = ThisMachine(self.home, self.devices, launcher, several)
        return Backend(
            *("local", launcher, hosts, self.home.jobs, tuple(folders.values())),
            containment=local.containment,
            isolation=users.isolation,
            may_write=lambda folder, uid: uid is None or access.may_write(Path(folder), uid),
        )

    def _local_hosts(
        self, folders: Mapping[str, Path], environment: Mapping[str, str]
    ) -> LocalHosts:
        hosts = (
            LocalHost(name, folders[name], self.devices.gpu_type, gpus)
            for name, gpus in self.devices.by_host.items()
        )
        return LocalHosts(tuple(hosts), environment, self.home.folder)
