"""The events of the engine: everything that can change its state, as values of the log.

Names are past tense: an event has happened, and was observed. A new event class goes into ``Event``
and gets a tag in ``reshape_controller.tags``.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.core.fast_replace import fast_init
from reshape_controller.core.knowledge import Curve
from reshape_controller.core.limits import Limits
from reshape_controller.core.model import FieldError, GpuId, HostId, JobId, JobSpec, Mechanism
from reshape_profiles.schema import Profile
from reshape_sidecar.wire import Observed


@dataclass(frozen=True, slots=True)
class ControllerStarted:
    """A controller took over: deadlines start again, and no GPU is granted before every attempt
    has answered (R6)."""

    epoch: int
    policy: str
    mechanism: Mechanism
    limits: Limits = Limits()
    seed: int = 0
    """Seed of policies that draw numbers. It is part of the state, so that a log replays."""


@dataclass(frozen=True, slots=True)
class HostAdded:
    """A host with its GPUs. For a known host the event adds the GPUs that are new."""

    host: HostId
    gpu_type: str
    gpus: tuple[GpuId, ...]


@dataclass(frozen=True, slots=True)
class GpusSeen:
    """All the GPUs that a host shows at present. A GPU of the inventory that is missing from them
    is out of use until a later event of this kind has it."""

    host: HostId
    gpus: tuple[GpuId, ...]


@dataclass(frozen=True, slots=True)
class HostDrained:
    """An operator wants the host empty: its jobs save and leave it, nothing starts there."""

    host: HostId
    user: str = ""


@dataclass(frozen=True, slots=True)
class HostUndrained:
    host: HostId
    user: str = ""


@dataclass(frozen=True, slots=True)
class HostClosed:
    """No container may be started on the host for now; jobs that run there go on."""

    host: HostId
    reason: str
    answers: bool = True
    """False if a container there could not be ended now."""


@dataclass(frozen=True, slots=True)
class HostOpened:
    """Containers may be started on the host again."""

    host: HostId


@dataclass(frozen=True, slots=True)
class HostFellSilent:
    """The host was silent for ``host_silent_s``. Its GPUs stay lost until the host is cleaned."""

    host: HostId
    reason: str = ""


@dataclass(frozen=True, slots=True)
class HostCleaned:
    """No earlier process runs on the host: it was rebooted, replaced, or cleared by an operator.
    Its lost and quarantined GPUs become idle."""

    host: HostId
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GpuCleared:
    """An operator checked a quarantined GPU and cleared it for use."""

    gpu: GpuId
    user: str = ""


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    job: JobId
    spec: JobSpec


@dataclass(frozen=True, slots=True)
class JobRejected:
    """A record that cannot be a job. It is stored with its errors, for its author to read."""

    job: JobId
    name: str
    errors: tuple[FieldError, ...]
    user: str = ""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    job: JobId
    user: str = ""


@dataclass(frozen=True, slots=True)
class HaltRequested:
    """The job shall save, give all GPUs back, and wait for a resume."""

    job: JobId
    user: str = ""


@dataclass(frozen=True, slots=True)
class ResumeRequested:
    job: JobId
    user: str = ""


@dataclass(frozen=True, slots=True)
class PinRequested:
    """The job shall have this size only from now on; None: all its sizes again."""

    job: JobId
    size: int | None
    user: str = ""


@dataclass(frozen=True, slots=True)
class ProfileRecorded:
    """A profile of a job type was recorded; it replaces an earlier profile of the type."""

    profile: Profile


@dataclass(frozen=True, slots=True)
class CurveFitted:
    """An accuracy curve was fitted, of one job or (``job`` None) of a job type."""

    job: JobId | None
    job_type: str
    curve: Curve


@fast_init
@dataclass(frozen=True, slots=True)
class SideCarReported:
    observed: Observed


@dataclass(frozen=True, slots=True)
class SideCarFellSilent:
    """An attempt's SideCar was silent for ``silent_s``."""

    job: JobId
    attempt: int


@dataclass(frozen=True, slots=True)
class SideCarContradicted:
    """A report with an attempt's token says what cannot be; nothing of it was taken in."""

    job: JobId
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class FilesFound:
    """The launcher found the host from which an attempt's files can be reached; None: every host.
    On another host than ``host`` it has started nothing."""

    job: JobId
    attempt: int
    host: HostId | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    job: JobId
    attempt: int
    reason: str
    retryable: bool = True


@fast_init
@dataclass(frozen=True, slots=True)
class ContainerGone:
    """The launcher observed that the container is gone, with every process in it."""

    job: JobId
    attempt: int
    exit_code: int | None = None
    reason: str = ""
    unscheduled: bool = False
    """True if the cluster had no room for it, so that nothing of it ever ran."""


@dataclass(frozen=True, slots=True)
class ContainerSuspended:
    """The launcher observed that no process of the container exists, and that another controller
    of the cluster lets none start for now."""

    job: JobId
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class ContainerAdmitted:
    """The other controller lets the container start."""

    job: JobId
    attempt: int


@fast_init
@dataclass(frozen=True, slots=True)
class ReleaseVerified:
    """No process of the attempt up to the generation is left on these GPUs."""

    job: JobId
    attempt: int
    generation: int
    gpus: tuple[GpuId, ...]


@dataclass(frozen=True, slots=True)
class ReleaseNotEmpty:
    job: JobId
    attempt: int
    generation: int
    gpus: tuple[GpuId, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class DeadlinesDue:
    """The clock has passed the earliest deadline of the engine."""


@dataclass(frozen=True, slots=True)
class ControllerHeldUp:
    """The controller stood still for ``held_s`` seconds, because its store took no append or its
    process was stopped. No deadline ran in this time."""

    held_s: float


OfContainer = FilesFound | LaunchFailed | ContainerGone | ContainerSuspended | ContainerAdmitted
"""What the launcher observed of an attempt's container."""

Event = (
    ControllerStarted
    | HostAdded
    | GpusSeen
    | HostDrained
    | HostUndrained
    | HostClosed
    | HostOpened
    | HostFellSilent
    | HostCleaned
    | GpuCleared
    | JobSubmitted
    | JobRejected
    | CancelRequested
    | HaltRequested
    | ResumeRequested
    | PinRequested
    | ProfileRecorded
    | CurveFitted
    | SideCarReported
    | SideCarFellSilent
    | SideCarContradicted
    | FilesFound
    | LaunchFailed
    | ContainerGone
    | ContainerSuspended
    | ContainerAdmitted
    | ReleaseVerified
    | ReleaseNotEmpty
    | DeadlinesDue
    | ControllerHeldUp
)
