"""A daemon in pool mode and its jobs, asked over HTTP.

Does: starts ``reshape up`` on the machine's first GPU in the step's folder, submits jobs, reads
their marks, and ends both. On a stand-in the daemon has a shorter deadline for releases. State: the
processes.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from gpu import processes
from gpu.step import MARKS, PROGRAMS, Step, StepFailed

from reshape_controller.cli.home import Home
from reshape_gpu import requests
from reshape_gpu.client import Client
from reshape_gpu.errors import ClientError
from reshape_gpu.requests import Request, Response
from reshape_gpu.target import of_home
from reshape_gpu.values import ENDED, GpuView, JobView
from reshape_launcher.local.groups import Groups

START_S = 40.0
END_S = 20.0
FIRST_STEP_S = 90.0
"""The first import of PyTorch from a cold disk may take most of this."""

Marks = list[dict[str, Any]]


class Job:
    """A job of the daemon, with the marks that its processes have left."""

    def __init__(self, daemon: Daemon, name: str, id: str, marks: Path) -> None:
        self.name = name
        self.id = id
        self._daemon = daemon
        self._file = marks

    @property
    def view(self) -> JobView:
        return self._daemon.client.get(self.id)

    def ask(self, action: str) -> None:
        """Send a request of a user: pause, resume, cancel. Raises CliError."""
        self._daemon.client.ask(requests.act(self.id, action))

    def marks(self) -> Marks:
        try:
            text = self._file.read_text()
        except OSError:
            return []
        return [json.loads(line) for line in text.splitlines(keepends=True) if line[-1] == "\n"]

    def last(self, name: str, since_s: float = 0.0) -> dict[str, Any] | None:
        """Return the newest mark of a name since a time."""
        found = [mark for mark in self.marks() if mark["name"] == name and mark["at_s"] > since_s]
        return found[-1] if found else None

    def trains(self, since_s: float = 0.0) -> dict[str, Any]:
        """Wait for a first step since a time; its mark. Raises StepFailed."""

        def first_step() -> dict[str, Any] | None:
            mark = self.last("first-step", since_s)
            if mark is None and self.view.state in ENDED:
                raise StepFailed(f"{self.name} is {self.view.state}: {self.view.reason}")
            return mark

        return self._daemon.step.wait(first_step, f"{self.name} trains", FIRST_STEP_S)

    def start_phases(self, since_s: float) -> dict[str, float]:
        """Return the seconds of each phase of the newest start since a time."""
        found = {
            mark["name"]: mark["at_s"]
            for mark in self.marks()
            if mark["at_s"] > since_s and mark["name"] in PHASES
        }
        pairs = itertools.pairwise(PHASES)
        named = {f"{b.replace('-', '_')}_s": found[b] - found[a] for a, b in pairs if b in found}
        return {name: round(seconds, 4) for name, seconds in named.items()}

    def ends(self) -> JobView:
        """Wait until it has ended and its container is gone."""

        def over() -> JobView | None:
            view = self.view
            return view if view.state in ENDED and view.stage == "none" else None

        return self._daemon.step.wait(over, f"{self.name} ends", 60.0)


PHASES = ("begin", "import", "context", "build", "restore", "first-step")
"""Marks of a start, in their order."""


class Daemon:
    """``reshape up`` within a context."""

    def __init__(self, step: Step, *words: str) -> None:
        self.step = step
        self.home = Home(step.work / "home")
        self.client: Client
        self._words = words
        self._process: subprocess.Popen[bytes]

    def __enter__(self) -> Daemon:
        module = [str(Path(__file__).with_name("impatient.py"))]
        program = ["-m", "reshape_controller.cli.main"] if self.step.is_real else module
        command = [sys.executable, *program, "up", "--home", str(self.home.folder)]
        command += ["--port", "0", "--gpus", "1", "--job-environment", "*", *self._words]
        with (self.step.logs / "daemon.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        self.step.wait(self._answers, "the daemon answers; see daemon.log", START_S)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ClientError, OSError):
            self._cancel_all()
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        # An attempt whose GPU was quarantined keeps its own group.
        Groups(self.home.jobs).end_all(processes.KILL_S)

    def submit(self, name: str, *words: str, **fields: object) -> Job:
        """Submit a job of gpu_job.py on one GPU. Raises CliError."""
        marks = self.step.logs / f"marks-{name}.jsonl"
        record = {
            "name": name,
            "command": ["python", "gpu_job.py", *words],
            "framework": "pytorch",
            "optional_gpus": [1],
            "code": str(PROGRAMS),
            "env": {MARKS: str(marks)},
            **fields,
        }
        view = self.client.ask(requests.submit(record))
        return Job(self, name, view.id, marks)

    def gpu(self) -> GpuView:
        """Return the controller's view of the GPU."""
        gpus = self.client.gpus()
        if not gpus:
            raise StepFailed("the daemon has no GPU")
        return gpus[0]

    def clear(self) -> None:
        """Give the operator's word that the quarantined GPU is free. Raises CliError."""
        self.client.ask(requests.clear(self.step.uuid))

    def _answers(self) -> bool:
        if self._process.poll() is not None:
            log = (self.step.logs / "daemon.log").read_text(errors="replace").strip()
            raise StepFailed("the daemon did not start: " + " / ".join(log.splitlines()[-3:]))
        try:
            self.client = Client.at(of_home(self.home))
            self.client.ask(Request("GET", "/readyz", Response))
        except ClientError:
            return False
        return True

    def _cancel_all(self) -> None:
        end_s = time.monotonic() + END_S
        while time.monotonic() < end_s:
            jobs = self.client.page().jobs
            if all(job.state in ENDED and job.stage == "none" for job in jobs):
                return
            for job in jobs:
                if job.state not in ENDED:
                    self.client.cancel(job.id)
            time.sleep(0.1)


def living(word: str) -> list[int]:
    """Return the processes that have ``word`` among their arguments, this one left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if word.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found
