"""What a Job Launcher is asked to launch, and what every launcher can do.

Does: the launch values and the ``Launcher`` protocol that the contract suite tests. Never: starts
anything. State: none. A launcher is idempotent: launching what runs, or removing what is gone,
is no error, because effects are repeated after a restart of the controller.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass, fields
from typing import Any, Protocol

from reshape_sidecar.agent.spec import AttemptSpec, DeviceMode

__all__ = [
    "SIMULATED_PREFIX",
    "SIMULATED_TYPE",
    "ClusterAway",
    "ContainerStatus",
    "DeviceMode",
    "HostSeen",
    "HostSource",
    "LaunchError",
    "LaunchSpec",
    "Launcher",
    "OneHost",
    "RecordRefused",
    "ReleaseCheck",
    "check_job_id",
    "worker_token",
]

SIMULATED_PREFIX = "sim-"
"""The ids of simulated GPUs begin with it."""
SIMULATED_TYPE = "simulated"
"""Their type, unless the operator names one."""
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec(AttemptSpec):
    """What a launcher needs to know of one attempt of a job: all that its SideCar is told, and the
    host. ``host_devices`` is the widest set that this container may ever be given there;
    ``python`` and ``worker`` are the launcher's to say. ``image``, ``cpus`` and ``memory_bytes``
    are the record's; None: the launcher's default. ``save_s``: how long training may save when
    somebody else than the controller ends the container.
    """

    host: str
    image: str | None = None
    cpus: float | None = None
    memory_bytes: int | None = None
    save_s: float = 120.0

    def told(self, **changes: Any) -> AttemptSpec:
        """The SideCar's part, with what the launcher says otherwise."""
        own = {field.name: getattr(self, field.name) for field in fields(AttemptSpec)}
        return AttemptSpec(**own | changes)


@dataclass(frozen=True, slots=True)
class ContainerStatus:
    """One attempt as the launcher sees it. ``running`` is judged by pid and start time."""

    job: str
    attempt: int
    running: bool
    exit_code: int | None = None
    reason: str = ""
    host: str | None = None
    """Where it is; None: on the one host of this launcher, or not known yet."""
    lasting: bool = False
    """It never came up, and another attempt would not either."""


@dataclass(frozen=True, slots=True)
class HostSeen:
    """One host as the launcher sees it. ``boot`` changes when the machine is started again."""

    name: str
    gpu_type: str
    gpus: tuple[str, ...]
    """Empty: it has none, or they are not known now."""
    ready: bool = True
    schedulable: bool = True
    boot: str = ""
    shown: tuple[str, ...] | None = None
    """Every GPU that it shows, those in use by others too; None: not known now."""


@dataclass(frozen=True, slots=True)
class OneHost:
    """The one host from which an attempt's files can be reached, and why, in words."""

    host: str
    reason: str


@dataclass(frozen=True, slots=True)
class ReleaseCheck:
    """Answer to "are these GPUs free of this attempt's processes up to this generation?"."""

    empty: bool
    reason: str = ""


def worker_token(token: str, worker: int) -> str:
    """The token of one of several workers, from that of its attempt; the first has that itself."""
    if worker == 0:
        return token
    return hmac.new(token.encode(), f"worker {worker}".encode(), hashlib.sha256).hexdigest()


class LaunchError(Exception):
    """A container could not be launched. ``retryable`` says whether the same call may succeed."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


def check_job_id(job: str) -> None:
    """Folders and objects are named after it. Raises LaunchError."""
    if not _JOB_ID.match(job):
        raise LaunchError(f"job id {job!r} is not a valid folder name")


class ClusterAway(LaunchError):
    """What launches containers cannot be reached now; the job has nothing to do with it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=True)


class RecordRefused(LaunchError):
    """A field of a job's record asks for what this launcher can never give."""

    def __init__(self, field: str, what: str, remedy: str) -> None:
        super().__init__(f"{field}: {what}; {remedy}")
        self.field, self.what, self.remedy = field, what, remedy


class Launcher(Protocol):
    """Starts, lists and ends containers. All methods are idempotent and safe to repeat."""

    def refusals(self, spec: LaunchSpec) -> tuple[RecordRefused, ...]:
        """Why no attempt of this job could ever be launched, whatever its host; asks nobody."""

    async def launch(self, spec: LaunchSpec, token: str) -> None:
        """Start the container of ``spec`` with its SideCar; no training process yet.

        Returns when the container exists, not when it is initialised. Raises LaunchError.
        """

    async def one_host(self, spec: LaunchSpec) -> OneHost | None:
        """The one host from which this job's files can be reached once ``spec`` is launched; None:
        every host. Raises OSError while that cannot be told."""

    async def remove(self, job: str, attempt: int, grace_s: float) -> None:
        """End the container with every process in it: TERM, ``grace_s``, KILL. Waits for it."""

    async def containers(self) -> tuple[ContainerStatus, ...]:
        """Every container of this launcher that exists or has left its exit sentinel."""

    async def check_release(
        self, job: str, attempt: int, generation: int, devices: tuple[str, ...]
    ) -> ReleaseCheck:
        """Whether no process of ``attempt`` started at a generation <= ``generation`` is alive.

        On real GPUs also: the used memory of each of ``devices`` is under the floor.
        """

    def log_path(self, job: str, attempt: int) -> str | None:
        """Folder of the attempt's log files if this machine can read it; None otherwise."""


class HostSource(Protocol):
    """A launcher that finds its hosts by itself."""

    async def hosts(self) -> tuple[HostSeen, ...]:
        """Every host with its GPUs. Raises OSError while that cannot be told."""
