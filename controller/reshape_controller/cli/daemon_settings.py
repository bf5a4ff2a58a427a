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
    profiles: ProfileFiles = ProfileFiles()
    limits: Limits = Limits()
