"""The replay shell: one engine and one policy against the world in virtual time.

Does: what the live loop does, in its order: all events of one moment in one round, deadlines with
them, then plans until the policy has none, then the commands are carried out. Never: decides, or
treats a policy, a job or a time in a way of its own. State: the engine, the world, the account.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from reshape_controller.core import events as ev
from reshape_controller.core import invariants
from reshape_controller.core.commands import Command
from reshape_controller.core.engine import Engine, Step
from reshape_controller.core.limits import PLAN_ROUNDS_MAX, Limits
from reshape_controller.core.model import JobId, JobState, LengthUnit, Mechanism
from reshape_controller.core.plan import Plan, Policy
from reshape_controller.core.profile_book import Curve
from reshape_controller.core.record import HistoryEntry
from reshape_controller.fits.convergence import Refits
from reshape_controller.replay.account import Account, Moment, Reshape
from reshape_controller.replay.event_queue import ticks_up
from reshape_controller.replay.ground_truth import Truth
from reshape_controller.replay.inputs import Cluster, Costs, ReplayError, Workload
from reshape_controller.replay.metrics import JobRow, Metrics, job_rows, measure
from reshape_controller.replay.world import World
from reshape_profiles.schema import DEFAULT_TYPE, Profile

ROUNDS_AT_ONCE_MAX = 10_000
"""Rounds at one moment: more mean that engine and world answer each other for ever."""
COLLECT_AFTER = 20_000
"""Values that are made, and not freed yet, before cycles are looked for."""
NEVER_S = 1e10
LIMITS = Limits(
    early_init_s=NEVER_S,
    save_min_s=NEVER_S,
    verify_s=NEVER_S,
    stop_s=NEVER_S,
    first_step_s=NEVER_S,
    end_s=NEVER_S,
)
"""Nothing fails in a replay, so nothing is too late: neither a start, save or stop nor a step,
however long it takes."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything around a decision but the policy: what is replayed, and in which world."""

    workload: Workload
    cluster: Cluster
    costs: Costs
    profiles: tuple[Profile, ...]
    truth: Truth
    report_every_s: float | None = None
    """Running processes report so often; None: ever more seldom."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A plan that the policy made."""

    at_s: float
    plan: Plan


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a replay."""

    policy: str
    mechanism: Mechanism
    seed: int
    metrics: Metrics
    jobs: tuple[JobRow, ...]
    reshapes: tuple[Reshape, ...]
    events: tuple[HistoryEntry, ...] = ()
    """The history; only if it was to be kept, like the next three."""
    course: tuple[Moment, ...] = ()
    decisions: tuple[Decided, ...] = ()
    length_errors: tuple[float, ...] = ()
    """Predicted over true length, less one, by each curve of a running job that reaches its target
    accuracy; always kept."""
    pending: tuple[tuple[float, int], ...] = ()
    """Jobs that wait after each submission was decided on."""
    engine_events: int = 0
    """Events that the engine took in."""


def replay(
    scene: Scene,
    policy: Policy,
    mechanism: Mechanism,
    *,
    seed: int = 0,
    keep: bool = False,
    check: bool = False,
    on_decision: Callable[[Engine], Plan] | None = None,
) -> Result:
    """Replay a workload to its end.

    ``keep``: also the history, decisions and course; ``check``: the invariants after each round;
    ``on_decision``: stands in for ``policy.decide`` (to time it). Raises ReplayError, PlanRejected.
    """
    run = Shell(scene, policy, mechanism, seed, keep, check, on_decision)
    with _seldom_collected():
        run.to_the_end()
    return run.result()


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """A replay makes millions of values that are gone at once, and next to no cycles: looking for
    those after every 700 values is a twelfth of its time."""
    first, *others = gc.get_threshold()
    gc.set_threshold(max(first, COLLECT_AFTER) if first else 0, *others)
    try:
        yield
    finally:
        gc.set_threshold(first, *others)


class Shell:
    """One replay: engine, world and account, and the rounds between them."""

    def __init__(
        self,
        scene: Scene,
        policy: Policy,
        mechanism: Mechanism,
        seed: int,
        keep: bool = False,
        check: bool = False,
        on_decision: Callable[[Engine], Plan] | None = None,
    ) -> None:
        self.scene, self.policy, self.mechanism, self.seed = scene, policy, mechanism, seed
        self.keep, self.check = keep, check
        self.engine = Engine(explains=keep)
        self.world = World(scene.cluster, scene.costs, scene.truth, mechanism, scene.report_every_s)
        self.account = Account(len(scene.workload.jobs), keep)
        self.account.since_s = ticks_up(scene.workload.jobs[0].submit_s)
        self.history: list[HistoryEntry] = []
        self.decisions: list[Decided] = []
        self.length_errors: list[float] = []
        self.pending: list[tuple[float, int]] = []
        self.count = 0
        self.refits = _refits(scene.workload)
        self._decide = on_decision or (lambda engine: policy.decide(engine.snapshot()))

    def to_the_end(self) -> None:
        scene, world = self.scene, self.world
        for entry in scene.workload.jobs:
            job = JobId(entry.spec.name)
            world.born(job, entry.spec)
            world.expect(entry.submit_s, ev.JobSubmitted(job, entry.spec))
        self.round(self._beginning(), 0.0)
        self.run_on(0.0)
        self._all_ended()

    def run_on(self, last_s: float) -> None:
        """Round after round until nothing more happens. Raises ReplayError, PlanRejected."""
        world, rounds = self.world, 0
        while (now_s := self._next_s()) is not None:
            rounds = rounds + 1 if now_s == last_s else 0
            if rounds > ROUNDS_AT_ONCE_MAX:
                raise ReplayError(f"more than {ROUNDS_AT_ONCE_MAX} rounds at {now_s} s: a defect")
            last_s = now_s
            self.round(world.advance(now_s), now_s)

    def round(self, events: Sequence[ev.Event], now_s: float) -> None:
        """What the live loop does with a batch; the append is left out."""
        engine = self.engine
        if engine.next_deadline_s(now_s) is not None:
            events = [*events, ev.DeadlinesDue()]
        commands: list[Command] = []
        submitted = False
        for event in events:
            submitted = submitted or isinstance(event, ev.JobSubmitted)
            self._note(engine.step(event, now_s), commands)
            if isinstance(event, ev.CurveFitted) and event.job is not None:
                self._length_seen(event.job, event.curve)
        rounds = 0
        while engine.wants_plan() and rounds < PLAN_ROUNDS_MAX:
            rounds += 1
            plan = self._decide(engine)
            self._note(engine.apply(plan, now_s), commands)
            if self.keep and (plan.targets or plan.options):
                self.decisions.append(Decided(now_s, plan))
        self.count += len(events)
        if self.check:
            invariants.check(engine.state)
        self.account.book(engine.state, engine.drain_changes(), now_s)
        if commands:
            self.world.carry_out(commands, engine.desired)
        if self.refits is not None:
            for fitted in self.refits.due(engine.state):
                self.world.expect(now_s, fitted)
        if submitted:
            self.pending.append((now_s, self.account.pending))

    def _length_seen(self, job: JobId, curve: Curve) -> None:
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
            length_errors=tuple(self.length_errors),
            pending=tuple(self.pending),
            engine_events=self.count,
        )

    def _beginning(self) -> list[ev.Event]:
        scene = self.scene
        assumed = Profile(DEFAULT_TYPE, f"costs: {scene.costs.name}", overhead=scene.costs.overhead)
        return [
            ev.ControllerStarted(1, self.policy.name, self.mechanism, LIMITS, self.seed),
            *(ev.ProfileRecorded(profile) for profile in (*scene.profiles, assumed)),
            *(ev.HostAdded(host.id, host.gpu_type, host.gpu_ids()) for host in scene.cluster.hosts),
        ]

    def _next_s(self) -> float | None:
        """When the world or a deadline has something next; None: all has ended."""
        if self.engine.wants_plan():
            return self.engine.state.now_s
        next_s = self.world.next_s()
        if next_s is None:
            return self.engine.next_deadline_s() if self.engine.state.jobs else None
        due_s = self.engine.next_deadline_s(next_s)
        return next_s if due_s is None else due_s

    def _note(self, step: Step, commands: list[Command]) -> None:
        commands += step.commands
        if self.keep:
            self.history += step.history

    def _all_ended(self) -> None:
        left = list(self.engine.state.jobs.values())
        if left:
            named = ", ".join(f"{job.spec.name} ({job.reason})" for job in left[:3])
            raise ReplayError(
                f"{len(left)} jobs never end under {self.policy.name}: {named}; perhaps "
                "no host of the cluster has enough GPUs"
            )
        failed = [job for job in self.account.ended if job.state != JobState.COMPLETED]
        if failed:
            raise ReplayError(f"{failed[0].id} is {failed[0].state}, and no job can be: a defect")


def _refits(workload: Workload) -> Refits | None:
    """What fits accuracy curves; None where no job has a target."""
    lengths = (job.spec.length for job in workload.jobs)
    if all(one is None or one.unit is not LengthUnit.TARGET_ACCURACY for one in lengths):
        return None
    return Refits()
