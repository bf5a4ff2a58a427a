"""A Job Launcher for Slurm: the skeleton of docs/another-orchestrator.md.

Does: run each worker of an attempt as a Slurm job on one node, whose program is init with a SideCar
and no training. ``Slurm`` names the calls that it needs, with their commands; ``fake_slurm.py``
answers them with processes of this machine, and passes the contract of launchers. Never: rely on a
memory of its own. A new controller finds all attempts in Slurm and in the shared folder.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from reshape_launcher.local import start
from reshape_launcher.spec import (
    ClusterUnseen,
    ContainerStatus,
    LaunchError,
    LaunchSpec,
    OneHost,
    RecordRefused,
    ReleaseCheck,
    check_job_id,
    one_host_only,
    worker_token,
)
from reshape_sidecar import agent as agent_package
from reshape_sidecar import gpu, state_files
from reshape_sidecar import init as init_package
from reshape_sidecar.agent.spec import Folder
from reshape_sidecar.init.processes import Marker
from reshape_sidecar.init.values import EXIT_FILE, ExitFile

PREFIX = "reshape."
MEMORY = ("nvidia-smi", "--query-gpu=uuid,memory.used", "--format=csv,noheader,nounits")
SHUT_OUT = "RESHAPE_"
"""Prefix of the controller's own variables, which no job gets."""


class SlurmAway(Exception):
    """Slurm does not answer; the text says what failed."""


class TaskState(StrEnum):
    """State of a Slurm job, as far as a launcher has to tell it."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Task:
    """A Slurm job, which is one worker of an attempt. ``exit_code``: None until it has ended."""

    name: str
    node: str
    state: TaskState
    exit_code: int | None = None


class Slurm(Protocol):
    """The calls of Slurm that a launcher needs. All block, and raise SlurmAway."""

    def submit(
        self, name: str, node: str, command: list[str], env: Mapping[str, str], output: Path
    ) -> None:
        """Queue a job: ``sbatch --job-name --nodelist --dependency=singleton --export --output``.

        ``singleton`` lets a second one of the same name wait until the first has ended.
        """

    def tasks(self) -> tuple[Task, ...]:
        """Return all jobs of this user, ended ones too: ``squeue``, and ``sacct`` for the ended."""

    def end(self, name: str, grace_s: float) -> None:
        """End a job with every process: ``scancel --signal=TERM --full``, ``scancel`` after
        ``grace_s`` seconds; wait until it has ended. A job that is not there is no error."""

    def run_on(self, node: str, command: tuple[str, ...]) -> str:
        """Run a command on a node, outside of every job's allocation, and return its output:
        ``srun --overlap --nodelist`` in an allocation that the controller holds on each node."""


class SlurmLauncher:
    """``Launcher`` whose attempts have their files below ``root``, a folder of all nodes.

    ``reads_memory``: a release also needs empty GPU memory; False with simulated GPUs.
    """

    def __init__(self, root: Path, slurm: Slurm, *, reads_memory: bool = True) -> None:
        self._root, self._slurm, self._reads_memory = root.absolute(), slurm, reads_memory
        self._launching = threading.Lock()
        self._ending: set[tuple[str, int]] = set()
        """Attempts under removal, whose workers end one after another."""

    def refusals(self, spec: LaunchSpec) -> tuple[RecordRefused, ...]:
        """Return why no attempt of the job can be launched: this skeleton runs no images."""
        if spec.image is None:
            return ()
        remedy = "leave it out, and install its packages on the nodes"
        return (RecordRefused("image", f"{spec.image}: Slurm runs programs here", remedy),)

    def no_gang(self) -> RecordRefused | None:
        """Return that this skeleton queues all workers of an attempt on one node."""
        return one_host_only("it asks for workers on several nodes, and they are queued on one")

    async def launch(self, spec: LaunchSpec, token: str) -> None:
        """Queue a job for each worker that has none. Raises LaunchError."""
        check_job_id(spec.job)
        for refusal in self.refusals(spec):
            raise refusal
        try:
            await asyncio.to_thread(self._launch, spec, token)
        except (OSError, SlurmAway) as error:
            raise LaunchError(f"attempt {spec.attempt}: {error}", retryable=True) from error

    async def one_host(self, spec: LaunchSpec) -> OneHost | None:
        """Return None: all nodes reach the same files."""
        return None

    async def remove(
        self, job: str, attempt: int, grace_s: float, hosts: tuple[str, ...] = ()
    ) -> None:
        """End the workers, the first one first: it may have something to save."""
        self._ending.add((job, attempt))
        try:
            for task in sorted(await self._tasks_of(job, attempt), key=lambda task: task.name):
                await asyncio.to_thread(self._slurm.end, task.name, grace_s)
        except (OSError, SlurmAway) as error:
            raise LaunchError(f"{job} does not end: {error}", retryable=True) from error
        finally:
            self._ending.discard((job, attempt))

    async def containers(self) -> tuple[ContainerStatus, ...]:
        """Return the status of every attempt. If one worker has ended, the others end."""
        attempts: dict[tuple[str, int], list[Task]] = {}
        for task in await self._tasks():
            job, attempt, _ = parts_of(task.name)
            attempts.setdefault((job, attempt), []).append(task)
        return tuple([await self._status(*key, tasks) for key, tasks in sorted(attempts.items())])

    async def check_release(
        self, job: str, attempt: int, generation: int, devices: tuple[str, ...], host: str = ""
    ) -> ReleaseCheck:
        """Look at the processes on each worker's node, then at the memory of ``devices``.

        Slurm reports a job as ended once its processes are gone (``proctrack/cgroup``).
        """
        tasks = await self._tasks_of(job, attempt)
        for task in tasks:
            if task.state is TaskState.RUNNING:
                pids = await self._living(task, generation)
                if pids:
                    return ReleaseCheck(False, f"processes {pids} of {job} are still alive")
        for node in {task.node for task in tasks} if self._reads_memory else ():
            busy = _busy(await self._run_on(node, MEMORY), devices)
            if busy:
                return ReleaseCheck(False, busy)
        return ReleaseCheck(True)

    def log_path(self, job: str, attempt: int) -> str | None:
        """Return the folder of the first worker's logs; None if it does not exist."""
        logs = self._folder(job, attempt, 0).logs
        return str(logs) if logs.is_dir() else None

    def _launch(self, spec: LaunchSpec, token: str) -> None:
        with self._launching:
            known = {task.name for task in self._slurm.tasks()}
            # The first worker starts last: an attempt exists once all of its workers do.
            for worker in reversed(range(spec.workers)):
                name = f"{PREFIX}{spec.job}.{spec.attempt}.{worker}"
                if name not in known:
                    self._submit(name, replace(spec, worker=worker), worker_token(token, worker))

    def _submit(self, name: str, spec: LaunchSpec, token: str) -> None:
        folder = self._folder(spec.job, spec.attempt, spec.worker)
        for path in (folder.path, folder.run, folder.logs, Path(spec.code)):
            path.mkdir(parents=True, exist_ok=True, mode=start.FOLDER_MODE)
        start.write_files(folder, spec, token)
        command = [
            *(sys.executable, "-I", "-S", _main(init_package.__file__)),
            *("--folder", str(folder.path), "--job", spec.job, "--attempt", str(spec.attempt)),
            *("--grace-s", str(spec.save_s)),
            *("--", sys.executable, "-I", _main(agent_package.__file__)),
            *("--folder", str(folder.path)),
        ]
        env = {name: text for name, text in os.environ.items() if not name.startswith(SHUT_OUT)}
        env |= Marker(spec.job, spec.attempt, str(folder.socket)).environment()
        self._slurm.submit(name, spec.host, command, env, folder.logs / "init.log")

    async def _status(self, job: str, attempt: int, tasks: list[Task]) -> ContainerStatus:
        node, alive = tasks[0].node, [task for task in tasks if task.state is not TaskState.ENDED]
        if len(alive) == len(tasks) or (alive and (job, attempt) in self._ending):
            return ContainerStatus(job, attempt, True, host=node)
        for task in alive:
            await asyncio.to_thread(self._slurm.end, task.name, 0.0)
        over = min(task.name for task in tasks if task not in alive)
        end = state_files.read(ExitFile, self._folder(*parts_of(over)).run / EXIT_FILE)
        if isinstance(end, ExitFile):
            return ContainerStatus(job, attempt, False, end.exit_code, end.reason, node)
        return ContainerStatus(job, attempt, False, None, "Slurm ended it", node)

    async def _living(self, task: Task, generation: int) -> str:
        """Return the pids of training of a worker up to ``generation``, on its node."""
        job, attempt, worker = parts_of(task.name)
        look = Path(_main(init_package.__file__)).with_name("look.py")
        words = ("--job", job, "--attempt", str(attempt), "--generation", str(generation))
        folder = str(self._folder(job, attempt, worker).path)
        program = (sys.executable, "-I", "-S", str(look), "--folder", folder)
        answer = await self._run_on(task.node, (*program, *words))
        try:
            return ", ".join(str(int(pid)) for pid in json.loads(answer)["pids"])
        except (ValueError, KeyError, TypeError):
            raise ClusterUnseen(f"{task.node} answers {answer[:100]!r}") from None

    async def _run_on(self, node: str, command: tuple[str, ...]) -> str:
        try:
            return await asyncio.to_thread(self._slurm.run_on, node, command)
        except SlurmAway as error:
            raise ClusterUnseen(str(error)) from error

    async def _tasks(self) -> tuple[Task, ...]:
        try:
            found = await asyncio.to_thread(self._slurm.tasks)
        except SlurmAway as error:
            raise ClusterUnseen(str(error)) from error
        return tuple(task for task in found if task.name.startswith(PREFIX))

    async def _tasks_of(self, job: str, attempt: int) -> list[Task]:
        own = (job, attempt)
        return [task for task in await self._tasks() if parts_of(task.name)[:2] == own]

    def _folder(self, job: str, attempt: int, worker: int) -> Folder:
        path = self._root / job / f"attempt-{attempt}"
        return Folder(path / f"worker-{worker}" if worker else path)


def parts_of(name: str) -> tuple[str, int, int]:
    """Return job, attempt and worker of a Slurm job's name. A job's id may have dots."""
    job, attempt, worker = name.removeprefix(PREFIX).rsplit(".", 2)
    return job, int(attempt), int(worker)


def _busy(answer: str, devices: tuple[str, ...]) -> str:
    """Return which of the devices has memory in use, or cannot be read; empty if none."""
    lines = [line.partition(",") for line in answer.splitlines()]
    used_mib = {uuid.strip(): used.strip() for uuid, _, used in lines}
    for device in devices:
        text = used_mib.get(device, "")
        if not text.isdecimal():
            return f"GPU {device} cannot be read"
        if int(text) << 20 > gpu.FREE_MEMORY_BYTES:
            return f"GPU {device} still has {text} MiB in use"
    return ""


def _main(package_file: str | None) -> str:
    """Return the path of a package's ``__main__.py``, which every node has at the same place."""
    assert package_file is not None
    return str(Path(package_file).resolve().with_name("__main__.py"))
