"""The replay shell: an engine and a policy against the world in virtual time.

Does: the live loop's rounds (``scheduling.rounds``): all events of a moment in one round, with the
deadlines; then the commands. It treats all policies, jobs and times alike. A policy that fails ends
the replay, for its figures would be those of other decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reshape_controller.core import events as ev
from reshape_controller.core import invariants
from reshape_controller.core.commands import Command
from reshape_controller.core.engine import Engine
from reshape_controller.core.knowledge import Curve
from reshape_controller.core.limits import Limits
from reshape_controller.core.model import HostId, JobId, JobState, LengthUnit, Mechanism
from reshape_controller.core.plan import Plan, Policy
from reshape_controller.core.record import HistoryEntry
from reshape_controller.fits.convergence import Refits
from reshape_controller.replay.account import Account, Moment, Reshape
from reshape_controller.replay.event_queue import ticks_up
from reshape_controller.replay.ground_truth import Truth
from reshape_controller.replay.inputs import Cluster, Costs, PolicyError, ReplayError, Workload
from reshape_controller.replay.metrics import JobResult, ReplayMetrics, job_rows, measure
from reshape_controller.replay.rare_collections import rare_collections
from reshape_controller.replay.world import World
from reshape_controller.scheduling import rounds
from reshape_controller.scheduling.planner import FailureKind, Planner, PolicyFailure
from reshape_controller.scheduling.rounds import Round
from reshape_profiles.schema import DEFAULT_TYPE, Profile

ROUNDS_AT_ONCE_MAX = 10_000
"""Largest number of rounds at one moment; more mean an endless exchange of engine and world."""
NEVER_S = 1e10
LIMITS = Limits(
    early_init_s=NEVER_S,
    save_min_s=NEVER_S,
    verify_s=NEVER_S,
    stop_s=NEVER_S,
    first_step_s=NEVER_S,
    end_s=NEVER_S,
    service_rules=1,
)
"""Limits without effect: nothing fails in a replay, so no start, save, stop or step is late."""


def limits_of(costs: Costs) -> Limits:
    """Return the limits of a replay; donors wait for imports only where the costs have their time,
    so that replays without it decide as before."""
    return replace(LIMITS, import_rules=1) if costs.import_s else LIMITS


@dataclass(frozen=True, slots=True)
class HostLoss:
    """A host that falls silent at a time, and is clean and back at a later one."""

    host: HostId
    at_s: float
    back_s: float


@dataclass(frozen=True, slots=True)
class Scene:
    """All inputs of a replay except the policy: workload and world."""

    workload: Workload
    cluster: Cluster
    costs: Costs
    profiles: tuple[Profile, ...]
    truth: Truth
    report_every_s: float | None = None
    """Interval of reports of a running process; None: intervals that double."""
    losses: tuple[HostLoss, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """A plan of the policy and its time."""

    at_s: float
    plan: Plan


@dataclass(frozen=True, slots=True)
class PastRound:
    """A round of a replay: all that a record of a log has of it."""

    at_s: float
    events: tuple[ev.Event, ...]
    plans: tuple[Plan, ...]
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a replay."""

    policy: str
    mechanism: Mechanism
    seed: int
    metrics: ReplayMetrics
    jobs: tuple[JobResult, ...]
    reshapes: tuple[Reshape, ...]
    events: tuple[HistoryEntry, ...] = ()
    """The history. Like course and decisions it is empty unless ``keep`` was set."""
    course: tuple[Moment, ...] = ()
    decisions: tuple[PolicyDecision, ...] = ()
    rounds: tuple[PastRound, ...] = ()
    """All rounds; empty unless ``keep`` was set."""
    length_errors: tuple[float, ...] = ()
    """Predicted / true length - 1, for each curve that reaches its running job's target."""
    pending: tuple[tuple[float, int], ...] = ()
    """Time of each decision on a submission, and the jobs that still wait after it."""
    engine_events: int = 0
    """Number of events that the engine handled."""


def replay(
    scene: Scene,
    policy: Policy,
    mechanism: Mechanism,
    *,
    seed: int = 0,
    keep: bool = False,
    check: bool = False,
    planner: Planner | None = None,
) -> Result:
    """Replay a workload to its end, and return the result.

    ``keep``: also record history, decisions and course; ``check``: check the invariants after each
    round; ``planner``: makes the policy's plans (to time them). Raises ReplayError, PolicyError.
    """
    shell = Shell(scene, policy, mechanism, seed, keep, check, planner)
    with rare_collections():
        shell.run()
    return shell.result()


class Shell:
    """A replay: engine, world and account, and the rounds between them."""

    def __init__(
        self,
        scene: Scene,
        policy: Policy,
        mechanism: Mechanism,
        seed: int,
        keep: bool = False,
        check: bool = False,
        planner: Planner | None = None,
    ) -> None:
        self.scene, self.policy, self.mechanism, self.seed = scene, policy, mechanism, seed
        self.keep, self.check = keep, check
        self.engine = Engine(explains=keep)
        self.planner = planner or Planner(policy)
        self.world = World(scene.cluster, scene.costs, scene.truth, mechanism, scene.report_every_s)
        self.account = Account(len(scene.workload.jobs), keep)
        self.account.since_s = ticks_up(scene.workload.jobs[0].submit_s)
        self.history: list[HistoryEntry] = []
        self.decisions: list[PolicyDecision] = []
        self.rounds: list[PastRound] = []
        self.length_errors: list[float] = []
        self.pending: list[tuple[float, int]] = []
        self.count = 0
        self.refits = _refits(scene.workload)

    def run(self) -> None:
        scene, world = self.scene, self.world
        for entry in scene.workload.jobs:
            job = JobId(entry.spec.name)
            world.add_job(job, entry.spec)
            world.schedule(entry.submit_s, ev.JobSubmitted(job, entry.spec))
        for loss in scene.losses:
            world.schedule(loss.at_s, ev.HostFellSilent(loss.host, "lost in the replay"))
            world.schedule(loss.back_s, ev.HostCleaned(loss.host, "back in the replay"))
        self.round(self._first_events(), 0.0)
        self.run_on(0.0)
        self._check_all_ended()

    def run_on(self, last_s: float) -> None:
        """Run rounds until nothing more happens. Raises ReplayError."""
        world, repeats = self.world, 0
        while (now_s := self._next_s()) is not None:
            repeats = repeats + 1 if now_s == last_s else 0
            if repeats > ROUNDS_AT_ONCE_MAX:
                raise ReplayError(f"more than {ROUNDS_AT_ONCE_MAX} rounds at {now_s} s: a defect")
            last_s, events = now_s, world.advance(now_s)
            if events or self.keep or self._is_due(now_s):
                self.round(events, now_s)

    def round(self, events: Sequence[ev.Event], now_s: float) -> Round:
        """Do a round, book it and carry out its commands. Raises PolicyError."""
        engine = self.engine
        if engine.next_deadline_s(now_s) is not None:
            events = [*events, ev.DeadlinesDue()]
        done = rounds.run(engine, self.planner, events, now_s)
        for decision in done.decisions:
            if decision.failure is not None:
                raise _policy_error(decision.failure) from decision.failure.error
        if self.keep:
            self.history += done.history
            plans = (plan for plan in done.plans if plan.targets or plan.options)
            self.decisions += (PolicyDecision(now_s, plan) for plan in plans)
            self.rounds.append(PastRound(now_s, tuple(events), done.plans, done.commands))
        submitted = False
        for event in events:
            if isinstance(event, ev.JobSubmitted):
                submitted = True
            elif isinstance(event, ev.CurveFitted) and event.job is not None:
                self._record_length_error(event.job, event.curve)
        self.count += len(events)
        if self.check:
            invariants.check(engine.state)
        self.account.book(engine.state, engine.drain_changes(), now_s)
        if commands := done.commands:
            self.world.carry_out(commands, engine.desired)
        if self.refits is not None:
            for fitted in self.refits.due(engine.state):
                self.world.schedule(now_s, fitted)
        if submitted:
            self.pending.append((now_s, self.account.pending))
        return done

    def _record_length_error(self, job: JobId, curve: Curve) -> None:
        truth = self.world.lives[job].truth
        length = truth.spec.length
        if job not in self.engine.state.jobs or length is None:
            return
        step = curve.step_of(length.value)
        if step is not None:
            self.length_errors.append(step / truth.total_steps - 1.0)

    def result(self) -> Result:
        rows = job_rows(self.account)
        gpus = self.scene.cluster.gpus
        return Result(
            policy=self.policy.name,
            mechanism=self.mechanism,
            seed=self.seed,
            metrics=measure(self.account, rows, self.account.ended, gpus, self.pending[-1][1]),
            jobs=rows,
            reshapes=tuple(self.account.reshapes),
            events=tuple(self.history),
            course=tuple(self.account.course),
            decisions=tuple(self.decisions),
            rounds=tuple(self.rounds),
            length_errors=tuple(self.length_errors),
            pending=tuple(self.pending),
            engine_events=self.count,
        )

    def _first_events(self) -> list[ev.Event]:
        scene, limits = self.scene, limits_of(self.scene.costs)
        assumed = Profile(DEFAULT_TYPE, f"costs: {scene.costs.name}", overhead=scene.costs.overhead)
        return [
            ev.ControllerStarted(1, self.policy.name, self.mechanism, limits, self.seed),
            *(ev.ProfileRecorded(profile) for profile in (*scene.profiles, assumed)),
            *(ev.HostAdded(host.id, host.gpu_type, host.gpu_ids()) for host in scene.cluster.hosts),
        ]

    def _next_s(self) -> float | None:
        """Return the time of the next event or deadline; None if all has ended."""
        if self.engine.wants_plan():
            return self.engine.state.now_s
        next_s = self.world.next_s()
        if next_s is None:
            return self.engine.next_deadline_s() if self.engine.state.jobs else None
        due_s = self.engine.next_deadline_s(next_s)
        return next_s if due_s is None else due_s

    def _is_due(self, now_s: float) -> bool:
        """Whether the engine has something to do at a time that brings no event."""
        return self.engine.wants_plan() or self.engine.next_deadline_s(now_s) is not None

    def _check_all_ended(self) -> None:
        left = list(self.engine.state.jobs.values())
        if left:
            named = ", ".join(f"{job.spec.name} ({job.reason})" for job in left[:3])
            count = "1 job never ends" if len(left) == 1 else f"{len(left)} jobs never end"
            raise ReplayError(
                f"{count} under {self.policy.name}: {named}; perhaps no host of the cluster has "
                "enough GPUs"
            )
        failed = [job for job in self.account.ended if job.state != JobState.COMPLETED]
        if failed:
            raise ReplayError(f"{failed[0].id} is {failed[0].state}, and no job can be: a defect")


def _policy_error(failure: PolicyFailure) -> PolicyError:
    match failure.kind:
        case FailureKind.POLICY_FAILED:
            what = f"fails: {failure.error!r}"
        case FailureKind.PLAN_REJECTED:
            what = f"makes a plan that breaks a rule: {failure.error}"
    return PolicyError(f"at {failure.at_s} s the policy {failure.policy} {what}")


def _refits(workload: Workload) -> Refits | None:
    """Return the fits of accuracy curves; None if no job has a target accuracy."""
    lengths = (job.spec.length for job in workload.jobs)
    if all(one is None or one.unit is not LengthUnit.TARGET_ACCURACY for one in lengths):
        return None
    return Refits()
