"""The values of a launch and the protocol of every launcher, which the contract suite tests.

A launcher is idempotent: to launch what runs, or to remove what is gone, is no error, because the
controller repeats effects after its restart.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Protocol

from reshape_sidecar.agent.spec import AttemptSpec, DeviceMode

__all__ = [
    "SIMULATED_PREFIX",
    "SIMULATED_TYPE",
    "ClusterAway",
    "ContainerStatus",
    "Containment",
    "DeviceMode",
    "Hold",
    "HostSeen",
    "HostShare",
    "HostSource",
    "LaunchError",
    "LaunchSpec",
    "Launcher",
    "OneHost",
    "RecordRefused",
    "ReleaseCheck",
    "check_job_id",
    "one_host_only",
    "worker_token",
]

SIMULATED_PREFIX = "sim-"
"""Prefix of the ids of simulated GPUs."""
SIMULATED_TYPE = "simulated"
"""Type of simulated GPUs, unless the operator names one."""
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")


@dataclass(frozen=True, slots=True)
class HostShare:
    """The workers of an attempt on one of its hosts, which have consecutive numbers."""

    host: str
    workers: int
    devices: tuple[str, ...] = ()
    """All devices that their containers may ever get on the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec(AttemptSpec):
    """An attempt of a job as a launcher needs it: the SideCar's spec, and the host.

    ``host_devices`` are all devices that this container may ever get on the host. The launcher sets
    ``python`` and ``worker`` (``for_worker``). ``image``, ``cpus`` and ``memory_bytes`` come from
    the record; None: the launcher's default. ``save_s``: time for training to save if the container
    ends without the controller.
    """

    host: str
    image: str | None = None
    cpus: float | None = None
    memory_bytes: int | None = None
    shared_memory_bytes: int | None = None
    """Size of ``/dev/shm``; None: half of the memory limit."""
    save_s: float = 120.0
    uid: int | None = None
    """User that a local job runs as; None: that of the launcher."""
    user: str = ""
    """The job's owner; it stays with the launcher."""
    shares: tuple[HostShare, ...] = ()
    """The workers by host, in their order, if they are on several (a gang). Empty: all are on
    ``host``, which is the first worker's host in any case."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of the attempt, each once."""
        return tuple([share.host for share in self.shares]) or (self.host,)

    def workers_on(self, host: str) -> tuple[int, ...]:
        """Return the numbers of the workers on a host, which is one of ``hosts``."""
        if not self.shares:
            return tuple(range(self.workers))
        first = 0
        for share in self.shares:
            if share.host == host:
                return tuple(range(first, first + share.workers))
            first += share.workers
        return ()

    def for_worker(self, worker: int) -> LaunchSpec:
        """Return the spec of one worker, with its host and the devices of that host."""
        for share in self.shares:
            if worker in self.workers_on(share.host):
                return replace(self, worker=worker, host=share.host, host_devices=share.devices)
        return replace(self, worker=worker)

    def sidecar_spec(self, **changes: Any) -> AttemptSpec:
        """Return the SideCar's part with the launcher's changes."""
        own = {field.name: getattr(self, field.name) for field in fields(AttemptSpec)}
        return AttemptSpec(**own | changes)


@dataclass(frozen=True, slots=True)
class ContainerStatus:
    """The status of an attempt; of a gang, that of its containers on one host, which all end if one
    of them ends. ``running`` follows from pid and start time."""

    job: str
    attempt: int
    running: bool
    exit_code: int | None = None
    reason: str = ""
    host: str | None = None
    """Its host; None: the only host of this launcher, or not known yet. Always set for a gang."""
    lasting: bool = False
    """True if it never started, and another attempt would not start either."""
    suspended: str = ""
    """Why no process of it exists and none starts, if another controller of the cluster suspends
    it. It counts as running."""
    torn: str = ""
    """The file of its launch that is cut, empty or gone, if it runs: ``launch`` writes it again."""
    unscheduled: bool = False
    """True if it ended because the cluster had no room for it: it never started."""


@dataclass(frozen=True, slots=True)
class HostSeen:
    """A host as the launcher sees it. ``boot`` changes when the machine restarts."""

    name: str
    gpu_type: str
    gpus: tuple[str, ...]
    """GPUs that jobs may use; empty: the host has none, or they are not known now."""
    ready: bool = True
    schedulable: bool = True
    boot: str = ""
    shown: tuple[str, ...] | None = None
    """All GPUs of the host, also those in use by others; None: not known now."""
    closed: str = ""
    """Why no container may be started there now; empty if it may."""


@dataclass(frozen=True, slots=True)
class OneHost:
    """The only host that reaches an attempt's files, and the reason in words."""

    host: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReleaseCheck:
    """Whether GPUs are free of an attempt's processes up to a generation."""

    empty: bool
    reason: str = ""


class Hold(StrEnum):
    """What holds the processes of an attempt, so that its end and a release can be verified."""

    CGROUP = "cgroup"
    SAME_USER = "cgroup (same user)"
    """A program that runs as the controller's user can move itself to another group on purpose."""
    MARKER = "marker"
    """Their environment: a process that leaves init's tree and clears it is not found."""
    CONTAINER = "container"


@dataclass(frozen=True, slots=True)
class Containment:
    """What holds attempts that start now, and why not more than that."""

    hold: Hold
    reason: str = ""
    remedy: str = ""


def worker_token(token: str, worker: int) -> str:
    """Return a worker's token, derived from its attempt's, which is the first worker's token."""
    if worker == 0:
        return token
    return hmac.new(token.encode(), f"worker {worker}".encode(), hashlib.sha256).hexdigest()


class LaunchError(Exception):
    """A container could not be launched. ``retryable``: the same call may succeed later."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


def check_job_id(job: str) -> None:
    """Check that the id can be a part of the names of folders and objects. Raises LaunchError."""
    if not _JOB_ID.match(job):
        raise LaunchError(f"job id {job!r} is not a valid folder name")


class ClusterAway(LaunchError):
    """The cluster cannot be reached now, which is no failure of the job."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=True)


class ClusterUnseen(OSError):
    """The cluster does not tell which containers exist, so nothing is known of any of them."""


class RecordRefused(LaunchError):
    """A field of a job's record requires what this launcher does not support."""

    def __init__(self, field: str, what: str, remedy: str) -> None:
        super().__init__(f"{field}: {what}; {remedy}")
        self.field, self.what, self.remedy = field, what, remedy


def one_host_only(what: str) -> RecordRefused:
    """Return the refusal of ``span`` by a launcher that places no gang."""
    return RecordRefused("span", what, "leave span out, or write never")


class Launcher(Protocol):
    """Starts, lists and ends containers. All methods are idempotent and safe to repeat."""

    def refusals(self, spec: LaunchSpec) -> tuple[RecordRefused, ...]:
        """Return why no attempt of this job can be launched on any host, without a call."""

    def no_gang(self) -> RecordRefused | None:
        """Return why no attempt can be on several hosts, as a refusal of ``span``; None if one can.

        If none can, ``shares`` of a launch and ``hosts`` of a removal are always empty.
        """

    async def launch(self, spec: LaunchSpec, token: str) -> None:
        """Start the container of ``spec`` with its SideCar; no training process yet.

        Of a gang: a container for each worker on its own host, or none that stays if one cannot be
        started. If it runs, only the files of its launch that are torn are written again.
        Returns when the container exists, not when it is initialised. Raises LaunchError.
        """

    async def one_host(self, spec: LaunchSpec) -> OneHost | None:
        """Return the only host that reaches this job's files after this launch; None: every host,
        or at least all that the launch names.

        Raises OSError while that cannot be found out.
        """

    async def remove(
        self, job: str, attempt: int, grace_s: float, hosts: tuple[str, ...] = ()
    ) -> None:
        """End the container with every process in it: TERM, ``grace_s``, KILL. Waits for it.

        ``hosts``: the hosts of a gang on which its containers end, because others of its hosts do
        not answer; empty: all, and the first worker's first, which may have something to save.
        """

    async def containers(self) -> tuple[ContainerStatus, ...]:
        """Return every container of this launcher that exists or has left its exit sentinel.

        A gang has a status for each of its hosts. One that ends leaves the others as they are: the
        controller then removes the attempt. What was on a host that does not answer counts as
        running.
        """

    async def check_release(
        self, job: str, attempt: int, generation: int, devices: tuple[str, ...], host: str = ""
    ) -> ReleaseCheck:
        """Check that no process of ``attempt`` of a generation <= ``generation`` is alive on
        ``host``, which has all of ``devices``: other hosts of a gang say nothing about these.
        Empty: on any host.

        On real GPUs also check that the used memory of each of ``devices`` is below the floor.
        Raises ClusterUnseen while the cluster does not tell its containers; else OSError.
        """

    def log_path(self, job: str, attempt: int) -> str | None:
        """Return the folder of the attempt's log files; None if this machine cannot read it."""


class HostSource(Protocol):
    """A launcher that discovers its hosts."""

    async def hosts(self) -> tuple[HostSeen, ...]:
        """Return every host with its GPUs. Raises OSError while they cannot be listed."""

    async def release(self, host: str) -> bool:
        """Let another controller use a host on which nothing of this one runs; return whether it
        is released. Raises OSError."""
