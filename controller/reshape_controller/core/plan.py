"""The snapshot that a policy sees and the plan that it returns. Values only.

A policy is a pure function ``decide(snapshot) -> Plan``. It commands nothing: the engine checks
the plan against the state, and rejects a plan that breaks a rule as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from reshape_controller.core.fast_replace import fast_init
from reshape_controller.core.knowledge import Curve, Measured
from reshape_controller.core.model import (
    HostId,
    JobId,
    JobSpec,
    JobState,
    Mechanism,
    Service,
    Share,
)
from reshape_controller.core.profile_book import ProfileBook
from reshape_controller.core.states import PreemptionReason
from reshape_sidecar.wire import Evaluation, Progress, StartKind

if TYPE_CHECKING:
    from reshape_controller.core.job_estimate import Estimates


@fast_init
@dataclass(frozen=True, slots=True)
class JobView:
    """A job as a policy sees it. ``size`` is the later size where a change is under way (R1)."""

    id: JobId
    spec: JobSpec
    state: JobState
    place: int
    sizes: tuple[int, ...]
    """Optional numbers of GPUs that are not excluded."""
    size: int
    host: HostId | None
    frozen: bool
    """No plan may name it."""
    initialized: bool
    """Its container waits on ``host`` (R9): it can start there only, without initialisation."""
    submitted_at_s: float
    started_at_s: float | None
    not_before_s: float
    """Earliest start: the back-off of a job that failed."""
    no_shrink_before_s: float
    """Earliest request to shrink: a cooldown after a refused save."""
    reshaped_at_s: float | None
    progress: Progress
    """Progress; of a job that trains, at its newest report with news (``Trend``)."""
    growable: bool = True
    """True if its length is known, so that the gain of more GPUs can be predicted."""
    gpu_type: str = ""
    """GPU type of ``host``."""
    only_host: HostId | None = None
    """The only host on which a plan may put it, as its files can be reached from there alone."""
    unfit_on: tuple[HostId, ...] = ()
    """Hosts on which it could not start; a plan prefers others."""
    fixed_because: str = ""
    """Reason that no plan may name it while it runs; then ``sizes`` has its size alone."""
    loses: bool = False
    """True if a stop loses its steps since its last checkpoint, so that it repeats them."""
    pinned: bool = False
    """True if a person allows it one size only."""
    uses: int = 0
    """GPUs that its program uses, if its sizes end there; 0: all, or not known."""
    trains: bool = False
    """True if a process of it trains now."""
    progress_at_s: float | None = None
    """Time of ``progress.step``; None while it does not train."""
    measured: tuple[Measured, ...] = ()
    """Seconds per step at the sizes that it has trained on."""
    reshape_cost_s: float | None = None
    curve: Curve | None = None
    start: StartKind = StartKind.COLD
    """How its next process starts in its container, as its SideCar's newest report promises."""
    runs_since_s: float | None = None
    """Time of the plan that started it when it was queued last."""
    preempted_at_s: float | None = None
    """Time of its last preemption."""

    served: tuple[Service, ...] = ()
    """Its attained service up to ``serves_since_s``, by GPU type and phase."""
    serves_since_s: float | None = None
    """Time of the newest change of its GPUs or of its stage on GPUs; None: it has none."""
    evaluations: tuple[Evaluation, ...] = ()
    """Its newest evaluations, by step and metric."""
    notes: tuple[tuple[str, str], ...] = ()
    """Name and text of each note that plans have written about it, by name."""
    shares: tuple[Share, ...] = ()
    """Its workers by host, if they are on several; ``host`` is that of the first."""

    @property
    def all_hosts(self) -> tuple[HostId, ...]:
        """Its hosts, each once; empty if it has none."""
        if self.shares:
            return tuple([share.host for share in self.shares])
        return () if self.host is None else (self.host,)

    def note(self, name: str) -> str:
        """Return the text of its note of this name; empty without one."""
        return dict(self.notes).get(name, "")

    def served_s(self, now_s: float) -> float:
        """Return its GPU-seconds of all types and phases up to now. (A change under way counts at
        its later size.)"""
        since_s = now_s if self.serves_since_s is None else self.serves_since_s
        settled = sum([service.gpu_s for service in self.served])
        return settled + self.size * max(0.0, now_s - since_s)

    @property
    def waits_since_s(self) -> float:
        """Time from which its wait counts: its submission, or its last preemption."""
        return self.submitted_at_s if self.preempted_at_s is None else self.preempted_at_s


@fast_init
@dataclass(frozen=True, slots=True)
class HostView:
    """A usable host: present, open and not drained. ``idle``: GPUs that a plan may give away."""

    id: HostId
    gpu_type: str
    idle: int
    total: int
    usable: int = 0
    """GPUs that are neither quarantined nor lost."""


def largest_of(hosts: Iterable[HostView]) -> tuple[tuple[str, int], ...]:
    """Return the GPU types of hosts, each with the usable GPUs of its largest host."""
    largest: dict[str, int] = {}
    for host in hosts:
        if host.usable > largest.get(host.gpu_type, 0):
            largest[host.gpu_type] = host.usable
    return tuple(largest.items())


class Index(Protocol):
    """What a planner has computed for earlier snapshots of a state. It saves time only: a policy
    decides the same without it. ``scheduling.cluster_index`` implements it."""

    def estimates(self, snapshot: Snapshot) -> Estimates:
        """Return the estimates of the snapshot's jobs."""


@dataclass(frozen=True)
class Snapshot:
    """Everything that a decision may depend on. Jobs are in queue order, hosts in order of id.

    What its properties say of all hosts is computed once, as a policy asks for each queued job.
    """

    now_s: float
    mechanism: Mechanism
    queued: tuple[JobView, ...]
    """Accepted jobs without GPUs that may start, in queue order (priority, then place)."""
    running: tuple[JobView, ...]
    """Jobs that have GPUs or are promised some, frozen jobs included."""
    hosts: tuple[HostView, ...]
    profiles: ProfileBook = field(default_factory=ProfileBook)
    seed: int = 0
    explain: bool = True
    """True if the plan's options, and the text of a plan with targets, will be read. If false, a
    policy may leave both out, and ``about`` in a plan without targets; the targets stay the same.
    """
    index: Index | None = field(default=None, compare=False, repr=False)
    """The planner's index; None: policies compute everything from the other fields."""

    @cached_property
    def idle(self) -> tuple[HostView, ...]:
        """Return the hosts with idle GPUs. At most decisions these are few."""
        return tuple([host for host in self.hosts if host.idle])

    @cached_property
    def most_idle(self) -> int:
        """Return the largest number of idle GPUs on one host; 0 without hosts."""
        return max([host.idle for host in self.idle], default=0)

    @cached_property
    def largest(self) -> tuple[tuple[str, int], ...]:
        """Return the GPU types, each with the usable GPUs of its largest host."""
        return largest_of(self.hosts)


@fast_init
@dataclass(frozen=True, slots=True)
class Target:
    """A job shall have ``size`` GPUs on ``host``: a queued job starts, a running job shrinks or
    grows. Size 0: a running job is preempted (``Plan.preemption``); ``host`` is its own."""

    job: JobId
    size: int
    host: HostId
    """The host of its first worker."""
    shares: tuple[Share, ...] = ()
    """Its workers by host, if they are to be on several. Empty: all are on ``host``."""

    @property
    def all_hosts(self) -> tuple[HostId, ...]:
        """Return its hosts, each once."""
        return tuple([share.host for share in self.shares]) or (self.host,)


@fast_init
@dataclass(frozen=True, slots=True)
class Option:
    """One option that the policy evaluated. No targets: change nothing."""

    targets: tuple[Target, ...]
    makespan_s: float | None = None
    """Predicted makespan; None if the policy predicts none."""
    note: str = ""
    completion_sum_s: float | None = None
    """Sum of the predicted completion times, from now; the tie-break."""
    refused: str = ""
    """Reason to reject it although it may look better; empty if another option is better."""


@dataclass(frozen=True, slots=True)
class Preemption:
    """Why a plan preempts running jobs for the queued job that it starts. The round computes the
    figures again before the plan is applied, and the log has its figures, not the policy's."""

    reason: PreemptionReason
    wait_s: float = 0.0
    """Seconds for which the queued job has waited."""
    best_s: float = 0.0
    """Seconds that it needs alone, at the size and GPU type that suit it best."""


@dataclass(frozen=True, slots=True)
class Note:
    """A text that a plan writes about a job. Later snapshots show it (``JobView.notes``), also
    after a restart. A text replaces the job's text of this name; an empty text removes it."""

    job: JobId
    name: str
    text: str = ""


@dataclass(frozen=True)
class Plan:
    """A decision. Empty ``targets``: nothing shall change now."""

    targets: tuple[Target, ...] = ()
    reason_code: str = "nothing-to-do"
    text: str = ""
    about: JobId | None = None
    """The job that the decision is for."""
    options: tuple[Option, ...] = ()
    chosen: int | None = None
    """Index into ``options``."""
    weighed: int = 0
    """Number of evaluated options; ``options`` has the best of them. A running job counts once if
    none of its options could save enough."""
    wake_at_s: float | None = None
    """Of an empty plan: plan again at this time, even if nothing happens until then."""
    looked_up_to: JobId | None = None
    """Of an empty plan: the last queued job that the policy looked at. A job that is queued behind
    it from now on, without a ``max_wait_s``, is no reason to plan again."""
    preemption: Preemption | None = None
    """Required by a plan with a target of size 0."""
    assumed: tuple[str, ...] = ()
    """Inputs of the decision that no measurement or record gives, in words. The planner adds them
    to a plan that is explained."""
    notes: tuple[Note, ...] = ()
    """What the policy remembers about jobs. A plan without targets may have notes too."""


class Policy(Protocol):
    """A policy, as entry points and the registry provide it.

    With an attribute ``may_preempt`` that is true, its plans may have targets of size 0. With a
    method ``may_act(*, queued: bool, idle: bool) -> bool`` it is asked only where that is true, by
    whether a job is queued and a GPU is idle. Elsewhere its plan is ``Plan()``.
    """

    @property
    def name(self) -> str: ...

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the next decision. The engine applies it and asks again until a plan is empty."""
