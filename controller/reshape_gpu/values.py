"""The values that the API answers with: the stable names of docs/api.md.

Does: names every field once; handlers answer with these values, and the client reads them back.
Every field is always there; one that is unknown is null.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_gpu.overview import Overtaking
from reshape_sidecar.wire import Evaluation, GpuUse, PhaseTimes, Prepared, Standby

KEY = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
"""Pattern of ids and names in a path."""


ENDED = ("completed", "failed", "cancelled", "rejected")
"""States that are a job's last."""
PAUSED_FOR_ERROR = "paused, checkpoint kept: "
"""Begins the reason of a job that was paused because it has no retry or no size left."""


@dataclass(frozen=True, slots=True)
class ErrorView:
    """A problem of a rejected record."""

    path: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class ServiceView:
    """GPU-seconds of a job on GPUs of a type in a phase (starting, training, saving, stopping)."""

    gpu_type: str
    phase: str
    gpu_s: float


@dataclass(frozen=True, slots=True)
class NoteView:
    """A text that the policy has written about a job, by name."""

    job: str
    name: str
    text: str


@dataclass(frozen=True)
class JobView:
    """A job in any state. Times are Unix seconds; ``size`` is the number of its GPUs. It has no
    slots, so that a copy with changes is quick."""

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
    """GPUs on which it will train after the hand-over under way; empty without one."""
    donors: tuple[str, ...] = ()
    """Jobs that give GPUs to the hand-over under way."""
    phase: str | None = None
    """Phase that its SideCar reports; null without a container."""
    pid: int | None = None
    attempt: int = 0
    generation: int = 0
    reachable: bool = True
    step: int = 0
    reported_at_s: float | None = None
    """When its SideCar first reported this progress; null before its first step."""
    total_steps: int | None = None
    epoch: int = 0
    epochs: int | None = None
    progress_ratio: float | None = None
    loss: float | None = None
    accuracy: float | None = None
    seconds_per_step: float | None = None
    """Median of the last minute or the last 20 steps, without evaluations and ends of epochs."""
    evaluation_s: float | None = None
    """Mean of its newest evaluations; null before the first."""
    epoch_end_s: float | None = None
    """Mean time from an epoch's last step to the next epoch, its evaluation included."""
    apart_s_per_step: float | None = None
    """What evaluations and ends of epochs take for each step; null if it does not measure it."""
    checkpoint_step: int | None = None
    trajectory: str | None = None
    trajectory_reason: str | None = None
    proof_result: str | None = None
    """What the first step after its newest restart shows beside that of the process before."""
    proofs_agreed: int = 0
    """Restarts whose first step agreed."""
    proofs_missing: int = 0
    """Restarts without a proof."""
    first_difference: str | None = None
    metric: str | None = None
    """Metric that its target accuracy is judged on; null without a target or an evaluation."""
    metric_value: float | None = None
    """Result of the newest evaluation."""
    metric_step: int | None = None
    target_steps: int | None = None
    """Step at which the curve through its evaluations reaches its target accuracy."""
    target_note: str | None = None
    """Which metric stands in, or why none is judged, with the remedy."""
    not_larger: str | None = None
    """Why it has not more GPUs; null if it has its largest number, or does not train."""
    served: tuple[ServiceView, ...] = ()
    """GPU-seconds that it has had up to ``served_until_s``."""
    served_until_s: float | None = None
    """Time of the answer; null: it has no GPU now."""
    preempted_by: str | None = None
    """The job that preempted it last; null if none did."""
    preempted_at_s: float | None = None
    preemptions: int = 0
    position: int | None = None
    """Its place in the queue, from 1; null if it is not queued. It may start before jobs with a
    smaller one that need more GPUs than are free."""
    overtaken_by: Overtaking | None = None
    """The newest start of a later job while it waits; null without one, and in a list of jobs."""
    predicted_start_at_s: float | None = None
    """When it is predicted to start, if no job is submitted or reshaped; null for a job that has
    GPUs, is far down the queue, or cannot start on any host."""
    predicted_end_at_s: float | None = None
    """When it is predicted to end; null if its length is unknown."""
    evaluations: tuple[Evaluation, ...] = ()
    """Its newest evaluations, by step and metric; empty in a list of jobs."""
    notes: tuple[NoteView, ...] = ()
    """What the policy remembers about it."""
    reshape_ups: int = 0
    reshape_downs: int = 0
    steps_lost: int = 0
    """Steps that it lost, as far as they are known."""
    steps_lost_known: bool = True
    """False if it has lost, or may have lost, more steps than these."""
    size_before: int | None = None
    """GPUs that it trained on before those that it trains, or trained, on; null: no others."""
    process_restarts: int = 0
    container_restarts: int = 0
    failures: int = 0
    exit_code: int | None = None
    """Exit code of the newest process that failed; null without a failure. So are the next three.
    """
    signal: str | None = None
    """Signal that ended it, ``SIGKILL`` for example."""
    exception: str | None = None
    """Type of the Python exception that ended it."""
    exception_message: str | None = None
    program: str | None = None
    """What the program can do at a request to stop; null until a SideCar has said so."""
    unsaved_steps: int | None = None
    """Steps that a stop would lose now; null if it saves first, or while no step is known."""
    late: str | None = None
    """What it does for too long, which is an alert; null if nothing is."""
    deadline: str | None = None
    """Kind of the deadline under way."""
    deadline_at_s: float | None = None
    command: tuple[str, ...] = ()
    framework: str | None = None
    processes: str | None = None
    """``per-gpu``: its SideCar starts a training process for each GPU; else ``one``."""
    processes_reason: str | None = None
    """Reason that there are so many; null if the record says so itself."""
    micro_batches: int | None = None
    """Micro-batches of a step; null: each GPU has its part of the batch."""
    notify: tuple[str, ...] = ()
    """Targets that are sent what happens to it."""
    hosts: tuple[str, ...] = ()
    """All its hosts, if its workers are on several; ``host`` is that of the first."""
    length: str | None = None
    retries: int | None = None
    priority: int | None = None
    pinned: int | None = None
    """The only size that it may have, by request; null: all its sizes."""
    on_save_timeout: str | None = None
    reshape_if: str | None = None
    proof: str | None = None
    on_difference: str | None = None
    may_restart: bool | None = None
    min_runtime_s: float | None = None
    max_run_s: float | None = None
    """Longest time with GPUs; null: no limit."""
    on_max_run: str | None = None
    """``pause`` or ``fail``, at the end of ``max_run_s``; null without one."""
    progress_timeout_s: float | None = None
    """Time without a further step after which its program has failed; null: none."""
    start_timeout_s: float | None = None
    """Silence after which a start has failed; 0: never; null: the daemon's."""
    start_limit_s: float | None = None
    """Time after which a start has failed, silent or not; null: never."""
    fixed_because: str | None = None
    """Reason that no plan reshapes it while it runs; null if a plan may."""
    code: str | None = None
    dataset: str | None = None
    checkpoints: str | None = None
    job_type: str | None = None
    log_folder: str | None = None
    times: PhaseTimes = PhaseTimes()
    """Seconds of each phase of its newest start or reshape."""
    standby: Standby | None = None
    """The process that forks its training processes; null from a SideCar without one."""
    prepared: Prepared | None = None
    """The successor of its training process; null while there is none."""
    gpu_use: tuple[GpuUse, ...] = ()
    error: str | None = None
    """The newest failure as its SideCar reports it."""
    errors: tuple[ErrorView, ...] = ()
    """Problems of a rejected record; empty for a job."""

    @property
    def has_ended(self) -> bool:
        """Whether its state is a last one."""
        return self.state in ENDED

    @property
    def is_paused_for_error(self) -> bool:
        """Whether it is paused because its program failed too often."""
        return self.state == "halted" and self.reason.startswith(PAUSED_FOR_ERROR)


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
class SeriesPoint:
    """A job's training at a moment; a value that it has not reported is null."""

    at_s: float
    step: int
    size: int
    """Its number of GPUs."""
    seconds_per_step: float | None
    loss: float | None
    accuracy: float | None


@dataclass(frozen=True, slots=True)
class Series:
    """A job's training over time; empty if it has not reported lately."""

    job: str
    points: tuple[SeriesPoint, ...]


@dataclass(frozen=True, slots=True)
class JobPage:
    """One page of jobs in order of submission; ``next_after`` goes into the next request."""

    jobs: tuple[JobView, ...]
    total: int
    next_after: str | None


@dataclass(frozen=True, slots=True)
class ArrayJobs:
    """Ids of the jobs of an array, in the order of its values."""

    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class History:
    events: tuple[EventView, ...]


@dataclass(frozen=True, slots=True)
class RecentHistory:
    """The newest entries of the history of all jobs, oldest first. ``seq``: the newest record that
    they show; ``GET /v1/events`` goes on after it."""

    seq: int
    events: tuple[EventView, ...]


@dataclass(frozen=True, slots=True)
class TargetView:
    """A number of GPUs that a plan gives a job on a host, or on several."""

    job: str
    name: str
    gpus: int
    host: str
    hosts: tuple[str, ...] = ()
    """All its hosts, if its workers are on several; ``host`` is that of the first."""


@dataclass(frozen=True, slots=True)
class OptionView:
    """An option that was evaluated. Without targets it means no change. ``refused`` is the reason
    if it was excluded."""

    targets: tuple[TargetView, ...]
    makespan_s: float | None
    completion_sum_s: float | None
    note: str
    refused: str


@dataclass(frozen=True, slots=True)
class DecisionEvent:
    """Time and policy of a decision, and the job that caused it."""

    at_s: float
    policy: str
    job: str | None
    name: str | None


@dataclass(frozen=True, slots=True)
class CostView:
    """A phase of a start or reshape that a decision caused."""

    job: str
    name: str
    phase: str
    predicted_s: float | None
    """None if nothing was known of it."""
    measured_s: float
    how: str | None = None
    """How a process was started: ``cold``, ``zygote`` or ``successor``; None for other phases."""
    fallback: str | None = None
    """Why it was not started faster."""


@dataclass(frozen=True, slots=True)
class DecisionView:
    """A decision. ``chosen`` is an index into ``options``; ``weighed`` counts the options that are
    left out too; ``explanation`` is the whole as text for users."""

    event: DecisionEvent
    options: tuple[OptionView, ...]
    weighed: int
    chosen: int | None
    targets: tuple[TargetView, ...]
    reason_code: str
    text: str
    seq: int
    explanation: str
    tie_break: str = ""
    """The rule that chose among the options with the best makespan; empty without a tie."""
    assumed: tuple[str, ...] = ()
    """Inputs that no measurement or record gives."""
    notes: tuple[NoteView, ...] = ()
    """What the policy wrote down about jobs; an empty text removed a note."""
    costs: tuple[CostView, ...] = ()
    """Empty until a start or reshape that it caused was measured."""


@dataclass(frozen=True, slots=True)
class Decisions:
    decisions: tuple[DecisionView, ...]


@dataclass(frozen=True, slots=True)
class GpuList:
    gpus: tuple[GpuView, ...]
    containment: str = ""
    """What holds the processes of attempts that start now."""


@dataclass(frozen=True, slots=True)
class HostList:
    hosts: tuple[HostView, ...]


@dataclass(frozen=True, slots=True)
class StateView:
    """The controller's state, in the form of its snapshots: texts of JSON lines."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Health:
    """Answer of a probe. ``role`` is leader or standby; ``reason`` of a ready daemon is what it
    still waits for, because a daemon that is not ready answers with an error."""

    status: str
    reason: str = ""
    role: str = "leader"


@dataclass(frozen=True, slots=True)
class Status:
    """Role and readiness of a daemon."""

    role: str
    ready: bool
    version: str
    reason: str = ""
    """Why the daemon accepts no requests; empty if it does."""
    epoch: int = 0
    """Number of this controller among those of its log; 0 before it leads."""
    seq: int = 0
    """Seq of the newest record of its log."""
    name: str = ""
    """The daemon's own name among the candidates for the lease."""
    leader: str = ""
    """Name of the lease's holder; empty without an election."""
    lease_held: bool = True
    """Whether the lease is surely this daemon's; true without an election."""
    waits_for: str = ""
    """What a daemon that is ready still waits for before it grants GPUs or starts containers: jobs
    whose SideCars have not answered since its start, a fault of its own machine, or calls to the
    cluster that fail."""
    containment: str = ""
    """What holds the processes of attempts that start now; empty on a standby."""
    containment_reason: str = ""
    """Where their groups are, or why there are none."""
    isolation: str = ""
    """What jobs of this machine may do to the operator and to each other; empty on Kubernetes."""


@dataclass(frozen=True, slots=True)
class IdentityView:
    """The identity of a token, and its caps, which hold for the role user."""

    name: str
    role: str
    uid: int | None
    priority: int
    pin: bool
    may_restart: bool


@dataclass(frozen=True, slots=True)
class TrialChange:
    """A job that would get another number of GPUs at once."""

    job: str
    name: str
    size_before: int
    size_after: int


@dataclass(frozen=True, slots=True)
class Trial:
    """What would be decided: whether the job starts at once, on how many GPUs, which jobs change
    for it, and when it is predicted to start and end."""

    name: str
    starts: bool
    size: int
    host: str | None
    reason: str
    changes: tuple[TrialChange, ...]
    position: int | None
    predicted_start_at_s: float | None
    predicted_end_at_s: float | None
    hosts: tuple[str, ...] = ()
    """All its hosts, if its workers would be on several; ``host`` is that of the first."""
