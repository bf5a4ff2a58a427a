"""A test bed for the SideCar: real launcher, real processes, a coordinator double.

Does: launches one job, finds its processes, and ends all of them when the test is over; a process
that is left then fails the test. It polls instead of sleeping for a fixed time.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from reshape_launcher.local import processes
from reshape_launcher.local.launcher import LocalLauncher
from reshape_launcher.spec import ContainerStatus, DeviceMode, Launcher, LaunchSpec
from reshape_sidecar.agent.spec import Folder
from reshape_sidecar.init import processes as proc
from reshape_sidecar.init.look import init_of, training_of
from reshape_sidecar.init.processes import Marker
from reshape_sidecar.init.values import InitFile, TrainingProcess
from reshape_sidecar.wire import Mode, Observed, Phase
from tests.support.coordinator_double import PATIENCE_S, POLL_S, CoordinatorDouble
from tests.support.shared_folder import SharedFolder

T = TypeVar("T")
DEVICES = ("GPU-0", "GPU-1", "GPU-2", "GPU-3")


def eventually(what: str, look: Callable[[], T | None]) -> T:
    """Poll ``look`` until it returns a true value, and return that; fail after PATIENCE_S."""
    give_up_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_s:
        found = look()
        if found:
            return found
        time.sleep(POLL_S)
    raise AssertionError(f"not within {PATIENCE_S:g} s: {what}")


class Bed:
    """One job under a launcher of its own."""

    def __init__(self, tmp_path: Path) -> None:
        self.path = tmp_path
        self.code: SharedFolder = tmp_path / "code"
        self.code.mkdir()
        self.checkpoints: SharedFolder = tmp_path / "checkpoints"
        self.root = tmp_path / "root"
        self.launcher: Launcher = LocalLauncher(self.root)
        self.coordinator = CoordinatorDouble().start()
        self.folder = Folder(self.root / "job-1" / "attempt-1")

    def spec(self, program: str, *words: str, **fields: object) -> LaunchSpec:
        """A launch of ``program`` as a level 0 job on four simulated devices."""
        (self.code / "train.py").write_text(program)
        values: dict[str, object] = {
            "job": "job-1",
            "attempt": 1,
            "name": "a",
            "host": "host-0",
            "command": ("python", "train.py", *words),
            "code": str(self.code),
            "checkpoints": str(self.checkpoints),
            "coordinator_url": self.coordinator.url,
            "epoch": 1,
            "device_mode": DeviceMode.SIMULATED,
            "host_devices": DEVICES,
            "framework": "other",
        }
        return LaunchSpec(**(values | fields))  # type: ignore[arg-type]

    def launch(self, spec: LaunchSpec) -> None:
        asyncio.run(self.launcher.launch(spec, "secret"))

    def initialised(self, program: str, *words: str, **fields: object) -> Observed:
        """Launch and wait until the job is initialised, without devices."""
        self.coordinator.want(Mode.SAVE_AND_STOP)
        self.launch(self.spec(program, *words, **fields))
        return self.coordinator.until("initialised", lambda o: o.phase is Phase.INITIALIZED)

    def training(self, program: str, *words: str, size: int = 4, **fields: object) -> Observed:
        """Launch and wait until the program trains on ``size`` devices."""
        self.initialised(program, *words, **fields)
        generation = self.coordinator.want(Mode.RUN, *DEVICES[:size])
        return self.started(generation)

    def started(self, generation: int) -> Observed:
        """Wait until the program of ``generation`` is up and has set its signal handlers."""
        ready = self.code / f"ready-{generation}"
        eventually(f"training of generation {generation}", ready.exists)
        return self.coordinator.until(
            f"its pid in a report of generation {generation}",
            lambda o: o.generation == generation and o.pid is not None,
        )

    def logs(self) -> SharedFolder:
        """Where the launcher says that the logs are."""
        found = self.launcher.log_path("job-1", 1)
        assert found is not None
        return Path(found)

    def status(self) -> ContainerStatus:
        (status,) = asyncio.run(self.launcher.containers())
        return status

    def gone(self) -> ContainerStatus:
        """Wait until the container is reported gone."""
        return eventually(
            "container gone", lambda: None if self.status().running else self.status()
        )

    def remove(self, grace_s: float = 1.0) -> None:
        asyncio.run(self.launcher.remove("job-1", 1, grace_s))

    def clear(self) -> None:
        """Remove what a launcher keeps outside of the test's folders; nothing here."""

    def log(self, name: str = "training.log") -> str:
        path = self.folder.logs / name
        return path.read_text() if path.exists() else ""

    @property
    def marker(self) -> Marker:
        return Marker("job-1", 1, str(self.folder.socket))

    @property
    def markers(self) -> tuple[Marker, ...]:
        """Markers of both workers, if the job has two."""
        other = Folder(self.folder.path / "worker-1")
        return (self.marker, Marker("job-1", 1, str(other.socket)))

    def init(self) -> InitFile:
        found = init_of(self.folder.run)
        assert found is not None, "init is not alive"
        return found

    def agent(self, init: int | None = None) -> int:
        """Pid of the agent (of the init with this pid); waits until there is one."""

        def look() -> int | None:
            found_init = init_of(self.folder.run)
            parent = init or (found_init.pid if found_init is not None else None)
            if parent is None:
                return None
            children = proc.descendants(parent, proc.snapshot())
            found = [child.pid for child in children if b"agent/__main__.py" in _command(child.pid)]
            return found[0] if found else None

        return eventually("an agent", look)

    def process(self) -> TrainingProcess:
        found = training_of(self.folder.run)
        assert found is not None
        return found

    def count(self) -> int:
        """Return how many containers the machine really has."""
        agent = self.agent()
        return len([pid for pid in self.left() if pid != agent])

    def alive(self) -> bool:
        """Whether the newest training process is alive, judged by pid and start time."""
        training = self.process()
        return proc.alive(training.pid, training.start_time)

    def kill_agent(self, init: int | None = None) -> int:
        """Kill the agent with SIGKILL; return its pid."""
        pid = self.agent(init)
        os.kill(pid, signal.SIGKILL)
        return pid

    def remove_init(self) -> None:
        """Kill init with SIGKILL, and wait until what dies with it has died."""
        init = self.init()
        os.kill(init.pid, signal.SIGKILL)
        eventually("init's end", lambda: not proc.alive(init.pid, init.start_time))
        eventually("no process of init's", lambda: self.left() == [])

    def left(self) -> list[int]:
        """Return the pids of every process with the marker of one of the job's workers."""
        found = processes.living(self.markers)
        return [entry.proc.pid for marker in self.markers for entry in found[marker]]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@contextmanager
def bed(tmp_path: Path, kind: Callable[[Path], Bed] = Bed) -> Iterator[Bed]:
    """Yield a bed, and check afterwards that no process is left."""
    made = kind(tmp_path)
    try:
        yield made
    finally:
        made.coordinator.stop()
        made.remove(grace_s=0.0)
        made.clear()
        assert made.left() == []
