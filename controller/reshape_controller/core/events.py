"""What the engine is told: everything that can change its state, as values of the log.

Never: an effect, or a thing that was not seen. Names are past tense: an event has happened.
A new event class goes into ``Event``, else neither engine nor store knows it.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.core.knowledge import Curve
from reshape_controller.core.limits import Limits
from reshape_controller.core.model import FieldError, GpuId, HostId, JobId, JobSpec, Mechanism
from reshape_profiles.schema import Profile
from reshape_sidecar.wire import Observed


@dataclass(frozen=True, slots=True)
class ControllerStarted:
    """A controller took over: deadlines start anew, nothing is granted until all answered (R6)."""

    epoch: int
    policy: str
    mechanism: Mechanism
    limits: Limits = Limits()
    seed: int = 0
    """For policies that draw: part of the state, so that a log replays."""


@dataclass(frozen=True, slots=True)
class HostAdded:
    """A host with its GPUs; repeated for a known host it adds the GPUs that are new."""

    host: HostId
    gpu_type: str
    gpus: tuple[GpuId, ...]


@dataclass(frozen=True, slots=True)
class GpusSeen:
    """A host was looked at, and these are all the GPUs that it shows. Those of the inventory that
    are not among them nobody gets, until a later look shows them again."""

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
class HostFellSilent:
    """No word of the host for ``host_silent_s``. Its GPUs stay lost until it is cleaned."""

    host: HostId
    reason: str = ""


@dataclass(frozen=True, slots=True)
class HostCleaned:
    """Positive evidence that nothing of before runs there: rebooted, replaced, or an operator's
    word. Its lost and quarantined GPUs are idle again."""

    host: HostId
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GpuCleared:
    """An operator checked a quarantined GPU and gives it back."""

    gpu: GpuId
    user: str = ""


@dataclass(frozen=True, slots=True)
class JobSubmitted:
    job: JobId
    spec: JobSpec


@dataclass(frozen=True, slots=True)
class JobRejected:
    """A record that cannot be a job; kept so that its author can read why."""

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
    """Save, give all GPUs back, wait for a resume."""

    job: JobId
    user: str = ""


@dataclass(frozen=True, slots=True)
class ResumeRequested:
    job: JobId
    user: str = ""


@dataclass(frozen=True, slots=True)
class PinRequested:
    """Only this size for the job from now on; None: all its sizes again."""

    job: JobId
    size: int | None
    user: str = ""


@dataclass(frozen=True, slots=True)
class ProfileRecorded:
    """What is known of a job type beforehand; replaces an earlier profile of the type."""

    profile: Profile


@dataclass(frozen=True, slots=True)
class CurveFitted:
    """An accuracy curve was fitted, of one job or (None) to the profile of a type."""

    job: JobId | None
    job_type: str
    curve: Curve


@dataclass(frozen=True, slots=True)
class SideCarReported:
    observed: Observed


@dataclass(frozen=True, slots=True)
class SideCarFellSilent:
    """No word of an attempt's SideCar for ``silent_s``."""

    job: JobId
    attempt: int


@dataclass(frozen=True, slots=True)
class FilesFound:
    """The launcher looked where an attempt's files can be reached from: ``host`` alone, or (None)
    every host. On another host than ``host`` it has started nothing."""

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


@dataclass(frozen=True, slots=True)
class ContainerGone:
    """The container with every process in it is gone; seen by the launcher, not guessed."""

    job: JobId
    attempt: int
    exit_code: int | None = None
    reason: str = ""


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
    """The clock passed the earliest deadline that the engine named."""


@dataclass(frozen=True, slots=True)
class ControllerHeldUp:
    """The controller could neither hear nor tell anybody anything for so long: its store took
    nothing, or its process was stopped. Nobody's deadline runs meanwhile."""

    held_s: float


Event = (
    ControllerStarted
    | HostAdded
    | GpusSeen
    | HostDrained
    | HostUndrained
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
    | FilesFound
    | LaunchFailed
    | ContainerGone
    | ReleaseVerified
    | ReleaseNotEmpty
    | DeadlinesDue
    | ControllerHeldUp
)
