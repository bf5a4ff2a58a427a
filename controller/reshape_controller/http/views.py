"""What the API shows of jobs, GPUs and hosts: the stable names of docs/api.md.

Does: names every field once; the handlers answer with these values, and the CLI reads them back.
Never: leaves a field out (an unknown one is null). State: none.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.store.protocol import ProfileRow
from reshape_sidecar.wire import GpuUse, PhaseTimes

KEY = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
"""Every id and name that a path may have."""


@dataclass(frozen=True, slots=True)
class ErrorView:
    """One thing that is wrong with a rejected record."""

    path: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class JobView:
    """A job, whatever its state. Times are Unix seconds; ``size`` is the number of its GPUs."""

    id: str
    name: str
    user: str
    state: str
    stage: str
    reason: str
    seq: int
    submitted_at_s: float
    initialized_at_s: float | None = None
    started_at_s: float | None = None
    finished_at_s: float | None = None
    host: str | None = None
    gpus: tuple[str, ...] = ()
    size: int = 0
    optional_gpus: tuple[int, ...] = ()
    struck: tuple[int, ...] = ()
    next_gpus: tuple[str, ...] = ()
    """GPUs of the hand-over under way: what it will train on next; empty when there is none."""
    donors: tuple[str, ...] = ()
    """Jobs that give GPUs to that hand-over."""
    phase: str | None = None
    """What its SideCar sees; null without a container."""
    pid: int | None = None
    attempt: int = 0
    generation: int = 0
    reachable: bool = True
    step: int = 0
    total_steps: int | None = None
    epoch: int = 0
    epochs: int | None = None
    progress_ratio: float | None = None
    loss: float | None = None
    accuracy: float | None = None
    seconds_per_step: float | None = None
    checkpoint_step: int | None = None
    trajectory: str | None = None
    trajectory_reason: str | None = None
    reshape_ups: int = 0
    reshape_downs: int = 0
    steps_lost: int = 0
    process_restarts: int = 0
    container_restarts: int = 0
    failures: int = 0
    deadline: str | None = None
    """What is awaited, and until when."""
    deadline_at_s: float | None = None
    command: tuple[str, ...] = ()
    framework: str | None = None
    length: str | None = None
    retries: int | None = None
    priority: int | None = None
    pinned: int | None = None
    """The only size that it may have, because somebody asked for it."""
    on_save_timeout: str | None = None
    code: str | None = None
    dataset: str | None = None
    checkpoints: str | None = None
    job_type: str | None = None
    log_folder: str | None = None
    times: PhaseTimes = PhaseTimes()
    """Phases of its newest start or reshape, in seconds."""
    gpu_use: tuple[GpuUse, ...] = ()
    error: str | None = None
    """What its SideCar says of the newest failure."""
    errors: tuple[ErrorView, ...] = ()
    """Only of a rejected record."""


@dataclass(frozen=True, slots=True)
class GpuView:
    """A GPU. ``owner`` and ``promised_to`` are ids of jobs, the ``_name`` fields their names."""

    id: str
    host: str
    index: int
    gpu_type: str
    state: str
    owner: str | None = None
    owner_name: str | None = None
    promised_to: str | None = None
    promised_to_name: str | None = None
    drained: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class HostView:
    id: str
    gpu_type: str
    gpus: tuple[str, ...]
    drained: bool
    present: bool


@dataclass(frozen=True, slots=True)
class EventView:
    """One line of a job's history; ``kind`` is stable, ``text`` is for reading."""

    job: str | None
    at_s: float
    kind: str
    text: str
    attempt: int = 0
    generation: int = 0
    size: int = 0
    value: float | None = None


@dataclass(frozen=True, slots=True)
class JobPage:
    """One page of jobs in order of submission; ``next_after`` goes into the next request."""

    jobs: tuple[JobView, ...]
    total: int
    next_after: str | None


@dataclass(frozen=True, slots=True)
class History:
    events: tuple[EventView, ...]


@dataclass(frozen=True, slots=True)
class TargetView:
    """A job shall have so many GPUs on a host."""

    job: str
    name: str
    gpus: int
    host: str


@dataclass(frozen=True, slots=True)
class OptionView:
    """Something that was weighed. No targets: do nothing. ``refused`` says why it was not taken
    although it may look better."""

    targets: tuple[TargetView, ...]
    makespan_s: float | None
    completion_sum_s: float | None
    note: str
    refused: str


@dataclass(frozen=True, slots=True)
class DecisionEvent:
    """When and by whom a decision was made, and for whose sake."""

    at_s: float
    policy: str
    job: str | None
    name: str | None


@dataclass(frozen=True, slots=True)
class CostView:
    """A phase of a start or reshape that the decision brought about."""

    job: str
    name: str
    phase: str
    predicted_s: float
    measured_s: float


@dataclass(frozen=True, slots=True)
class DecisionView:
    """A decision. ``chosen`` is an index into ``options``; ``weighed`` counts those left out too;
    ``explanation`` is all of it for people."""

    event: DecisionEvent
    options: tuple[OptionView, ...]
    weighed: int
    chosen: int | None
    targets: tuple[TargetView, ...]
    reason_code: str
    text: str
    seq: int
    explanation: str
    costs: tuple[CostView, ...] = ()
    """Empty until something that it brought about has been measured."""


@dataclass(frozen=True, slots=True)
class Decisions:
    decisions: tuple[DecisionView, ...]


@dataclass(frozen=True, slots=True)
class GpuList:
    gpus: tuple[GpuView, ...]


@dataclass(frozen=True, slots=True)
class HostList:
    hosts: tuple[HostView, ...]


@dataclass(frozen=True, slots=True)
class StateView:
    """The controller's state, in the form of its own snapshots: texts of JSON lines."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Health:
    """``role`` is leader or standby. ``reason`` is empty: who is not ready answers an error."""

    status: str
    reason: str = ""
    role: str = "leader"


@dataclass(frozen=True, slots=True)
class Status:
    """How a daemon is. ``leader`` names who has the lease, where there is one to have."""

    role: str
    ready: bool
    version: str
    reason: str = ""
    """Why it takes no requests."""
    epoch: int = 0
    """Which controller of this log it is; 0: none yet."""
    seq: int = 0
    """The newest record of its log."""
    name: str = ""
    """Its own, among the candidates for the lease."""
    leader: str = ""
    lease_held: bool = True
    """Whether the lease is surely its own, or there is none."""


@dataclass(frozen=True, slots=True)
class ProfileList:
    """What is known of job types: what was recorded, and what running jobs taught beside it."""

    profiles: tuple[ProfileRow, ...]


@dataclass(frozen=True, slots=True)
class ProfilesRecorded:
    """Job types whose profile was recorded now, and those whose was the same before."""

    recorded: tuple[str, ...]
    unchanged: tuple[str, ...]
