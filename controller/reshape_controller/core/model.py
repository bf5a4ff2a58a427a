"""Jobs, as frozen values without behaviour beyond reading; with the values of ``core.machines``.

``core.state`` holds them by id; ``core.states`` has their states, stages and kinds.
"""

from __future__ import annotations

from dataclasses import dataclass

from reshape_controller.core.allowed_sizes import allowed
from reshape_controller.core.knowledge import AccuracySeen, Curve, Measured, Trend
from reshape_controller.core.machines import Gpu, GpuId, Host, HostId, JobId
from reshape_controller.core.proofs import Proofs
from reshape_controller.core.size_trial import SizeTrial
from reshape_controller.core.states import (
    Batch,
    ChangeKind,
    DeadlineKind,
    Framework,
    GpuState,
    JobState,
    LengthUnit,
    Mechanism,
    OnDifference,
    OnMaxRun,
    Placement,
    ProofUse,
    ReshapeIf,
    Spans,
    Stage,
)
from reshape_controller.core.stop_table import SAVES_ALWAYS, Program, program_of, refusal
from reshape_sidecar.wire import (
    Evaluation,
    Mode,
    Observed,
    OnSaveTimeout,
    Processes,
    Progress,
    Reached,
    Saves,
    Shortcut,
    StartKind,
    Trajectory,
    signal_of,
)

__all__ = [
    "MIN_RUNTIME_S",
    "AccuracySeen",
    "Batch",
    "Change",
    "ChangeKind",
    "Deadline",
    "DeadlineKind",
    "Donation",
    "Failure",
    "FieldError",
    "Framework",
    "Gpu",
    "GpuId",
    "GpuState",
    "HandOver",
    "Host",
    "HostId",
    "Job",
    "JobId",
    "JobSpec",
    "JobState",
    "Length",
    "LengthUnit",
    "Mechanism",
    "OnDifference",
    "OnMaxRun",
    "Placement",
    "ProofUse",
    "Proofs",
    "ReshapeIf",
    "Service",
    "Share",
    "Spans",
    "Stage",
]

MIN_RUNTIME_S = 300.0
"""``min_runtime_s`` of a record that gives none."""
DIFFERED = "a first step after a restart differed, and its record does not say reshape_if: any"
_SETTLED = (Stage.NONE, Stage.READY, Stage.TRAINING)


@dataclass(frozen=True, slots=True)
class Length:
    """How long a job trains: a number of epochs, of steps, or until an accuracy is reached."""

    unit: LengthUnit
    value: float


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A validated job record. Every field but the first three has a default (docs/jobs.md)."""

    name: str
    command: tuple[str, ...]
    optional_gpus: tuple[int, ...]
    """Optional numbers of GPUs (paper, Table III), ascending, without repetition."""
    length: Length | None = None
    image: str | None = None
    job_type: str | None = None
    framework: Framework = Framework.KERAS
    global_batch: int | None = None
    workers: int = 1
    code: str | None = None
    dataset: str | None = None
    checkpoints: str | None = None
    cpus: float | None = None
    memory_bytes: int | None = None
    shared_memory_bytes: int | None = None
    env: tuple[tuple[str, str], ...] = ()
    retries: int = 3
    user: str = ""
    priority: int = 0
    max_wait_s: float | None = None
    on_save_timeout: OnSaveTimeout = OnSaveTimeout.REFUSE
    seed: int | None = None
    reshape_if: ReshapeIf = ReshapeIf.ANY
    metric: str | None = None
    """Metric that a target accuracy is judged on; None: the SideCar chooses."""
    epochs_in_a_row: int = 1
    """Evaluations, one after the other, that have to reach a target accuracy."""
    may_restart: bool = False
    start_timeout_s: float | None = None
    """Silence of a start after which it has failed; 0: never; None: the daemon's."""
    max_run_s: float | None = None
    """Longest time with GPUs, since its first grant or its last resume; None: no limit."""
    on_max_run: OnMaxRun = OnMaxRun.PAUSE
    progress_timeout_s: float | None = None
    """Time without a further step, or sign of work, after which it has failed; None: none."""
    start_limit_s: float | None = None
    """Time without a first step after which a start has failed, silent or not; 0 and None: none."""
    min_runtime_s: float = MIN_RUNTIME_S
    """Shortest run since its last start before another job may preempt it."""
    standby: Shortcut = Shortcut.AUTO
    """Whether a zygote may start its processes."""
    overlap: Shortcut = Shortcut.AUTO
    """Whether the next process may be prepared while the one before trains."""
    uid: int | None = None
    """Unix user id of its processes, from its owner's token; None: the daemon's own."""
    processes: Processes = Processes.ONE
    """How many training processes the SideCar starts in its container."""
    processes_reason: str = ""
    """Why there are so many; empty if the record says so itself."""
    span: Spans = Spans.NEVER
    """Whether its workers may be on several hosts."""
    placement: Placement = Placement.PACK
    """How its workers are placed, if they may be on several hosts."""
    notify: tuple[str, ...] = ()
    """Names of the targets that are sent what happens to it."""
    batch: Batch = Batch.DIVIDED
    """How the samples of a step are given to its GPUs."""
    proof: ProofUse = ProofUse.AUTO
    on_difference: OnDifference = OnDifference.REPORT
    names_reshape_if: bool = False
    """Whether the record itself has the field ``reshape_if``; False also for a job that an earlier
    release accepted."""

    @property
    def micro_batches(self) -> int | None:
        """Number of micro-batches of a step; None: each GPU has its part of the batch."""
        return max(self.optional_gpus) if self.batch is Batch.MICRO else None


@dataclass(frozen=True, slots=True)
class FieldError:
    """One problem of a job record: its field, the error, and the remedy."""

    path: str
    message: str
    hint: str = ""

    @property
    def summary(self) -> str:
        """Return the field and the error; an error of the whole record names no field."""
        return f"{self.path}: {self.message}" if self.path else self.message


@dataclass(frozen=True, slots=True)
class Failure:
    """How a process of a job failed."""

    attempt: int
    size: int
    """GPUs of the process."""
    exit_code: int | None = None
    exception: str | None = None
    """Type of the Python exception; None without one."""
    message: str | None = None
    refused: bool = False
    """True if Reshape itself refused to train the program as it is."""

    @property
    def signal(self) -> str | None:
        """Name of the signal that ended the process; None if no signal did."""
        return signal_of(self.exit_code)

    @property
    def is_death(self) -> bool:
        """Whether a signal or a lack of memory ended the process: the next start may do better."""
        return self.signal is not None or self.exception == MemoryError.__name__

    @property
    def cause(self) -> str:
        """The exception, or else the exit code; empty if neither is known."""
        if self.exception is not None:
            return self.exception
        return "" if self.exit_code is None else f"exit code {self.exit_code}"


@dataclass(frozen=True, slots=True)
class Change:
    """The request to a running job that is under way, from its append to its outcome."""

    kind: ChangeKind
    size_before: int
    gpus_after: tuple[GpuId, ...]
    for_job: JobId | None = None
    """The newcomer that gets the GPUs; None for a change for the job's own sake."""
    asked_at_s: float = 0.0
    withdrawn: bool = False
    start: StartKind = StartKind.COLD
    """How its process should start afterwards, as its SideCar promised."""


@dataclass(frozen=True, slots=True)
class Donation:
    """A running job's part in a hand-over before it is asked to shrink (R1: it is frozen)."""

    to: JobId
    keeps: tuple[GpuId, ...]


@dataclass(frozen=True, slots=True)
class HandOver:
    """The next GPUs of a job, and their donors (docs/architecture.md, the hand-over).

    They are granted as a whole once the job is READY and every GPU is reserved for it. A job that
    trains is asked to grow once every GPU is its own or reserved for it; until then it trains.
    """

    gpus: tuple[GpuId, ...]
    donors: tuple[JobId, ...] = ()
    shrink_asked: bool = False
    """The donors have been asked to shrink: the point of no return (R2)."""
    size_before: int = 0
    """GPUs of the job before it was stopped to be launched again for this; 0: it had none."""


@dataclass(frozen=True, slots=True)
class Deadline:
    kind: DeadlineKind
    at_s: float
    length_s: float


@dataclass(frozen=True, slots=True, order=True)
class Share:
    """The workers of a job that are on one of its hosts. Each worker has as many GPUs."""

    host: HostId
    workers: int


@dataclass(frozen=True, slots=True)
class Service:
    """GPU-seconds that a job has had on GPUs of a type in one of its stages."""

    gpu_type: str
    phase: str
    """Value of the stage: starting, training, saving, stopping."""
    gpu_s: float


@dataclass(frozen=True)
class Job:
    """An accepted job. ``gpus`` are those it trains on or starts on (GPU state in use); ``place``
    is its place in the queue, for life."""

    id: JobId
    spec: JobSpec
    place: int
    submitted_at_s: float
    state: JobState = JobState.SUBMITTED
    stage: Stage = Stage.NONE
    reason: str = ""
    """Reason of its stage, for people; always set while the job waits."""
    host: HostId | None = None
    attempt: int = 0
    generation: int = 0
    mode: Mode = Mode.SAVE_AND_STOP
    devices: tuple[GpuId, ...] = ()
    """GPUs of the newest generation's desired state; ``gpus`` follow the SideCar's answer."""
    force: bool = False
    """With the newest generation the SideCar kills at the save deadline, even if the record says
    refuse."""
    gpus: tuple[GpuId, ...] = ()
    hand_over: HandOver | None = None
    donation: Donation | None = None
    prepare: tuple[GpuId, ...] | None = None
    """Devices for which a successor is prepared, before its next change; None: for none."""
    change: Change | None = None
    deadline: Deadline | None = None
    watched: bool = True
    """A controller ran without a break since its launch or the request to change."""
    after_end: JobState = JobState.SUBMITTED
    """State of the job once its container has ended: submitted (queued again) or halted."""
    halt_wanted: bool = False
    """A halt was requested while the job could not leave; it happens as soon as it trains again."""
    answered: bool = True
    """False from a controller restart until its SideCar's first report or ``SideCarFellSilent``."""
    reachable: bool = True
    sequence: int = -1
    observed: Observed | None = None
    progress: Progress = Progress()
    struck: tuple[int, ...] = ()
    """Excluded sizes: those at which it does not start, or failed soon after (R5)."""
    start_failures: tuple[int, ...] = ()
    """Size of each failed start since the last good one at that size."""
    trained_on: int = 0
    """GPUs of its last first step; 0: it made none."""
    trial: SizeTrial = SizeTrial()
    failures: int = 0
    failure: Failure | None = None
    """The newest failure of a process of it."""
    failed_starts: tuple[Failure, ...] = ()
    """Failures of its processes since its last first step, without deaths."""
    failed_attempt: int = 0
    """The attempt that failed and has not trained since; further failures of it do not count.
    0: none."""
    initialized_at_s: float | None = None
    started_at_s: float | None = None
    """First grant of GPUs."""
    finished_at_s: float | None = None
    refused_until_s: float = 0.0
    reshaped_at_s: float | None = None
    reshape_ups: int = 0
    reshape_downs: int = 0
    steps_lost: int = 0
    repeated_gpu_s: float = 0.0
    """GPU-seconds of training that it lost, and trains again, as far as they can be known."""
    steps_lost_known: bool = True
    """False once it lost steps that nobody counted: ``steps_lost`` is then the known part."""
    lost_to: Reached | None = None
    """The attempt that ended without a last report, and the step up to which its loss is counted:
    the next attempt may know of more."""
    process_restarts: int = 0
    container_restarts: int = 0
    longest_save_s: float = 0.0
    only_host: HostId | None = None
    """The only host from which its files can be reached; None: every host."""
    only_host_because: str = ""
    unfit_on: tuple[HostId, ...] = ()
    """Hosts on which it could not start. It goes there only if no other host can hold it."""
    pinned: int | None = None
    """The only size that it may get, by a person's request."""
    uses: int = 0
    """GPUs that its program uses, of more that it had (``unused_gpus``); 0: all, or not known."""
    progress_at_s: float | None = None
    """Time of the last report with a higher step, of the process that trains now."""
    measured: tuple[Measured, ...] = ()
    """Seconds per step at the sizes that it has trained on."""
    trend: Trend | None = None
    """The newest report with news, of the process that trains now."""
    straggling: bool = False
    """True while its steps take far longer than its profile says."""
    reshape_cost_s: float | None = None
    """Seconds of its last reshape, from the request until it trained again; None: not known."""
    accuracies: tuple[AccuracySeen, ...] = ()
    """Points of its accuracy curve, if its length is a target accuracy."""
    curve: Curve | None = None
    """Fitted curve of its accuracy, if its length is a target accuracy."""
    saves: Saves | None = None
    """When its program saves, by the newest word of a SideCar; None: there was none."""
    has_resumed: bool = False
    """True if its own handler of SIGTERM has saved: it went on from the step at which it left."""
    left_at_step: int = 0
    """Step at which its program left by its own handler; 0: no resume can show yet what it saved.
    """
    trains_since_s: float | None = None
    """Time of its first step, if its program handles SIGTERM itself."""
    runs_since_s: float | None = None
    """Time of the plan that started it when it was queued last."""
    preempted_by: JobId | None = None
    """The job that preempted it last."""
    preempted_at_s: float | None = None
    preemptions: int = 0
    served: tuple[Service, ...] = ()
    """Its attained service up to ``serves_since_s``."""
    serves_since_s: float | None = None
    """Time of the newest change of its GPUs or of its stage on GPUs; None: it has none."""
    evaluations: tuple[Evaluation, ...] = ()
    """Its newest evaluations, by step and metric."""
    notes: tuple[tuple[str, str], ...] = ()
    """Name and text of each note that plans have written about it, by name."""
    suspended: str = ""
    """Reason that another controller lets no process of its container start; empty if none does."""
    hosts: tuple[HostId, ...] = ()
    """Host of each worker, if its attempt is on several; ``host`` is that of the first. Empty: all
    are on ``host``."""
    set_apart: str = ""
    """Why no report of its attempt is believed any more; empty if they are."""
    starts_since_s: float | None = None
    """Time of the request to its newest start; None: it has made its first step, or was never
    asked."""
    look_at_s: float | None = None
    """Time of the next look at the bounds of its run (``core.run_bounds``); None: there is none."""
    ran_s: float = 0.0
    """Time with GPUs until ``serves_since_s``, since its first grant or its last resume."""
    late: str = ""
    """What it does for too long, which is an alert; empty if nothing is."""
    proofs: Proofs = Proofs()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Optional numbers of GPUs that are not excluded; the pinned one alone, or that to which it
        goes back; none beyond those that its program uses."""
        only = self.trial.back_to or self.pinned
        if not self.struck and only is None and not self.uses:
            return self.spec.optional_gpus
        return allowed(self.spec.optional_gpus, self.struck, only, self.uses)

    @property
    def all_hosts(self) -> tuple[HostId, ...]:
        """The hosts of its attempt, each once; empty without an attempt."""
        if self.hosts:
            return tuple(dict.fromkeys(self.hosts))
        return (self.host,) if self.host is not None else ()

    def is_on(self, host: HostId) -> bool:
        """Return whether a worker of its attempt is on the host."""
        return self.host == host or host in self.hosts

    @property
    def program(self) -> Program:
        """What its program can do at a request to stop."""
        may_restart = self.spec.may_restart
        return program_of(self.saves, has_resumed=self.has_resumed, may_restart=may_restart)

    @property
    def reports_steps(self) -> bool:
        """Whether its program has ever reported a step. If not, the loss at a stop is unknown."""
        return self.progress.step > 0

    @property
    def all_loss_known(self) -> bool:
        """Whether ``steps_lost`` is all that it has lost."""
        return self.steps_lost_known and self.lost_to is None

    @property
    def unsaved_steps(self) -> int:
        """Steps that a stop would lose now; 0 also if the program reports no steps."""
        return self.unsaved_at(self.progress)

    def unsaved_at(self, progress: Progress) -> int:
        """Return the steps that a stop at ``progress`` would lose."""
        if not self.program.loses:
            return 0
        return max(0, progress.step - (progress.checkpoint_step or 0))

    @property
    def fixed_because(self) -> str:
        """Reason that no plan may shrink, grow or move it while it runs; empty if a plan may."""
        if self.saves not in SAVES_ALWAYS and (unsaved := refusal(self.program, self.saves)):
            return unsaved
        least = self.spec.reshape_if
        if self.proofs.difference and not self.spec.names_reshape_if:
            return DIFFERED
        if least is ReshapeIf.ANY:
            return ""
        word, why = self.proofs.verdict(self.progress)
        verdict = Trajectory.of(word)
        if least.allows(verdict):
            return ""
        why = why if word else "no verdict yet"
        because = f" ({why})" if why else ""
        return f"its trajectory is {verdict.value}{because}, and reshape_if is {least.value}"

    @property
    def frozen(self) -> bool:
        """Whether no plan may name it (R1): it is party to a hand-over, or not settled."""
        return (
            self.hand_over is not None
            or self.donation is not None
            or self.change is not None
            or self.stage not in _SETTLED
            or not self.answered
        )
