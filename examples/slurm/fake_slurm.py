"""A Slurm of one machine for the tests of ``slurm_launcher.py``: jobs are processes.

Does: keep a file for each job, so that another object with the same folder finds it, as Slurm's
database lets a new controller. A variable in the environment of a job's processes, and descent from
its first one, stand for its cgroup.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from examples.slurm.slurm_launcher import SlurmAway, Task, TaskState
from reshape_sidecar.init import processes as proc

POLL_S = 0.01
GROUP = "FAKE_SLURM_JOB"
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND


class FakeSlurm:
    """``Slurm``. ``answers``: outputs of programs that this machine does not have."""

    def __init__(self, folder: Path, answers: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._answers = folder, answers or {}
        self.is_away = False

    def submit(
        self, name: str, node: str, command: list[str], env: Mapping[str, str], output: Path
    ) -> None:
        self._check()
        pid = os.posix_spawn(
            command[0],
            command,
            dict(env) | {GROUP: self._group(name)},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(output), _FLAGS, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=(signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGHUP),
        )
        text = json.dumps({"node": node, "pid": pid, "start_time": proc.start_time(pid)})
        path = self._folder / f"{name}.json"
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").rename(path)

    def tasks(self) -> tuple[Task, ...]:
        self._check()
        return tuple(self._task(path) for path in sorted(self._folder.glob("*.json")))

    def end(self, name: str, grace_s: float) -> None:
        self._check()
        path = self._folder / f"{name}.json"
        if not path.exists():
            return
        pid, start_time = self._process(path)
        proc.send_signal(proc.Proc(pid, 0, start_time, zombie=False), signal.SIGTERM)
        until_s = time.monotonic() + grace_s
        while proc.alive(pid, start_time) and time.monotonic() < until_s:
            time.sleep(POLL_S)
        self._kill(name)
        self._task(path)

    def run_on(self, node: str, command: tuple[str, ...]) -> str:
        self._check()
        if command[0] in self._answers:
            return self._answers[command[0]]
        try:
            return subprocess.run(command, check=True, capture_output=True, text=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            raise SlurmAway(f"{node}: {error}") from error

    def _check(self) -> None:
        if self.is_away:
            raise SlurmAway("slurmctld does not answer")

    def _group(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _process(self, path: Path) -> tuple[int, int]:
        known = json.loads(path.read_text())
        return known["pid"], known["start_time"]

    def _task(self, path: Path) -> Task:
        pid, start_time = self._process(path)
        node = json.loads(path.read_text())["node"]
        if proc.alive(pid, start_time):
            return Task(path.stem, node, TaskState.RUNNING)
        with contextlib.suppress(ChildProcessError):  # it is no child of a later object's process
            os.waitpid(pid, os.WNOHANG)
        self._kill(path.stem)
        return Task(path.stem, node, TaskState.ENDED)

    def _kill(self, name: str) -> None:
        """Kill every process of a job: those below its first one, which is stopped so that it
        starts none, those with the job's variable, and the first one last."""
        pid, start_time = self._process(self._folder / f"{name}.json")
        first = proc.Proc(pid, 0, start_time, zombie=False)
        proc.send_signal(first, signal.SIGSTOP)
        while found := self._others(name, first):
            for each in found:
                proc.send_signal(each, signal.SIGKILL)
            time.sleep(POLL_S)
        proc.send_signal(first, signal.SIGKILL)
        while proc.alive(pid, start_time):
            time.sleep(POLL_S)

    def _others(self, name: str, first: proc.Proc) -> list[proc.Proc]:
        """Return the living processes of a job besides its first one."""
        group, procs = f"{GROUP}={self._group(name)}".encode(), proc.snapshot()
        found = {each.pid: each for each in procs.values() if _has(each, group)}
        if proc.alive(first.pid, first.start_time):
            found |= {each.pid: each for each in proc.descendants(first.pid, procs)}
        return [each for pid, each in found.items() if pid != first.pid]


def _has(process: proc.Proc, variable: bytes) -> bool:
    try:
        environment = Path(f"/proc/{process.pid}/environ").read_bytes()
    except OSError:
        return False
    return not process.zombie and variable in environment.split(b"\0")
