"""Processes as /proc shows them, and the end of those that earlier starts left.

Does: reads parents and the marker of an attempt from /proc, sends signals safely against pid reuse,
and sweeps: SIGTERM, deadline, SIGKILL, until no process is left. A sweep finds processes by descent
from init, by the marker in their environment and by their cgroup, so it finds a double fork and a
process that cleared its environment. A marker is no proof: it counts only in a process of a user
who can have it from the attempt. Standard library only.

A process that vanishes during a read does not exist; one that is just being executed is read again.
Any other failure raises OSError.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reshape_sidecar import cgroup
from reshape_sidecar.contract import ENV_ATTEMPT, ENV_GENERATION, ENV_JOB, ENV_SOCKET

EXEC_WAIT_S = 1.0
"""Longest time that a process may take to execute a program before it counts as unmarked."""
EXEC_POLL_S = 0.001
_CPU_TIMES = slice(11, 15)
_VSIZE, _ENV_END = 20, 48
"""Indexes in /proc/PID/stat behind the name (fields 14 to 17, 23 and 51 of proc_pid_stat(5))."""
Identity = tuple[int, int]
"""Pid and start time of a process."""
_NOT_THERE = (FileNotFoundError, ProcessLookupError, PermissionError)
"""Errors of a process that is gone or another user's; others say nothing of the process."""


@dataclass(frozen=True, slots=True)
class Proc:
    """One process. ``start_time`` is in clock ticks since boot; with the pid it is unique."""

    pid: int
    parent: int
    start_time: int
    zombie: bool


@dataclass(frozen=True, slots=True)
class Marker:
    """Environment variables by which the processes of one attempt are recognized.

    ``socket`` (the path of the agent's socket) distinguishes two controllers of one machine.
    """

    job: str
    attempt: int
    socket: str

    def environment(self) -> dict[str, str]:
        """Return the variables of init and agent; a training process also has a generation."""
        return {ENV_JOB: self.job, ENV_ATTEMPT: str(self.attempt), ENV_SOCKET: self.socket}

    def uids(self) -> frozenset[int]:
        """Return the users of the attempt's processes: that of init and agent, and whose the files
        in its folder of logs are. Only init makes files there, each for the user of a program that
        it starts, so another job's user cannot be among them."""
        logs = Path(self.socket).parent.parent / "logs"
        owners = {os.geteuid()}
        try:
            with os.scandir(logs) as entries:
                owners.update(entry.stat(follow_symlinks=False).st_uid for entry in entries)
        except FileNotFoundError:
            pass
        return frozenset(owners)


@dataclass(frozen=True, slots=True)
class MarkedProcess:
    """A living process with a marker. ``generation`` is None for init and agent."""

    proc: Proc
    marker: Marker
    generation: int | None
    uid: int
    """Its real user, whatever its marker says."""


def read(pid: int) -> Proc | None:
    """Return the process ``pid``; None if there is none."""
    try:
        fields = _stat(pid)
    except _NOT_THERE:
        return None
    zombie = fields[0] in (b"Z", b"X") and not _has_threads(pid)
    return Proc(pid, int(fields[1]), int(fields[19]), zombie)


def snapshot() -> dict[int, Proc]:
    """Return every process by pid."""
    procs = (read(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {proc.pid: proc for proc in procs if proc is not None}


def alive(pid: int, start_time: int) -> bool:
    """Return whether exactly this process runs (a zombie does not)."""
    proc = read(pid)
    return proc is not None and proc.start_time == start_time and not proc.zombie


def cpu_ticks(pid: int) -> int:
    """Return the processor time of a process and of the children that it has waited for, in clock
    ticks; 0 if it is gone."""
    try:
        return sum(int(ticks) for ticks in _stat(pid)[_CPU_TIMES])
    except _NOT_THERE:
        return 0


def start_time(pid: int) -> int:
    """Return the start time of a process; 0 if it is gone."""
    proc = read(pid)
    return 0 if proc is None else proc.start_time


def command(pid: int) -> list[bytes]:
    """Return the command line of a process; empty if it is gone or another user's."""
    try:
        return _text(pid, "cmdline").split(b"\0")
    except _NOT_THERE:
        return []


def descendants(of: int, procs: Mapping[int, Proc], without: Iterable[int] = ()) -> list[Proc]:
    """Return the living processes below ``of``, except the subtrees of those in ``without``."""
    children: dict[int, list[Proc]] = {}
    for proc in procs.values():
        children.setdefault(proc.parent, []).append(proc)
    below, todo, excluded = [], [of], set(without)
    while todo:
        for proc in children.get(todo.pop(), []):
            if proc.pid not in excluded:
                todo.append(proc.pid)
                below.append(proc)
    return [proc for proc in below if not proc.zombie]


def marked_processes(procs: Mapping[int, Proc]) -> list[MarkedProcess]:
    """Return every living process that has a marker which this user may read."""
    entries = []
    for proc in procs.values():
        names = {} if proc.zombie else _names(proc.pid)
        job, attempt, socket = (names.get(name) for name in (ENV_JOB, ENV_ATTEMPT, ENV_SOCKET))
        if job is None or socket is None or attempt is None or not attempt.isdecimal():
            continue
        generation = names.get(ENV_GENERATION, "")
        number = int(generation) if generation.isdecimal() else None
        uid = _uid(proc.pid)
        if uid is not None:
            entries.append(MarkedProcess(proc, Marker(job, int(attempt), socket), number, uid))
    return entries


def marked_by(marker: Marker, procs: Mapping[int, Proc]) -> list[MarkedProcess]:
    """Return the living processes with this marker that are of the attempt's users; those of others
    have forged it. Raises OSError if the users are not known now."""
    found = [entry for entry in marked_processes(procs) if entry.marker == marker]
    uids = marker.uids() if found else frozenset()
    return [entry for entry in found if entry.uid in uids]


def send_signal(proc: Proc, signum: signal.Signals) -> bool:
    """Signal exactly this process and not a later one of the same pid; False if it is gone."""
    try:
        handle = os.pidfd_open(proc.pid)
    except ProcessLookupError:
        return False
    except OSError:
        # A kernel without pidfd: the window between the check and the signal remains.
        return _send_by_pid(proc, signum)
    try:
        if not alive(proc.pid, proc.start_time):
            return False
        signal.pidfd_send_signal(handle, signum)
        return True
    except OSError:
        return False
    finally:
        os.close(handle)


@dataclass(slots=True)
class SweepState:
    """A sweep under way. Times are seconds of the monotonic clock."""

    generation: int
    kill_at_s: float
    spare: int | None = None
    """Preparation whose successor the sweep spares."""
    signalled: set[tuple[int, int]] = field(default_factory=set)


def leftovers(
    marker: Marker,
    agent: int | None,
    waiting: Collection[Identity] = (),
    groups: Collection[Path] = (),
) -> list[Proc]:
    """Return the living processes of this container besides init and the agent.

    ``waiting``: processes that hold no device and wait for init's word; these are spared as well.
    ``groups``: cgroups whose processes belong to earlier starts.
    """
    procs = snapshot()
    me = os.getpid()
    excluded = {me} if agent is None else {me, agent}
    excluded |= {pid for pid, begin in waiting if pid in procs and procs[pid].start_time == begin}
    left = {p.pid: p for p in descendants(me, procs, without=excluded)}
    for entry in marked_by(marker, procs):
        if entry.generation is not None and entry.proc.pid not in excluded:
            left[entry.proc.pid] = entry.proc
    for group in groups:
        for pid in cgroup.pids(group):
            found = procs.get(pid)
            if found is not None and not found.zombie and pid not in excluded:
                left[pid] = found
    return [left[pid] for pid in sorted(left)]


def advance_sweep(
    sweeping: SweepState,
    marker: Marker,
    agent: int | None,
    now_s: float,
    waiting: Collection[Identity] = (),
    groups: Collection[Path] = (),
) -> bool:
    """Signal the processes that are left; True once there are none besides ``waiting``."""
    left = leftovers(marker, agent, waiting, groups)
    kill = now_s >= sweeping.kill_at_s
    for proc in left:
        key = (proc.pid, proc.start_time)
        if kill:
            send_signal(proc, signal.SIGKILL)
        elif key not in sweeping.signalled:
            sweeping.signalled.add(key)
            send_signal(proc, signal.SIGTERM)
    if kill:
        for group in groups:
            cgroup.kill(group)  # at once: what forks for ever is ahead of every list
    return not left and not any(cgroup.populated(group) for group in groups)


def _send_by_pid(proc: Proc, signum: signal.Signals) -> bool:
    if not alive(proc.pid, proc.start_time):
        return False
    try:
        os.kill(proc.pid, signum)
    except OSError:
        return False
    return True


def _has_threads(pid: int) -> bool:
    """Return whether threads run although the main one ended, which looks like a zombie."""
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except _NOT_THERE:
        return False


def _names(pid: int) -> dict[str, str]:
    try:
        entries = _environment(pid).split(b"\0")
    except _NOT_THERE:
        return {}
    ours = (entry.partition(b"=") for entry in entries if entry.startswith(b"RESHAPE_"))
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in ours}


def _uid(pid: int) -> int | None:
    """Return the real user of a process, which a set-user-ID program does not change; None if it is
    gone."""
    try:
        status = _text(pid, "status")
    except _NOT_THERE:
        return None
    line = next(each for each in status.splitlines() if each.startswith(b"Uid:"))
    return int(line.split()[1])


def _environment(pid: int) -> bytes:
    give_up_s = time.monotonic() + EXEC_WAIT_S
    text = _text(pid, "environ")
    while not text and _executes(pid) and time.monotonic() < give_up_s:
        time.sleep(EXEC_POLL_S)
    # It may have come since the first read.
    return text or _text(pid, "environ")


def _executes(pid: int) -> bool:
    """Return whether the process has its new memory, but not yet its environment in it."""
    fields = _stat(pid)
    return len(fields) > _ENV_END and fields[_VSIZE] != b"0" and fields[_ENV_END] == b"0"


def _stat(pid: int) -> list[bytes]:
    """Return the fields behind the name, which may hold parentheses and spaces."""
    text = _text(pid, "stat")
    return text[text.rindex(b")") + 2 :].split()


def _text(pid: int, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()
