"""The GPUs of this machine: real ones by NVML, or simulated ones on request."""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.cli.exits import Exit, failed
from reshape_launcher.local.naming import host_name
from reshape_launcher.spec import SIMULATED_PREFIX, SIMULATED_TYPE, DeviceMode
from reshape_sidecar import gpu


@dataclass(frozen=True, slots=True)
class Devices:
    """The devices that this daemon may assign to jobs."""

    mode: DeviceMode
    gpu_type: str
    gpus: tuple[str, ...]
    """In the order of the hosts, each of which has as many."""
    hosts: int = 1
    """Number of hosts that this machine plays."""

    @property
    def by_host(self) -> dict[str, tuple[str, ...]]:
        """The devices of each host of this machine."""
        each = len(self.gpus) // self.hosts
        return {
            host_name(number): self.gpus[number * each : (number + 1) * each]
            for number in range(self.hosts)
        }

    @property
    def text(self) -> str:
        if not self.gpus:
            return "the GPUs of its nodes"
        what = "simulated GPUs" if self.mode is DeviceMode.SIMULATED else f"GPUs ({self.gpu_type})"
        where = f" on {self.hosts} hosts" if self.hosts > 1 else ""
        return f"{len(self.gpus)} {what}{where}"


NODES = Devices(DeviceMode.POOL, "", ())
"""Devices of a cluster's nodes, which are discovered later."""


def find(simulated: int | None, most: int | None, gpu_type: str | None, hosts: int = 1) -> Devices:
    """Return the requested devices; ``simulated`` and ``most``: how many each host has.

    Raises CliError if there are none.
    """
    if simulated is not None and most is not None:
        raise failed(
            Exit.USAGE,
            "real and simulated GPUs cannot be used together",
            "--gpus and --simulated-gpus",
            "give one of the two",
        )
    if simulated is not None:
        names = (each for number in range(hosts) for each in _simulated(number, simulated))
        return Devices(DeviceMode.SIMULATED, gpu_type or SIMULATED_TYPE, tuple(names), hosts)
    found = gpu.visible()
    if not found:
        raise failed(
            Exit.FAILED,
            "no GPU found: NVML reports none, or its binding nvidia-ml-py is not installed",
            "reshape up",
            "use simulated GPUs: reshape up --simulated-gpus 4; "
            "with a GPU: install its driver, and pip install nvidia-ml-py",
        )
    each = _each(len(found), most, hosts)
    kind = gpu_type or gpu.inventory().gpus[0].gpu_type
    return Devices(DeviceMode.POOL, kind, found[: each * hosts], hosts)


def _simulated(host: int, count: int) -> list[str]:
    where = f"{host_name(host)}-" if host else ""
    return [f"{SIMULATED_PREFIX}{where}{number}" for number in range(count)]


def _each(found: int, most: int | None, hosts: int) -> int:
    """Return how many of the ``found`` GPUs each host has. Raises CliError."""
    if hosts > found:
        what = f"--hosts asks for {hosts} hosts; this machine has {found} GPUs"
        remedy = f"give at most {found}, or use simulated GPUs: --simulated-gpus 4"
        raise failed(Exit.USAGE, what, "--hosts", remedy)
    if most is None and found % hosts:
        what = f"{found} GPUs cannot be divided among {hosts} hosts"
        remedy = f"say how many each host has: --gpus {found // hosts}"
        raise failed(Exit.USAGE, what, "--hosts", remedy)
    room = found // hosts
    if most is not None and most > room:
        of_each = f" on each of {hosts} hosts" if hosts > 1 else ""
        raise failed(
            Exit.USAGE,
            f"--gpus asks for {most} GPUs{of_each}; this machine has {found}",
            "--gpus",
            f"give at most {room}, or leave out --gpus",
        )
    return room if most is None else most


def clash(devices: Devices, known: tuple[str, ...]) -> str:
    """Return why these devices cannot replace those in the home's inventory; empty if they can."""
    was_simulated = any(name.startswith(SIMULATED_PREFIX) for name in known)
    simulated = devices.mode is DeviceMode.SIMULATED
    if known and was_simulated != simulated:
        return "simulated" if was_simulated else "real"
    return ""
