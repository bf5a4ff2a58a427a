"""The settings of a daemon: the value that ``up`` passes to ``daemon``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from reshape_controller.cli.home import Home
from reshape_controller.cli.profiles.files import ProfileFiles
from reshape_controller.cli.serve.devices import Devices
from reshape_controller.cli.serve.kubernetes_settings import KubernetesSettings
from reshape_controller.cli.serve.store_settings import StoreSettings
from reshape_controller.core.limits import Limits
from reshape_controller.core.model import Mechanism
from reshape_controller.core.plan import Policy
from reshape_launcher.declared_costs import ContainerCosts, DeclaredLauncher
from reshape_launcher.kubernetes.pod_mounts import OWN
from reshape_launcher.local.launcher import LocalLauncher
from reshape_launcher.spec import Launcher


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
    profiles: ProfileFiles = ProfileFiles()
    limits: Limits = Limits()
    seed: int | None = None
    kubernetes: KubernetesSettings | None = None
    """None: the local launcher."""
    lease: str | None = None
    """Name of the lease for leader election; None: this daemon is the only one."""

    def launcher(self) -> Launcher:
        """Return the launcher of this home, wrapped with the declared costs if there are any.

        Raises CliError.
        """
        if self.kubernetes is not None:
            return self.kubernetes.launcher()
        local = LocalLauncher(self.home.jobs)
        if self.container_costs is None:
            return local
        return DeclaredLauncher(local, self.container_costs)

    @property
    def launcher_name(self) -> str:
        return "local" if self.kubernetes is None else "kubernetes"

    @property
    def work_folder(self) -> Path:
        """Folder of jobs that name none: on this machine, or in pods."""
        return self.home.jobs if self.kubernetes is None else Path(OWN)

    @property
    def sidecar_url(self) -> str | None:
        """URL of this daemon for SideCars; None: the same as for people."""
        return None if self.kubernetes is None else self.kubernetes.sidecar_url

    @property
    def sidecar_names(self) -> frozenset[str]:
        """Host names by which SideCars in pods may address this daemon."""
        if self.kubernetes is None:
            return frozenset()
        name = urlsplit(self.kubernetes.sidecar_url).hostname or ""
        return frozenset({name, self.kubernetes.sidecar_address})
