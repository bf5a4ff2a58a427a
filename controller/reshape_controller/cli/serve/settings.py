"""What a daemon is asked to be: the value between ``up`` and ``daemon``. State: none."""

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
    """What ``reshape up`` was asked for, checked. ``port`` 0: any free one."""

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
    """By which this daemon and others elect one; None: it is the only one."""

    def launcher(self) -> Launcher:
        """The launcher of this home, with the declared costs before it if there are any.

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
        """Holds the folders of jobs that name none: on this machine, or as pods see it."""
        return self.home.jobs if self.kubernetes is None else Path(OWN)

    @property
    def sidecar_url(self) -> str | None:
        """Where SideCars reach this daemon; None: where people do."""
        return None if self.kubernetes is None else self.kubernetes.sidecar_url

    @property
    def sidecar_names(self) -> frozenset[str]:
        """Names under which SideCars in pods may address this daemon."""
        if self.kubernetes is None:
            return frozenset()
        name = urlsplit(self.kubernetes.sidecar_url).hostname or ""
        return frozenset({name, self.kubernetes.sidecar_address})
