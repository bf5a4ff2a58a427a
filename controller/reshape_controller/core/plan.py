"""What a policy sees and what it answers. Values only.

A policy is a pure function ``decide(snapshot) -> Plan``. It commands nothing: the engine checks
the plan against the state, and a plan that breaks a rule is rejected whole.
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
optional numbers of GPUs, and those of them that may be used."""


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as a policy sees it. ``size`` is the later size where a change is under way (R1)."""

    id: JobId
    spec: JobSpec
    state: JobState
    place: int
    sizes: tuple[int, ...]
    """Optional numbers of GPUs that may be used: not struck."""
    size: int
    host: HostId | None
    frozen: bool
    """No plan may name it."""
    estimate: JobEstimate | None = field(default=None, init=False, compare=False, repr=False)
    """What the predictor made of all this; its cache, and nobody else's. It is here because the
    loops over all jobs read it with what is before it."""
    initialized: bool
    """Its container is up and waits (R9): starting it costs no initialisation, on ``host`` only."""
    submitted_at_s: float
    started_at_s: float | None
    not_before_s: float
    """A failed job's back-off: it may not start earlier."""
    no_shrink_before_s: float
    """After a refused save."""
    reshaped_at_s: float | None
    progress: Progress
    """Of a job that trains: as told by the newest report that told something new (``Trend``)."""
    growable: bool = True
    """Its length is known, so that it can be said what more GPUs would bring."""
    gpu_type: str = ""
    """Of ``host``."""
    only_host: HostId | None = None
    """No plan may put it elsewhere: its files can be reached from there alone."""
    unfit_on: tuple[HostId, ...] = ()
    """Hosts on which it could not start: others first."""
    pinned: bool = False
    trains: bool = False
    """A process of it trains now."""
    progress_at_s: float | None = None
    """When ``progress.step`` was seen to move; None while it does not train."""
    measured: tuple[Measured, ...] = ()
    reshape_cost_s: float | None = None
    curve: Curve | None = None


@dataclass(frozen=True, slots=True)
class HostView:
    """A usable host: present and not drained. ``idle`` counts GPUs that are nobody's."""

    id: HostId
    gpu_type: str
    idle: int
    total: int
    usable: int = 0
    """GPUs that are neither quarantined nor lost."""


Renewed = dict[JobId, JobView | None]
"""Jobs whose view was renewed; None: it is not among these jobs any more."""
RENEWED_MIN = 1000
"""More renewed views than this, and twice the jobs, are not followed one by one."""


@dataclass(slots=True, eq=False)
class IndexCache:
    """What the forecast of a snapshot keeps for that of the next one of the same state, and which
    views were renewed meanwhile. A cache of ``scheduling.standing``, and of nobody else."""

    running: Renewed = field(default_factory=dict)
    queued: Renewed = field(default_factory=dict)
    shown: tuple[tuple[JobView, ...], tuple[JobView, ...]] = ((), ())
    """Queued and running jobs of the newest snapshot; it is for that one alone."""
    index: object = None
    """What is kept; None: nothing yet."""

    def show(self, queued: tuple[JobView, ...], running: tuple[JobView, ...]) -> None:
        """A snapshot with these views is made. Where no forecast asks, nothing piles up."""
        self.shown = queued, running
        if len(self.running) + len(self.queued) > 2 * (len(queued) + len(running)) + RENEWED_MIN:
            self.index = None
        if self.index is None:
            self.running.clear()
            self.queued.clear()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that a decision may depend on. Jobs by place, hosts by id."""

    now_s: float
    mechanism: Mechanism
    queued: tuple[JobView, ...]
    """Accepted jobs without GPUs that may start, in queue order (priority, then place)."""
    running: tuple[JobView, ...]
    """Jobs that have GPUs or are promised some, frozen ones included."""
    hosts: tuple[HostView, ...]
    profiles: ProfileBook = field(default_factory=ProfileBook)
    seed: int = 0
    explained: bool = True
    """Whether somebody will look at the options of the plan, and at the text of one that does
    something. What is done is the same: a policy may leave these out, and name nobody in a plan
    that leaves running jobs as they are."""
    estimates: dict[Likeness, JobEstimate] = field(default_factory=dict, compare=False, repr=False)
    """What the predictor keeps of jobs that have not begun, for others that are alike."""
    kept_numbering: HostNumbering | None = field(default=None, compare=False, repr=False)
    """Of these hosts, by somebody who knows that they are the same as before."""
    kept_idle: tuple[HostView, ...] | None = field(default=None, compare=False, repr=False)
    """In the same way, those with idle GPUs."""
    kept: IndexCache | None = field(default=None, compare=False, repr=False)
    """By the state of which it is."""

    @property
    def numbering(self) -> HostNumbering:
        """The hosts by number."""
        return self.kept_numbering or HostNumbering.of(
            (host.id, host.gpu_type) for host in self.hosts
        )

    @property
    def idle(self) -> tuple[HostView, ...]:
        """The hosts with idle GPUs. Most decisions are made while there are few."""
        if self.kept_idle is not None:
            return self.kept_idle
        return tuple(host for host in self.hosts if host.idle)


@dataclass(frozen=True, slots=True)
class Target:
    """A job shall have ``size`` GPUs on ``host`` (a running job that shrinks or grows, or a queued
    one that starts)."""

    job: JobId
    size: int
    host: HostId


@dataclass(frozen=True, slots=True)
class Option:
    """One thing that was weighed. No targets: do nothing."""

    targets: tuple[Target, ...]
    makespan_s: float | None = None
    """Predicted makespan; None where the policy predicts none."""
    note: str = ""
    completion_sum_s: float | None = None
    """Sum of the predicted completion times, from now; the tie-break."""
    refused: str = ""
    """Why it was not taken although it may look better; empty where it simply lost."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A decision. Empty ``targets`` means that nothing shall change now."""

    targets: tuple[Target, ...] = ()
    reason_code: str = "nothing-to-do"
    text: str = ""
    about: JobId | None = None
    """The job for whose sake the decision was made."""
    options: tuple[Option, ...] = ()
    chosen: int | None = None
    """Index into ``options``."""
    weighed: int = 0
    """How many options were weighed; the best of them are kept in ``options``. A running job counts
    once if none of its options could save enough."""
    wake_at_s: float | None = None
    """Of an empty plan: ask again at this time, even if nothing happens until then."""
    looked_up_to: JobId | None = None
    """Of an empty plan: a job that is queued behind this one from now on, and waits no shorter than
    others, is no reason to ask again."""


class Policy(Protocol):
    """Entry points and the registry hold these."""

    @property
    def name(self) -> str: ...

    def decide(self, snapshot: Snapshot) -> Plan:
        """The next single decision. Called again after it was applied, until the plan is empty."""
