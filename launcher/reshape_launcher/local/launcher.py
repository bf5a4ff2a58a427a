"""The local launcher: a container is a supervised process tree with a folder of its own.

Does: start init detached, so that neither Ctrl-C nor kill -9 of the controller touches a job; find
what runs by pid and start time; end whole process trees, by marker and by cgroup. Never: keep a
pipe to a container, take a reused pid for its own, or report an attempt gone while a process of it
is alive. State: the files below ``root``, where a new launcher finds all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from reshape_launcher.local import access, processes, start, users
from reshape_launcher.local.folders import AttemptFolders
from reshape_launcher.local.groups import Groups
from reshape_launcher.local.launch_files import LaunchFiles
from reshape_launcher.spec import (
    ContainerStatus,
    Containment,
    LaunchError,
    LaunchSpec,
    OneHost,
    RecordRefused,
    ReleaseCheck,
    check_job_id,
    one_host_only,
    worker_token,
)
from reshape_sidecar import codec, gpu, state_files
from reshape_sidecar.agent.spec import SPEC_FILE, AttemptSpec, Folder
from reshape_sidecar.init import files
from reshape_sidecar.init import processes as proc
from reshape_sidecar.init.look import init_of, processes_up_to
from reshape_sidecar.init.processes import Marker
from reshape_sidecar.init.values import (
    EXIT_FILE,
    INIT_FILE,
    LOCK_FILE,
    SOCKET_NAME,
    End,
    ExitFile,
)
from reshape_sidecar.state_files import Torn

POLL_S = 0.01
REMOVE_MARGIN_S = 5.0
"""Time for init beyond the grace period. Then: SIGKILL to everything."""
READERS_MAX = 2
WRITERS_MAX = 32
"""Launches and removals at once. They may wait for a whole grace period, so that reads have threads
of their own: a late check of a release costs GPU time."""
WORKER_PREFIX = "worker-"
HOME = "home"
"""Folder of a job whose user has no account, and so no home."""
T = TypeVar("T")


class LocalLauncher:
    """Containers below ``root``: ``ROOT/JOB/attempt-N/`` with spec.json, token, run/ and logs/.

    Each worker but the first has the same in ``worker-K/`` below that. If one worker ends, all end.

    ``environment`` is the initial environment of a container; default: this process's own, without
    RESHAPE_*. ``home``: the daemon's folder around ``root``, through which the users of jobs pass.
    ``host``: its name among several hosts of this machine (``hosts.LocalHosts``), and ``roots``
    those of all, the first of which has the jobs' own folders.
    """

    def __init__(
        self,
        root: Path,
        environment: Mapping[str, str] | None = None,
        home: Path | None = None,
        host: str = "",
        roots: tuple[Path, ...] = (),
    ) -> None:
        self._root, self._home = root.absolute(), home
        self._host = host
        self._roots = tuple(each.absolute() for each in roots) or (self._root,)
        base = os.environ if environment is None else environment
        self.environment = {
            name: value for name, value in base.items() if not name.startswith("RESHAPE_")
        }
        self._children: set[int] = set()
        """Inits that this process started and has to reap."""
        self._launching = threading.Lock()
        self._gone: dict[tuple[str, int], ContainerStatus] = {}
        """Attempts without a living process, which is final."""
        self._ending: set[tuple[str, int]] = set()
        """Attempts under removal; their workers end one after another."""
        self._folders = AttemptFolders(self._root)
        self._launch_files = LaunchFiles()
        self._groups = Groups(self._root)
        self._root_is_open = False
        """Whether users of jobs may pass through the root."""
        self._readers = ThreadPoolExecutor(READERS_MAX, "launcher-look")
        self._writers = ThreadPoolExecutor(WRITERS_MAX, "launcher-change")

    def refusals(self, spec: LaunchSpec) -> tuple[RecordRefused, ...]:
        """Return the folders that are none of this machine, and why the job's user cannot run it
        here. What a record names may exist later."""
        places = {"code": spec.code, "dataset": spec.dataset, "checkpoints": spec.checkpoints}
        odd = ((name, place) for name, place in places.items() if place and place[0] != "/")
        folders = tuple(_no_folder(name, place) for name, place in odd)
        return (*folders, *self._no_user(spec))

    def _no_user(self, spec: LaunchSpec) -> tuple[RecordRefused, ...]:
        problem = self._other_user(spec) and users.problem()
        if not problem:
            return ()
        what = f"its processes would have uid {spec.uid}, and {problem}"
        return (RecordRefused("user", what, users.REMEDY),)

    def no_gang(self) -> RecordRefused | None:
        """Return that there is one host."""
        what = "it asks for workers on several hosts, and this machine plays one (--hosts: more)"
        return one_host_only(what)

    async def launch(self, spec: LaunchSpec, token: str) -> None:
        """Start the container of ``spec``; if it runs, write torn files of its launch again.

        Raises LaunchError.
        """
        check_job_id(spec.job)
        await _in_pool(self._writers, self._launch, spec, token)

    async def one_host(self, spec: LaunchSpec) -> OneHost | None:
        """Return None: this launcher has one host."""
        return None

    async def remove(
        self, job: str, attempt: int, grace_s: float, hosts: tuple[str, ...] = ()
    ) -> None:
        """End the container: training may save for ``grace_s`` seconds, then KILL. Waits for it.

        Raises LaunchError if a process cannot be ended.
        """
        await _in_pool(self._writers, self._remove, job, attempt, grace_s)

    async def containers(self) -> tuple[ContainerStatus, ...]:
        """Return the status of every attempt that was started here.

        Kills the processes that a dead init left before it reports the attempt gone. Raises OSError
        if the attempts cannot be listed.
        """
        return await _in_pool(self._readers, self._containers)

    async def check_release(
        self, job: str, attempt: int, generation: int, devices: tuple[str, ...], host: str = ""
    ) -> ReleaseCheck:
        """Check that nothing of ``attempt`` up to ``generation`` is alive or holds GPU memory.

        Raises OSError while that cannot be found out.
        """
        return await _in_pool(self._readers, self._check_release, job, attempt, generation, devices)

    def containment(self) -> Containment:
        """Return what holds the processes of attempts that start now.

        Blocks for one short process at first.
        """
        return self._groups.containment()

    def log_path(self, job: str, attempt: int) -> str | None:
        """Return the folder of training.log and the SideCar's logs; None if it does not exist."""
        logs = self._folder(job, attempt).logs
        return str(logs) if logs.is_dir() else None

    def exists(self, job: str, attempt: int) -> bool:
        """Return whether something of the attempt was started here."""
        try:
            return self._folders.started(job, attempt)
        except NotADirectoryError:
            return False

    def has_first_worker(self, job: str, attempt: int) -> bool:
        """Return whether the attempt's first worker is here; true too if its spec is torn."""
        spec = state_files.read(AttemptSpec, self._folder(job, attempt).path / SPEC_FILE)
        return isinstance(spec, Torn) or (isinstance(spec, AttemptSpec) and spec.worker == 0)

    async def unseen(self, why: str) -> tuple[ContainerStatus, ...]:
        """Return what was started here as if its end could not be seen: it runs, unless its end was
        seen before, or its init has left the exit sentinel."""
        return await _in_pool(self._readers, self._unseen, why)

    def _launch(self, spec: LaunchSpec, token: str) -> None:
        with self._launching:
            # The first worker starts last: an attempt exists once all of its workers do.
            for worker in reversed(spec.workers_on(self._host)):
                own = spec.for_worker(worker)
                self._launch_once(own, worker_token(token, worker))

    def _launch_once(self, spec: LaunchSpec, token: str) -> None:
        first = spec.workers_on(self._host)[0]
        beside = spec.worker if spec.worker != first else 0
        marker = self._marker(spec.job, spec.attempt, beside)
        folder = folder_of(marker)
        if (folder.run / INIT_FILE).exists() or _lives_unnamed(folder):
            self._mend(folder, spec, token)
            return  # it runs or has ended: ``containers`` reports which
        for refusal in self._no_user(spec):  # its folders were accepted
            raise refusal
        try:
            self._make_folders(spec)
            account = self._account(spec) if self._other_user(spec) else None
            environment = self.environment | marker.environment()
            environment |= account.environment if account is not None else {}
            user = account.user if account is not None else None
            pid = start.start(folder, spec, token, environment, self._groups, user)
            self._children.add(pid)
            start.wait_until_up(folder, pid)
        except start.NotStarted as error:
            for started in (marker, *self._markers(spec.job, spec.attempt)):
                processes.kill(started)
                self._groups.end(folder_of(started), processes.KILL_WAIT_S)
            self._reap()
            raise LaunchError(
                f"attempt {spec.attempt} of {spec.job} cannot be started: {error}", retryable=True
            ) from error

    def _mend(self, folder: Folder, spec: LaunchSpec, token: str) -> None:
        """Write the torn files of a living attempt again, for the next start of its agent."""
        if not self._launch_files.torn(folder) or init_of(folder.run) is None:
            return
        try:
            start.write_files(folder, spec, token)
        except OSError as error:
            what = f"{folder.path}: {error.strerror}"
            raise LaunchError(what, retryable=True) from error

    def _keep_open(self) -> None:
        """Open the root once more after a restart: jobs of users go on, and systemd, for one, sets
        the mode of the daemon's home at each start."""
        if not self._root_is_open and access.is_open(self._root):
            access.open_roots(self._roots, self._home)
            self._root_is_open = True

    def _other_user(self, spec: LaunchSpec) -> bool:
        return spec.uid is not None and spec.uid != os.geteuid()

    def _account(self, spec: LaunchSpec) -> users.Account:
        """Return the account of a job's user, with a way to its folders. Raises NotStarted."""
        assert spec.uid is not None
        own = self._own_folder(spec.job)
        account = users.account_of(spec.uid, own / HOME)
        try:
            if not self._root_is_open:
                access.open_roots(self._roots, self._home)
                self._root_is_open = True
            attempt = self._folder(spec.job, spec.attempt).path
            for folder in dict.fromkeys((own, attempt.parent, attempt)):
                access.let_pass(folder, account.user)
            for path in (Path(spec.code), spec.checkpoint_folder, Path(account.home)):
                access.give(path, own, account.user)
        except OSError as error:
            what = f"{error.filename} cannot be given to uid {spec.uid}: {error.strerror}"
            raise start.NotStarted(what) from None
        return account

    def _make_folders(self, spec: LaunchSpec) -> None:
        """Create the attempt's folder, and an empty one for a record that names no code.

        A folder of code that the record names has to exist.
        """
        own = self._own_folder(spec.job)
        folders = [self._folder(spec.job, spec.attempt).path, own]
        if Path(spec.code).is_relative_to(own) and not self._other_user(spec):
            folders.append(Path(spec.code))
        for folder in folders:
            try:
                access.make_private(folder, *self._roots)
            except OSError as error:
                what = f"{folder}: {error.strerror}; make it writable and free space there"
                raise start.NotStarted(what) from None

    # --- what runs

    def _containers(self) -> tuple[ContainerStatus, ...]:
        self._reap()
        self._keep_open()
        found = []
        dead: list[tuple[Marker, list[Marker]]] = []
        """The first worker without an init of each attempt that has one, and all of its workers."""
        for job, number in self._folders.attempts(self._gone):
            known = self._gone.get((job, number))
            if known is not None:
                found.append(known)
                continue
            workers = self._markers(job, number)
            over = [m for m in workers if init_of(folder_of(m).run) is None]
            ends = (job, number) in self._ending and len(over) < len(workers)
            if over and not ends:
                dead.append((over[0], workers))
            else:
                reasons = (self._launch_files.torn(folder_of(marker)) for marker in workers)
                torn = next(filter(None, reasons), "")
                found.append(ContainerStatus(job, number, running=True, torn=torn))
        left = processes.living([m for _, workers in dead for m in workers]) if dead else {}
        for first, workers in dead:
            found.append(self._dead(first, workers, [m for m in workers if left[m]]))
        return tuple(sorted(found, key=lambda status: (status.job, status.attempt)))

    def _unseen(self, why: str) -> tuple[ContainerStatus, ...]:
        found = []
        for job, number in self._folders.attempts(self._gone):
            known = self._gone.get((job, number))
            over = (self._folder(job, number).run / EXIT_FILE).exists()
            found.append(known or ContainerStatus(job, number, not over, reason=why))
        return tuple(found)

    def _dead(self, first: Marker, workers: list[Marker], alive: list[Marker]) -> ContainerStatus:
        """Kill what is left of an attempt without an init; return its status.

        ``alive``: its workers that have living processes with their marker.
        """
        job, number = first.job, first.attempt
        left = self._kill(alive, workers)
        if left:
            reason = f"its init process is gone; {left} do not end"
            return ContainerStatus(job, number, running=True, reason=reason)
        end = state_files.read(ExitFile, folder_of(first).run / EXIT_FILE)
        if isinstance(end, ExitFile):
            status = ContainerStatus(job, number, False, end.exit_code, end.reason)
        else:
            reason = "its init process was killed or the machine restarted; no process is left"
            status = ContainerStatus(job, number, False, None, reason)
        self._gone[job, number] = status
        for marker in workers:
            self._launch_files.forget(folder_of(marker))
        return status

    def _check_release(
        self, job: str, number: int, generation: int, devices: tuple[str, ...]
    ) -> ReleaseCheck:
        for marker in self._markers(job, number):
            left = processes_up_to(marker, generation, folder_of(marker).run)
            if left:
                pids = ", ".join(map(str, left))
                return ReleaseCheck(False, f"processes {pids} of {job} are still alive")
            folder = folder_of(marker)
            # Once init is gone nothing in the group may live, whatever it was started for.
            busy = self._groups.busy(folder, generation if init_of(folder.run) else None)
            if busy:
                return ReleaseCheck(False, f"{busy} of {job}, still alive")
        for reading in gpu.use(devices):
            if reading.memory_used_bytes > gpu.FREE_MEMORY_BYTES:
                used_mib = reading.memory_used_bytes >> 20
                return ReleaseCheck(False, f"GPU {reading.uuid} still has {used_mib} MiB in use")
        for uuid, why in gpu.unreadable(devices):
            return ReleaseCheck(False, f"GPU {uuid} cannot be read: {why}")
        return ReleaseCheck(True)

    # --- remove

    def _remove(self, job: str, number: int, grace_s: float) -> None:
        self._ending.add((job, number))
        try:
            # The first worker ends first: only that worker may have something to save.
            workers = self._markers(job, number)
            left = "; ".join(filter(None, [self._end(marker, grace_s) for marker in workers]))
        finally:
            self._ending.discard((job, number))
        self._reap()
        if left:
            raise LaunchError(f"{left} of {job} do not end", retryable=True)

    def _end(self, marker: Marker, grace_s: float) -> str:
        """End a worker; return what remains, in words."""
        folder = folder_of(marker)
        init = init_of(folder.run)
        if init is not None:
            self._ask_to_end(folder, init.pid, init.start_time, grace_s)
            give_up_s = time.monotonic() + grace_s + REMOVE_MARGIN_S
            while proc.alive(init.pid, init.start_time) and time.monotonic() < give_up_s:
                time.sleep(POLL_S)
        elif grace_s > 0:
            processes.end(marker, grace_s + REMOVE_MARGIN_S)
        return self._kill([marker], [marker])

    def _kill(self, alive: list[Marker], workers: list[Marker]) -> str:
        """Kill workers by the marker of those ``alive``, then by group; return what remains."""
        left = [str(entry.proc.pid) for marker in alive for entry in processes.kill(marker)]
        found = [f"processes {', '.join(left)}"] if left else []
        for folder in map(folder_of, workers):
            if not self._groups.end(folder, processes.KILL_WAIT_S):
                found.append(self._groups.busy(folder, None))
        return "; ".join(found)

    def _ask_to_end(self, folder: Folder, pid: int, start_time: int, grace_s: float) -> None:
        """Request the end by the socket, with the grace period; by SIGTERM if that fails."""
        try:
            with files.connect(folder.run / SOCKET_NAME, REMOVE_MARGIN_S) as client:
                client.sendall(codec.dumps(End(grace_s)).encode() + b"\n")
                client.recv(1)
        except OSError:
            init = proc.Proc(pid, 0, start_time, zombie=False)
            proc.send_signal(init, signal.SIGTERM)

    # --- folders and children

    def _own_folder(self, job: str) -> Path:
        """Return the folder of a job's own files, which is the same on all hosts."""
        return self._roots[0] / job

    def _folder(self, job: str, number: int) -> Folder:
        return Folder(self._root / job / f"attempt-{number}")

    def _marker(self, job: str, number: int, worker: int = 0) -> Marker:
        path = self._folder(job, number).path
        own = Folder(path / f"{WORKER_PREFIX}{worker}" if worker else path)
        return Marker(job, number, str(own.socket))

    def _markers(self, job: str, number: int) -> list[Marker]:
        """Return the markers of all workers of an attempt, in their order."""
        try:
            names = os.listdir(self._folder(job, number).path)
        except (FileNotFoundError, NotADirectoryError):
            names = []
        others = [name.removeprefix(WORKER_PREFIX) for name in names if WORKER_PREFIX in name]
        numbers = sorted(int(text) for text in others if text.isdecimal())
        return [self._marker(job, number, worker) for worker in (0, *numbers)]

    def _reap(self) -> None:
        for pid in tuple(self._children):
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            self._children.discard(pid)


def _no_folder(field: str, place: str) -> RecordRefused:
    if place.startswith("claim:"):
        what, remedy = "is a volume claim, and jobs are processes here", "give a folder: /a/path"
    else:
        what, remedy = "is no absolute path", f"write /a/path; in a record's file: ./{place}"
    return RecordRefused(field, f"{place!r:.200} {what}", remedy)


def folder_of(marker: Marker) -> Folder:
    """Return the folder of the worker with this marker."""
    return Folder(Path(marker.socket).parent.parent)


def _lives_unnamed(folder: Folder) -> bool:
    """Return whether an init lives whose file is gone."""
    return (folder.run / LOCK_FILE).exists() and init_of(folder.run) is not None


async def _in_pool(pool: ThreadPoolExecutor, work: Callable[..., T], *arguments: object) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, work, *arguments)
