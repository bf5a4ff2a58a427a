"""A real daemon with real jobs, for tests: started, asked by the real command, killed, cleaned up.

Does: runs ``reshape`` as a user does, each time a process of its own; what it waits for it asks the
daemon itself. Never: leaves one behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from reshape_launcher.local.groups import Groups
from reshape_launcher.local.launcher import LocalLauncher
from reshape_launcher.local.processes import KILL_WAIT_S
from tests.support import processes

DEADLINE_S = 90.0
"""Everything that is waited for happens within seconds; a slow machine gets more."""
COMMAND_S = 300.0
"""Some commands compare every policy, which takes minutes if several programs want each core."""
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "reshape_controller.cli.main"
"""The command; a module of tests that alters it may be run in its place."""
SOURCES = ("controller", "sidecar", "launcher", "profiles")
T = TypeVar("T")

SAVES = """
import os, pathlib, signal, sys, time
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
file = pathlib.Path(os.environ["RESHAPE_CHECKPOINTS"]) / "step"
step = int(file.read_text()) if file.exists() else 0
print("begins at step", step, "on", os.environ["RESHAPE_DEVICES"], flush=True)
while step < int(sys.argv[1]):
    time.sleep(0.1)
    step += 1
    if asked:
        file.write_text(str(step))
        print("saved step", step, flush=True)
        sys.exit(75)
print("done", flush=True)
"""
"""Counts to its argument in steps of 0.1 s; saves on SIGTERM, and resumes: the whole level 0."""

CRASHES = """
print("about to fail", flush=True)
raise SystemError("no such layer")
"""


def eventually(
    what: Callable[[], T | None], *, least_s: float = 0.0, text: str | Callable[[], str] = ""
) -> T:
    """The first true value of ``what``, asked again and again; fails after DEADLINE_S.

    A ``text`` that is asked for tells what there is at the end, not what there was at the start.
    """
    until_s = time.monotonic() + DEADLINE_S + least_s
    while True:
        value = what()
        if value:
            return value
        if time.monotonic() >= until_s:
            raise AssertionError(f"did not happen: {(text() if callable(text) else text) or what}")
        time.sleep(0.1)


class Bed:
    """A home folder, and the command to use it with."""

    simulated = True
    """Whether it gives simulated GPUs."""
    prefix: tuple[str, ...] = ()
    """Program and arguments that execute the daemon's command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.code = folder / "code"
        self.code.mkdir()
        self.daemon: subprocess.Popen[bytes] | None = None
        self.log = folder / "daemon.log"

    def environment(self, **more: str) -> dict[str, str]:
        """What a command runs with: no setting of the machine's own."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        return {
            **kept,
            "HOME": str(self.folder),
            "PYTHONPATH": ":".join(str(ROOT / name) for name in SOURCES),
            "PYTHONWARNINGS": "error",
            "RESHAPE_HOME": str(self.home),
            "COLUMNS": "200",
            **more,
        }

    def reshape(
        self, *words: str, stdin: str = "", **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the command and wait for it."""
        return subprocess.run(
            [sys.executable, "-m", "reshape_controller.cli.main", *words],
            input=stdin,
            capture_output=True,
            text=True,
            env=self.environment(**more),
            cwd=self.folder,
            timeout=COMMAND_S,
            check=False,
        )

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Run the command beside the test, which waits for it."""
        return subprocess.Popen(
            [sys.executable, "-m", "reshape_controller.cli.main", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment(),
            cwd=self.folder,
        )

    def json(self, *words: str) -> Any:
        """The document of a command that must succeed."""
        done = self.reshape(*words, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def post(self, path: str, document: object) -> tuple[int, Any]:
        """What a request of one's own gets, past the command: status and document."""
        return self._ask(path, json.dumps(document).encode())

    def _ask(self, path: str, body: bytes | None = None) -> tuple[int, Any]:
        """Raises OSError if nobody answers, or nobody has said yet where."""
        url = json.loads((self.home / "address.json").read_text())["url"]
        token = (self.home / "token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(url + path, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def up(self, *words: str, program: str = PROGRAM) -> None:
        """Start the daemon and wait until it takes requests."""
        self.launch(*words, program=program)
        self.wait_until_it_answers()

    def wait_until_it_answers(self) -> None:
        eventually(self._answers, least_s=DEADLINE_S, text="the daemon takes requests")

    def launch(self, *words: str, program: str = PROGRAM) -> subprocess.Popen[bytes]:
        """Start the daemon and wait for nothing."""
        command = [*self.prefix, sys.executable, "-m", program, "up", *words]
        if self.simulated and "--simulated-gpus" not in words:
            command += ["--simulated-gpus", "4"]
        if "--port" not in words:
            command += ["--port", "0"]
        environment = self.environment()
        if program.startswith("tests."):
            environment["PYTHONPATH"] += f":{ROOT}"
        with self.log.open("ab") as log:
            self.daemon = subprocess.Popen(
                command, env=environment, cwd=self.folder, stdout=log, stderr=log
            )
        return self.daemon

    def _answers(self) -> bool:
        assert self.daemon is not None
        assert self.daemon.poll() is None, (
            self.log.read_text() if self.log.is_file() else "it ended"
        )
        try:
            return self._ask("/v1/gpus")[0] == 200
        except (OSError, ValueError):  # no address yet, or half of it
            return False

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal to the daemon and wait for its end. Its exit code."""
        assert self.daemon is not None
        self.daemon.send_signal(number)
        code = self.daemon.wait(DEADLINE_S)
        self.daemon = None
        return code

    def record(
        self, name: str, script: str = SAVES, *, steps: int | None = 20, **fields: Any
    ) -> Path:
        """Write a job record and its script."""
        (self.code / f"{name}.py").write_text(script)
        record = {
            "name": name,
            "command": ["python", f"{name}.py", str(steps)],
            "framework": "other",
            "optional_gpus": [2, 4],
            "steps": steps,
            "may_restart": True,  # a level 0 program reports no step, so it proves no save
            **fields,
        }
        path = self.code / f"{name}.json"
        path.write_text(json.dumps(record))
        return path

    def submit(
        self, name: str, script: str = SAVES, *, steps: int | None = 20, **fields: Any
    ) -> str:
        """Submit a job; its id."""
        path = self.record(name, script, steps=steps, **fields)
        return str(self.json("submit", str(path))["id"])

    def job(self, key: str) -> Any:
        """What `reshape get KEY -o json` prints. It is asked again and again: a command each time
        would be most of what a test does.
        """
        status, job = self._ask(f"/v1/jobs/{key}")
        assert status == 200, job
        return job

    def entries(self, key: str) -> list[dict[str, Any]]:
        """The entries of a job's history."""
        status, answer = self._ask(f"/v1/jobs/{key}/history")
        assert status == 200, answer
        return list(answer["events"])

    def reaches(self, key: str, state: str, *, size: int | None = None) -> Any:
        """Wait until a job is in a state (with a number of GPUs); the job."""

        def there() -> Any:
            job = self.job(key)
            right = job["state"] == state and size in (None, job["size"])
            return job if right else None

        wanted = f"{key} is {state} with {size or 'any'} GPUs"
        return eventually(there, text=lambda: f"{wanted}: {self.job(key)}\n{self._logs(key)}")

    def _logs(self, key: str) -> str:
        """The end of all that was written down of a job."""
        found = sorted((self.home / "jobs" / key).rglob("*.log")) if self.home.is_dir() else []
        ends = [f"{path}:\n{path.read_text()[-3000:]}" for path in [self.log, *found]]
        return "\n".join(ends)

    def pid(self, key: str, *, size: int | None = None) -> int:
        """Wait until a process of a job trains and its SideCar has said which; its pid."""
        self.reaches(key, "running", size=size)
        return int(eventually(lambda: self.job(key)["pid"], text=f"{key} has a process"))

    def close(self) -> None:
        """End the daemon and every container that it started."""
        if self.daemon is not None and self.daemon.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.daemon.kill()
            self.daemon.wait(DEADLINE_S)
        asyncio.run(self._clear())

    async def _clear(self) -> None:
        roots = [self.home / "jobs", *(self.home / "hosts").glob("*")]
        for launcher in map(LocalLauncher, roots):
            for status in await launcher.containers():
                if status.running:
                    await launcher.remove(status.job, status.attempt, 0.0)
        # A daemon that is killed while it starts a container leaves one that nobody lists yet.
        for pid in processes.naming(f"{self.home}/"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for root in roots:
            Groups(root).end_all(KILL_WAIT_S)


def bed(folder: Path) -> Iterator[Bed]:
    """A bed that is cleared afterwards: the body of a fixture."""
    made = Bed(folder)
    try:
        yield made
    finally:
        made.close()


def start_of(pid: int) -> int | None:
    """Start time of a living process in clock ticks; None if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])
