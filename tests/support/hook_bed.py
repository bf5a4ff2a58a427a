"""A test bed for scripts under the hook: real processes, a small agent that listens, real signals.

Does: starts ``hook/run.py`` with the environment of the contract, and collects its output and its
reports. This module does not import TensorFlow.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from reshape_profiles.hook_reports import listening
from reshape_sidecar import checkpoints, codec, contract
from reshape_sidecar.checkpoints import PublishedCheckpoint
from reshape_sidecar.contract import HookReport, Release, StandbyReport
from reshape_sidecar.wire import WIRE_LEVEL, PrepareStage

ROOT = Path(__file__).resolve().parents[2]
RUN = ROOT / "sidecar" / "reshape_sidecar" / "hook" / "run.py"
PROCESS_S = 240.0
"""Longest run of one TensorFlow process on a slow machine."""


@dataclass(frozen=True)
class Ended:
    """Exit code, output and reports of a process that has ended."""

    code: int
    out: str
    err: str
    reports: tuple[HookReport, ...] = ()

    def lines(self, word: str) -> list[str]:
        """Lines of standard output that begin with ``word``."""
        return [line for line in self.out.splitlines() if line.startswith(word + " ")]


@dataclass
class Job:
    """A job whose training processes run one after the other on one checkpoint folder."""

    folder: Path
    script: Path
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    attempt: int = 1
    generation: int = 0
    launcher: tuple[str, ...] = (str(RUN),)

    @property
    def checkpoints(self) -> Path:
        """The checkpoint folder."""
        return self.folder / "checkpoints"

    def newest(self) -> PublishedCheckpoint:
        """The newest whole checkpoint; there must be one."""
        newest = checkpoints.newest(self.checkpoints)
        assert newest is not None
        return newest

    def run(self, devices: int = 2, /, **extra: str) -> Ended:
        """Run one process to its end on ``devices`` simulated devices."""
        with self.started(devices, **extra) as process:
            return process.wait()

    @contextlib.contextmanager
    def started(self, devices: int = 2, /, **extra: str) -> Iterator[Running]:
        """A process on ``devices`` simulated devices; killed at the end if it still runs."""
        self.generation += 1
        generation = {contract.ENV_GENERATION: str(self.generation)}
        variables = {**self._variables(devices), **generation, **self.environment, **extra}
        with (
            listening(self.folder / "agent.sock") as reports,
            running(self._command(), variables, reports) as process,
        ):
            yield process

    @contextlib.contextmanager
    def standing_by(self, devices: int = 2, /, **extra: str) -> Iterator[Successor]:
        """A process that is prepared for ``devices`` while another one may train."""
        mine, its = socket.socketpair()
        variables = {
            **self._variables(devices),
            contract.ENV_GENERATION: contract.WAITING_GENERATION,
            contract.ENV_STANDBY_FD: str(its.fileno()),
            contract.ENV_SOCKET: str(self.folder / "next-agent.sock"),
            **self.environment,
            **extra,
        }
        with (
            mine,
            listening(self.folder / "next-agent.sock") as reports,
            running(self._command(), variables, reports, its.fileno()) as process,
        ):
            its.close()
            yield Successor(self, process, mine)

    def _variables(self, devices: int) -> dict[str, str]:
        self.folder.mkdir(parents=True, exist_ok=True)
        return {
            contract.ENV_JOB: "job-1",
            contract.ENV_ATTEMPT: str(self.attempt),
            contract.ENV_DEVICES: ",".join(f"GPU-{n}" for n in range(devices)),
            contract.ENV_DEVICE_MODE: "simulated",
            contract.ENV_CHECKPOINTS: str(self.checkpoints),
            contract.ENV_SOCKET: str(self.folder / "agent.sock"),
            contract.ENV_KEEP_RUNNING: str(self.folder / "keep-running"),
            contract.ENV_SPAWNED_AT_S: str(time.monotonic()),
            contract.ENV_REPORT_LEVEL: str(WIRE_LEVEL),
        }

    def _command(self) -> list[str]:
        return [sys.executable, *self.launcher, str(self.script), *self.arguments]


def plain(script: Path, *arguments: str, **environment: str) -> Ended:
    """Run a script as its user would, without the hook."""
    with running([sys.executable, str(script), *arguments], environment, []) as process:
        return process.wait()


def clean_environment() -> dict[str, str]:
    """The environment of a user: nothing of ours, quiet TensorFlow, one thread per operation."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("RESHAPE_")
    }
    inherited.pop("PYTHONPATH", None)
    return {**inherited, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONUNBUFFERED": "1"}


class Running:
    """A process that runs, with everything that it writes."""

    def __init__(self, process: subprocess.Popen[str], reports: list[HookReport]) -> None:
        self.process = process
        self.reports = reports
        self._out: list[str] = []
        self._err: list[str] = []
        assert process.stdout is not None
        assert process.stderr is not None
        self._readers = [
            threading.Thread(target=self._read, args=(stream, into))
            for stream, into in ((process.stdout, self._out), (process.stderr, self._err))
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream: TextIO, into: list[str]) -> None:
        with stream:
            into.extend(stream)

    def until(self, there: Callable[[], object], text: str) -> None:
        """Wait until ``there`` is true; the process must live until then."""
        deadline = time.monotonic() + PROCESS_S
        while not there():
            assert self.process.poll() is None, f"{text}: ended: {''.join(self._err)}"
            assert time.monotonic() < deadline, f"{text}: waited too long"
            time.sleep(0.01)

    def until_line(self, word: str) -> None:
        """Wait until a line with ``word`` was printed."""
        self.until(lambda: any(word in line for line in list(self._out)), word)

    def until_another_line(self, word: str) -> None:
        """Wait until one more line with ``word`` is printed than there are now."""

        def count() -> int:
            return sum(word in line for line in list(self._out))

        before = count()
        self.until(lambda: count() > before, f"another {word}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self.process.send_signal(number)

    def wait(self) -> Ended:
        """Wait for the end."""
        code = self.process.wait(PROCESS_S)
        for reader in self._readers:
            reader.join(PROCESS_S)
        return Ended(code, "".join(self._out), "".join(self._err), tuple(self.reports))


class Successor:
    """A process that is prepared, and the connection on which a test releases it."""

    def __init__(self, job: Job, process: Running, connection: socket.socket) -> None:
        self.process = process
        self._job = job
        self._connection = connection
        self._text = b""

    def reports(self) -> list[StandbyReport]:
        """Return what it has reported so far."""
        with contextlib.suppress(BlockingIOError):
            while part := self._connection.recv(1 << 16, socket.MSG_DONTWAIT):
                self._text += part
        return [codec.loads(StandbyReport, line) for line in self._text.splitlines()]

    def until(self, *stages: PrepareStage) -> StandbyReport:
        """Wait for one of ``stages``; return the report of it."""
        self.process.until(
            lambda: any(report.stage in stages for report in self.reports()), str(stages)
        )
        return next(report for report in self.reports() if report.stage in stages)

    def release(self) -> None:
        """Make it the training process of the job's next generation."""
        self._job.generation += 1
        release = Release(self._job.generation, time.monotonic())
        self._connection.sendall(codec.dumps(release).encode() + b"\n")

    def drop(self) -> None:
        """Close the connection, as the end of init or its request does."""
        self._connection.close()


@contextlib.contextmanager
def running(
    command: list[str],
    environment: dict[str, str],
    reports: list[HookReport],
    *descriptors: int,
) -> Iterator[Running]:
    """A process of its own session; it and its children are killed at the end."""
    process = subprocess.Popen(
        command,
        env={**clean_environment(), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        pass_fds=descriptors,
    )
    run = Running(process, reports)
    try:
        yield run
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        run.wait()
