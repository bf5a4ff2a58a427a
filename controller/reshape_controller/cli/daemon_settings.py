"""What a daemon is asked to be: the value between ``cli.up`` and ``cli.daemon``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reshape_controller.cli.devices import Devices
from reshape_controller.cli.home import Home
from reshape_controller.cli.profile_files import ProfileFiles
from reshape_controller.cli.store_place import StorePlace
from reshape_controller.core.limits import Limits
from reshape_controller.core.model import Mechanism
from reshape_controller.core.plan import Policy
from reshape_launcher.declared import ContainerCosts, DeclaredLauncher
from reshape_launcher.local import LocalLauncher
from reshape_launcher.spec import Launcher


@dataclass(frozen=True, slots=True)
class DaemonSettings:
    """What ``reshape up`` was asked for, checked. ``port`` 0: any free one."""

    home: Home
    store: StorePlace
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

    def launcher(self) -> Launcher:
        """The launcher of this home, with the declared costs before it if there are any."""
        local = LocalLauncher(self.home.jobs)
        if self.container_costs is None:
            return local
        return DeclaredLauncher(local, self.container_costs)
