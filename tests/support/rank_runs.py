"""A group of ranks of one program, started as a SideCar starts it, without a daemon.

Does: what the tests of ranks share: the environment, what the program prints, its processes, its
end. State: a folder, and the processes until ``kill``.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from reshape_sidecar import checkpoints
from reshape_sidecar.agent import environment
from reshape_sidecar.agent.spec import AttemptSpec, DeviceMode
from reshape_sidecar.contract import ENV_GENERATION
from reshape_sidecar.init import look, processes
from reshape_sidecar.wire import Processes

ROOT = Path(__file__).parents[2]
WAIT_S = 300.0
"""Two ranks import PyTorch in 80 s on two cores with a load of 20."""
STEP = re.compile(r"rank (\d+) step (\d+)")
JOB_TYPE = "ranks"
_ports = iter(range(11_000 + os.getpid() * 17 % 9000, 32_000))
"""Below those that the kernel gives away, so that no other program gets one before the ranks."""


def free_port() -> int:
    """Return a port on which no process listens."""
    for port in _ports:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port
    raise AssertionError("there is no free port")


class RankRun:
    """One start of a command on some GPUs. Starts in the same folder share its checkpoints."""

    def __init__(
        self,
        folder: Path,
        command: Sequence[str | Path],
        gpus: int,
        *,
        step_s: float | None = None,
        generation: int = 1,
        port: int | None = None,
    ) -> None:
        """``step_s``: pace of the simulated GPUs. ``port``: where ranks without the hook meet."""
        self.folder, self.log = folder, folder / "log"
        (folder / "checkpoints").mkdir(exist_ok=True)
        self._temporary = tempfile.TemporaryDirectory(prefix="ranks-")
        """Sockets of loader workers are below it, so its path is short."""
        truth = folder / "truth.json"
        if step_s is not None:
            pace = {JOB_TYPE: {str(size): step_s for size in range(1, gpus + 1)}}
            truth.write_text(json.dumps({"seconds_per_step": pace}))
        spec = AttemptSpec(
            job="a",
            attempt=1,
            name="a",
            command=tuple(map(str, command)),
            code=str(folder),
            checkpoints=str(folder / "checkpoints"),
            coordinator_url="",
            epoch=0,
            device_mode=DeviceMode.SIMULATED,
            framework="pytorch",
            device_truth=None if step_s is None else str(truth),
            job_type=JOB_TYPE,
            processes=Processes.PER_GPU,
        )
        self.port = port or free_port()
        env = environment.variables(
            spec,
            tuple(f"gpu-{number}" for number in range(gpus)),
            {"PATH": os.environ["PATH"], "TMPDIR": self._temporary.name},
            socket=folder / "run" / "agent.sock",
            keep_running=folder / "keep-running",
            now_s=time.monotonic(),
            free_port=self.port,
            library=ROOT / "sidecar",
        )
        self._generation = generation
        self._marker = processes.Marker("a", 1, str(folder / "run" / "agent.sock"))
        env |= {**self._marker.environment(), ENV_GENERATION: str(generation)}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                environment.command(spec), env=env, cwd=folder, stdout=log, stderr=log
            )

    @property
    def text(self) -> str:
        """What the program has printed in this folder."""
        return self.log.read_text(errors="replace")

    def prints(self, pattern: str) -> None:
        """Wait until it has printed a match of ``pattern``."""
        give_up_s = time.monotonic() + WAIT_S
        while not re.search(pattern, self.text):
            assert self.process.poll() is None, f"it has ended\n{self.text}"
            assert time.monotonic() < give_up_s, f"no {pattern!r} in\n{self.text}"
            time.sleep(0.005)

    def pids(self) -> list[int]:
        """Living ranks, and what they have started."""
        found = look.processes_up_to(self._marker, self._generation, self.folder / "run")
        return [pid for pid in found if pid != self.process.pid]

    def rank(self, number: int) -> int:
        """The process of one rank."""
        for pid in self.pids():
            words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            if f"RANK={number}".encode() in words and parent == self.process.pid:
                return pid
        raise AssertionError(f"no rank {number} among {self.pids()}")

    def steps(self) -> dict[int, int]:
        """The last step that each rank printed."""
        return {int(rank): int(step) for rank, step in STEP.findall(self.text)}

    def saved_step(self) -> int | None:
        """The step of the newest checkpoint."""
        newest = checkpoints.newest(self.folder / "checkpoints")
        return None if newest is None else newest.manifest.step

    def stop(self) -> None:
        """Ask for a save and an end, as init does."""
        self.process.send_signal(signal.SIGTERM)

    def ends(self) -> int:
        """Wait for the end; return the exit code. No process is left then."""
        code = self.process.wait(WAIT_S)
        self.leaves_nothing()
        return code

    def leaves_nothing(self) -> None:
        """Wait until no process and no file of the start is left."""
        give_up_s = time.monotonic() + WAIT_S
        while pids := self.pids():
            assert self.process.poll() is None or time.monotonic() < give_up_s, f"{pids} are left"
            time.sleep(0.005)
        assert not list(Path(self._temporary.name).glob("reshape-*")), "a file is left in TMPDIR"

    def kill(self) -> None:
        """End what is left of it."""
        for pid in (*self.pids(), self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self._temporary.cleanup()
