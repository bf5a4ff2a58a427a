"""Run ``reshape`` with lines of a file as containers: ``python -m tests.support.light_daemon``.

Does: a whole daemon with its store, its policy and its sockets; only its local launcher writes a
line where it would start processes, so that one machine has as many attempts as a benchmark needs.
``tests.support.light_sidecars`` plays their SideCars. ``GPUS`` in the environment is the number of
simulated GPUs. State: the file ``containers.jsonl`` in the folder of the jobs.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from reshape_controller.cli.main import main
from reshape_controller.cli.serve import devices, settings, up
from reshape_launcher.spec import (
    SIMULATED_PREFIX,
    SIMULATED_TYPE,
    ContainerStatus,
    Containment,
    DeviceMode,
    Hold,
    LaunchSpec,
    OneHost,
    RecordRefused,
    ReleaseCheck,
    one_host_only,
)

FILE = "containers.jsonl"
ENV_GPUS = "GPUS"


@dataclass(frozen=True, slots=True)
class Line:
    """What the launcher did: a container that started, or one that ended."""

    job: str
    attempt: int
    runs: bool
    url: str = ""
    token: str = ""
    epoch: int = 0


def lines(folder: Path) -> list[Line]:
    """Return what the launcher below ``folder`` has done so far, oldest first."""
    path = folder / FILE
    texts = path.read_text().splitlines() if path.exists() else []
    return [Line(**json.loads(text)) for text in texts]


class LightLauncher:
    """A launcher whose containers are lines of a file, which a later daemon reads."""

    def __init__(self, root: Path, *_: object) -> None:
        self._root = root
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._runs = {(line.job, line.attempt): line.runs for line in lines(root)}

    def refusals(self, spec: LaunchSpec) -> tuple[RecordRefused, ...]:
        """Return nothing: a line can be written for any record."""
        return ()

    def no_gang(self) -> RecordRefused | None:
        """Return that there is one host."""
        return one_host_only("this launcher has one host")

    async def launch(self, spec: LaunchSpec, token: str) -> None:
        """Write the line of a container, once."""
        (self._root / spec.job).mkdir(exist_ok=True)  # shows that the job is of this home
        if (spec.job, spec.attempt) not in self._runs:
            url = spec.coordinator_url
            self._write(Line(spec.job, spec.attempt, True, url, token, spec.epoch))

    async def one_host(self, spec: LaunchSpec) -> OneHost | None:
        """Return None: there is one host."""
        return None

    async def remove(
        self, job: str, attempt: int, grace_s: float, hosts: tuple[str, ...] = ()
    ) -> None:
        """Write the line of its end."""
        if self._runs.get((job, attempt)):
            self._write(Line(job, attempt, False))

    async def containers(self) -> tuple[ContainerStatus, ...]:
        """Return the status of each line's container."""
        return tuple(ContainerStatus(*key, running=runs) for key, runs in self._runs.items())

    async def check_release(
        self, job: str, attempt: int, generation: int, devices: tuple[str, ...], host: str = ""
    ) -> ReleaseCheck:
        """Return that nothing lives: there are no processes."""
        return ReleaseCheck(True)

    def containment(self) -> Containment:
        """Return that nothing is held: there are no processes."""
        return Containment(Hold.MARKER, "containers are lines of a file")

    def log_path(self, job: str, attempt: int) -> str | None:
        """Return None: there are no logs."""
        return None

    def _write(self, line: Line) -> None:
        with (self._root / FILE).open("a") as file:
            file.write(json.dumps(asdict(line)) + "\n")
        self._runs[line.job, line.attempt] = line.runs


def _find(
    simulated: int | None, most: int | None, gpu_type: str | None, hosts: int = 1
) -> devices.Devices:
    names = tuple(f"{SIMULATED_PREFIX}{number}" for number in range(int(os.environ[ENV_GPUS])))
    return devices.Devices(DeviceMode.SIMULATED, gpu_type or SIMULATED_TYPE, names)


if __name__ == "__main__":
    settings.LocalLauncher = LightLauncher  # type: ignore[assignment,attr-defined]
    up.find = _find  # type: ignore[attr-defined]
    main()
