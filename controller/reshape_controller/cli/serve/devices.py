"""The GPUs of this machine: real ones by NVML, or simulated ones on request.

Does: finds them and names them. Never: invents a GPU that nobody asked to simulate. State: none.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.cli.exits import Exit, failed
from reshape_launcher.spec import SIMULATED_PREFIX, SIMULATED_TYPE, DeviceMode
from reshape_sidecar import gpu

HOST = "local"
"""The one host of the local launcher, whatever the machine is called."""


@dataclass(frozen=True, slots=True)
class Devices:
    """What this daemon may give to jobs."""

    mode: DeviceMode
    gpu_type: str
    gpus: tuple[str, ...]

    @property
    def text(self) -> str:
        if not self.gpus:
            return "the GPUs of its nodes"
        what = "simulated GPUs" if self.mode is DeviceMode.SIMULATED else f"GPUs ({self.gpu_type})"
        return f"{len(self.gpus)} {what}"


NODES = Devices(DeviceMode.POOL, "", ())
"""Those of a cluster's nodes, which are known once they were looked at."""


def find(simulated: int | None, most: int | None, gpu_type: str | None) -> Devices:
    """The devices that were asked for. Raises CliError when there are none."""
    if simulated is not None and most is not None:
        raise failed(
            Exit.USAGE,
            "real and simulated GPUs cannot be used together",
            "--gpus and --simulated-gpus",
            "give one of the two",
        )
    if simulated is not None:
        names = tuple(f"{SIMULATED_PREFIX}{number}" for number in range(simulated))
        return Devices(DeviceMode.SIMULATED, gpu_type or SIMULATED_TYPE, names)
    found = gpu.visible()
    if not found:
        raise failed(
            Exit.FAILED,
            "no GPU found: NVML reports none, or its binding nvidia-ml-py is not installed",
            "reshape up",
            "use simulated GPUs: reshape up --simulated-gpus 4; "
            "with a GPU: install its driver, and pip install nvidia-ml-py",
        )
    if most is not None and most > len(found):
        raise failed(
            Exit.USAGE,
            f"--gpus asks for {most} GPUs; this machine has {len(found)}",
            "--gpus",
            f"give at most {len(found)}, or leave out --gpus",
        )
    return Devices(DeviceMode.POOL, gpu_type or gpu.inventory().gpus[0].gpu_type, found[:most])


def clash(devices: Devices, known: tuple[str, ...]) -> str:
    """Why these devices cannot follow those that the home's inventory has; empty if they can."""
    was_simulated = any(name.startswith(SIMULATED_PREFIX) for name in known)
    simulated = devices.mode is DeviceMode.SIMULATED
    if known and was_simulated != simulated:
        return "simulated" if was_simulated else "real"
    return ""
