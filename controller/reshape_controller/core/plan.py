"""The snapshot that a policy sees and the plan that it returns. Values only.

A policy is a pure function ``decide(snapshot) -> Plan``. It commands nothing: the engine checks
the plan against the state, and rejects a plan that breaks a rule as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from reshape_controller.core.host_numbering import HostNumbering
from reshape_controller.core.knowledge import Curve, Measured
from reshape_controller.core.model import HostId, JobId, JobSpec, JobState, Length, Mechanism
from reshape_controller.core.profile_book import ProfileBook
from reshape_sidecar.wire import Progress

if TYPE_CHECKING:
    from reshape_controller.core.job_estimate import JobEstimate


Likeness = tuple[str | None, Length | None, int | None, tuple[int, ...], tuple[int, ...]]
"""All that the prediction of a job that has not begun depends on: its type, length and batch, its
optional numbers of GPUs, and those of them that are not excluded."""


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
    estimate: JobEstimate | None = field(default=None, init=False, compare=False, repr=False)
    """A cache of the predictor, which alone uses it. It is here because the loops over all jobs
    read it together with the fields above."""
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
    pinned: bool = False
    """True if a person allows it one size only."""
    trains: bool = False
    """True if a process of it trains now."""
    progress_at_s: float | None = None
    """Time of ``progress.step``; None while it does not train."""
    measured: tuple[Measured, ...] = ()
    """Seconds per step at the sizes that it has trained on."""
    reshape_cost_s: float | None = None
    curve: Curve | None = None


@dataclass(frozen=True, slots=True)
class HostView:
    """A usable host: present and not drained. ``idle`` counts GPUs that a plan may give away."""

    id: HostId
    gpu_type: str
    idle: int
    total: int
    usable: int = 0
    """GPUs that are neither quarantined nor lost."""


Renewed = dict[JobId, JobView | None]
"""The new view of each job whose view changed; None: the job is no longer queued or running."""
RENEWED_MIN = 1000
"""With more changed views than this, and than twice the jobs, the index is built again."""


@dataclass(slots=True, eq=False)
class IndexCache:
    """The cluster index between two snapshots of one state, with the views that changed since it
    was brought up to date. Only ``scheduling.cluster_index`` uses it."""

    running: Renewed = field(default_factory=dict)
    """Changed views of running jobs."""
    queued: Renewed = field(default_factory=dict)
    """Changed views of queued jobs."""
    shown: tuple[tuple[JobView, ...], tuple[JobView, ...]] = ((), ())
    """Queued and running jobs of the newest snapshot, which alone may use the index."""
    index: object = None
    """The cluster index; None: none yet."""

    def show(self, queued: tuple[JobView, ...], running: tuple[JobView, ...]) -> None:
        """Note that a snapshot with these views was built. Changes that no forecast uses are
        dropped, together with the index, before they pile up."""
        self.shown = queued, running
        if len(self.running) + len(self.queued) > 2 * (len(queued) + len(running)) + RENEWED_MIN:
            self.index = None
        if self.index is None:
            self.running.clear()
            self.queued.clear()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that a decision may depend on. Jobs are in queue order, hosts in order of id."""

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
    estimates: dict[Likeness, JobEstimate] = field(default_factory=dict, compare=False, repr=False)
    """Cached estimates of jobs that have not begun, shared by jobs of one ``Likeness``."""
    kept_numbering: HostNumbering | None = field(default=None, compare=False, repr=False)
    """Cached numbering of ``hosts``; None: ``numbering`` makes it."""
    kept_idle: tuple[HostView, ...] | None = field(default=None, compare=False, repr=False)
    """Cached hosts with idle GPUs; None: ``idle`` finds them."""
    kept: IndexCache | None = field(default=None, compare=False, repr=False)
    """Cached cluster index of the state; None: the forecast builds an index."""

    @property
    def numbering(self) -> HostNumbering:
        """Return the hosts by number."""
        return self.kept_numbering or HostNumbering.of(
            (host.id, host.gpu_type) for host in self.hosts
        )

    @property
    def idle(self) -> tuple[HostView, ...]:
        """Return the hosts with idle GPUs. At most decisions these are few."""
        if self.kept_idle is not None:
            return self.kept_idle
        return tuple(host for host in self.hosts if host.idle)


@dataclass(frozen=True, slots=True)
class Target:
    """A job shall have ``size`` GPUs on ``host``: a queued job starts, a running job shrinks or
    grows."""

    job: JobId
    size: int
    host: HostId


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


class Policy(Protocol):
    """A policy, as entry points and the registry provide it."""

    @property
    def name(self) -> str: ...

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the next decision. The engine applies it and asks again until a plan is empty."""
