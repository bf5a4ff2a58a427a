"""Every rule by which a plan is refused: it names itself, and the plan changes nothing.

The last test finds each ``raise PlanRejected`` of the product, so that no rule comes without a case
here.
"""

from __future__ import annotations

import ast
import traceback
from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.model import (
    GpuId,
    HostId,
    JobId,
    JobState,
    Mechanism,
    ReshapeIf,
    Share,
    Spans,
)
from reshape_controller.core.plan import Note, Plan, Preemption, Snapshot, Target
from reshape_controller.core.record import LogRecord
from reshape_controller.core.states import PreemptionReason
from reshape_controller.live.projection import changes_of
from reshape_controller.scheduling.planner import FailureKind, Planner
from reshape_sidecar.wire import Saves
from tests.support.world import World

CONTROLLER = Path(__file__).parents[3] / "controller" / "reshape_controller"
A, NEW = JobId("a"), JobId("new")
PRIORITY, OVERDUE = PreemptionReason.PRIORITY, PreemptionReason.OVERDUE


def plan(
    *targets: tuple[str, int], host: str = "host-0", why: PreemptionReason | None = None
) -> Plan:
    found = tuple(Target(JobId(job), size, HostId(host)) for job, size in targets)
    because = Preemption(why) if why is not None else None
    return Plan(found, "test", about=found[0].job, preemption=because)


def two_running(**fields: object) -> World:
    """``a`` and ``b`` train on two GPUs of host-0 each; host-1 is idle."""
    world = World().boot(4, hosts=2)
    world.running("a", 2, 1, 2, 4, **fields)
    world.running("b", 2, 1, 2, 4)
    return world


def full(*, priority: int = 1, run_s: float = 400.0, **fields: object) -> World:
    """``a`` has trained on all GPUs for ``run_s``; ``new`` waits for as many."""
    world = World().boot(4)
    world.running("a", 4, 4, **fields)
    world.train("a", 10)
    world.wait(run_s)
    world.submit("new", 4, priority=priority)
    return world


Case = tuple[World, Plan]


def shrinks_under_mechanism_none() -> Case:
    world = World(mechanism=Mechanism.NONE).boot(4)
    world.running("a", 2, 1, 2)
    return world, plan(("a", 1))


def two_receivers() -> Case:
    world = two_running()
    for name in ("c", "d"):
        world.submit(name, 1)
    return world, plan(("c", 1), ("d", 1), ("a", 1))


def frozen() -> Case:
    world = two_running()
    world.container("b").saves = False
    world.plan(("b", 1))
    return world, plan(("b", 2))


def drained() -> Case:
    world = two_running()
    world.submit("new", 1)
    world.event(ev.HostDrained(HostId("host-1")))
    return world, plan(("new", 1), host="host-1")


def files_elsewhere() -> Case:
    world = World().boot(4, hosts=2)
    world.one_host = {A: None}
    world.running("a", 2, 2)
    return world, plan(("a", 2), host="host-1")


def unreachable() -> Case:
    world = two_running()
    world.event(ev.SideCarFellSilent(A, 1))
    return world, plan(("a", 1))


def initialized() -> Case:
    world = World().boot(4, hosts=2)
    world.running("a", 4, 2, 4)
    world.submit("new", 2)
    world.container("a").saves = False
    world.plan(("new", 2), ("a", 2))
    world.save_deadline_passes("a")
    assert world.job("new").state is JobState.INITIALIZED
    return world, plan(("new", 2), host="host-1")


def waits_for_a_retry() -> Case:
    world = two_running()
    world.kill_container("a")
    return world, plan(("a", 1))


def refused_to_save() -> Case:
    world = two_running()
    world.container("a").saves = False
    world.plan(("a", 1))
    world.save_deadline_passes("a")
    return world, plan(("a", 1))


def donor_elsewhere() -> Case:
    world = two_running()
    world.submit("new", 2)
    targets = (Target(NEW, 2, HostId("host-1")), Target(A, 1, HostId("host-0")))
    return world, Plan(targets, "test", about=NEW)


def donor_too_many() -> Case:
    world = two_running()
    world.submit("new", 1)
    return world, plan(("new", 1), ("a", 1), ("b", 1))


def too_few_idle() -> Case:
    world = two_running()
    world.submit("new", 2)
    return world, plan(("new", 2))


def loses_steps() -> Case:
    world = World().boot(4)
    world.new_containers[A] = {"program": Saves.NEVER}
    world.running("a", 4, 4, may_restart=True)
    world.wait(400.0)
    world.submit("new", 4, priority=1)
    return world, plan(("new", 4), ("a", 0), why=PRIORITY)


def preempted_a_short_time_ago() -> Case:
    world = full(priority=0, run_s=1800.0)
    world.plan(("new", 4), ("a", 0), preempts=OVERDUE)
    world.finish("new")
    world.plan(("a", 4))
    world.wait(1800.0)
    world.submit("new", 4)
    return world, plan(("new", 4), ("a", 0), why=OVERDUE)


def shrinks_would_do() -> Case:
    world = World().boot(4)
    world.running("a", 4, 2, 4)
    world.wait(400.0)
    world.submit("new", 2, priority=1)
    return world, plan(("new", 2), ("a", 0), why=PRIORITY)


def gang(
    *shares: tuple[str, int],
    span: Spans = Spans.ANY,
) -> Case:
    """``new`` with its two workers on hosts, half of its four GPUs for each worker."""
    world = World().boot(4, hosts=2)
    world.event(ev.HostAdded(HostId("other"), "P100", (GpuId("p0"), GpuId("p1"))))
    world.submit("new", 4, workers=2, span=span)
    named = shares or (("host-0", 1), ("host-1", 1))
    placed = tuple(Share(HostId(host), workers) for host, workers in named)
    return world, Plan((Target(JobId("new"), 4, placed[0].host, placed),), "test")


TO_NEW = (("new", 4), ("a", 0))
ENGINE: dict[str, Callable[[], Case]] = {
    "mechanism none: a plan must not reshape running jobs": shrinks_under_mechanism_none,
    "a plan with shrinks may have one receiver at most, not c, d": two_receivers,
    "x: no such job": lambda: (two_running(), plan(("x", 1))),
    "a: the plan names it twice": lambda: (two_running(), plan(("a", 1), ("a", 1))),
    "b: is frozen by an earlier decision (saving)": frozen,
    "a: its trajectory is unknown (no verdict yet), and reshape_if is exact": lambda: (
        two_running(reshape_if=ReshapeIf.EXACT),
        plan(("a", 1)),
    ),
    "a: 3 is not in its GPU counts (1, 2, 4)": lambda: (two_running(), plan(("a", 3))),
    "new: host host-1 cannot be used": drained,
    "a: can run only on host-0, not on host-1": files_elsewhere,
    "a: its SideCar is unreachable": unreachable,
    "new: is initialised on host-0, not host-1": initialized,
    "new: shares name host-0, host-0, and host is host-0": lambda: gang(
        ("host-0", 1), ("host-0", 1)
    ),
    "new: shares place 3 of its 2 workers": lambda: gang(("host-0", 1), ("host-1", 2)),
    "new: its span is never, so it cannot be on host-0 and host-1": lambda: gang(span=Spans.NEVER),
    "new: its workers would have GPUs of types V100, P100": lambda: gang(
        ("host-0", 1), ("other", 1)
    ),
    "new: its span is if-needed, and host-0 has room for all 4 GPUs now": lambda: gang(
        span=Spans.IF_NEEDED
    ),
    "a: waits for its retry after a failure": waits_for_a_retry,
    "a: has 2 GPUs already": lambda: (two_running(), plan(("a", 2))),
    "a: is on host-0, new on host-1": donor_elsewhere,
    "b: would give GPUs that new does not take": donor_too_many,
    "a: refused to save a short time ago": refused_to_save,
    "new: 2 idle GPUs on host-0, not 0": too_few_idle,
    "a: the plan gives no reason to preempt it": lambda: (full(), plan(*TO_NEW)),
    "a: only a queued job can preempt it": lambda: (full(), plan(("a", 0), why=PRIORITY)),
    "a: it cannot save its steps, so no job preempts it": loses_steps,
    "a: has run 299 s of its min_runtime_s of 300 s": lambda: (
        full(run_s=299.0),
        plan(*TO_NEW, why=PRIORITY),
    ),
    "a: new has priority 0, a 0: only a higher one preempts": lambda: (
        full(priority=0),
        plan(*TO_NEW, why=PRIORITY),
    ),
    "a: has run 400 s of the 1800 s before a job of equal priority preempts it": lambda: (
        full(priority=0),
        plan(*TO_NEW, why=OVERDUE),
    ),
    "a: was preempted 1800 s ago; at equal priority once in 3600 s": preempted_a_short_time_ago,
    "new: it can start if a give GPUs and train on, so none is preempted": shrinks_would_do,
    "wake_at_s is inf: give a time, or None for no time": lambda: (
        two_running(),
        Plan(wake_at_s=inf),
    ),
    "the plan writes 257 notes; 256 are the most": lambda: (
        two_running(),
        Plan(notes=(Note(A, "n"),) * 257),
    ),
    "x: no such job, so it gets no note 'n'": lambda: (
        two_running(),
        Plan(notes=(Note(JobId("x"), "n"),)),
    ),
    "a: the plan writes its note n twice": lambda: (two_running(), Plan(notes=(Note(A, "n"),) * 2)),
    "a: would have 17 notes; 16 are the most; an empty text removes a note": lambda: (
        two_running(),
        Plan(notes=tuple(Note(A, f"n{number}", "1") for number in range(17))),
    ),
    "a: the name of a note has 0 characters; 1 to 40 are allowed": lambda: (
        two_running(),
        Plan(notes=(Note(A, "", "1"),)),
    ),
    "a: the text of a note is not a text": lambda: (
        two_running(),
        Plan(notes=(Note(A, "n", 1),)),  # type: ignore[arg-type]
    ),
    "a: the text of a note is not one line of plain text": lambda: (
        two_running(),
        Plan(notes=(Note(A, "n", "1\n2"),)),
    ),
}
"""Rules that the engine checks, in its words."""
ROUND: dict[str, Callable[[], Case]] = {
    "policy says may not preempt: it has no may_preempt": lambda: (
        full(),
        plan(*TO_NEW, why=PRIORITY),
    ),
    "a: only a queued job can preempt it": lambda: (full(), plan(("a", 0), why=PRIORITY)),
    "new: the reason overdue does not hold: waited 0 s of ": lambda: (
        full(run_s=1800.0),
        plan(*TO_NEW, why=OVERDUE),
    ),
}
"""Rules that the round checks before the engine sees the plan."""


class Says:
    """Returns the plan that it was given."""

    name = "says"

    def __init__(self, plan: Plan, *, may_preempt: bool) -> None:
        self._plan, self.may_preempt = plan, may_preempt

    def decide(self, snapshot: Snapshot) -> Plan:
        return self._plan


def by_engine(rule: str) -> PlanRejected:
    """The refusal of a plan that is put to the engine; it changes nothing."""
    world, refused = ENGINE[rule]()
    before = world.engine.state.dump()[1:]
    with pytest.raises(PlanRejected) as rejected:
        world.engine.apply(refused, world.now_s)
    assert rule in rejected.value.reason
    assert world.engine.state.dump()[1:] == before
    return rejected.value


def by_round(rule: str) -> PlanRejected:
    """The refusal of a plan of a policy."""
    world, refused = ROUND[rule]()
    policy = Says(refused, may_preempt="may_preempt" not in rule)
    decision = Planner(policy).decide(world.engine, world.now_s)
    assert decision.failure is not None
    assert isinstance(decision.failure.error, PlanRejected)
    assert rule in decision.failure.error.reason
    return decision.failure.error


@pytest.mark.parametrize("rule", ENGINE)
def test_the_engine_refuses_a_plan_by_the_name_of_its_rule(rule: str) -> None:
    by_engine(rule)


@pytest.mark.parametrize("rule", ROUND)
def test_the_round_refuses_a_preemption_by_the_name_of_its_rule(rule: str) -> None:
    by_round(rule)


def test_users_see_the_rule_that_refused_the_plan_about_their_job() -> None:
    world, refused = too_few_idle()
    world.engine.drain_changes()
    decision = Planner(Says(refused, may_preempt=False)).decide(world.engine, world.now_s)
    rule = "new: 2 idle GPUs on host-0, not 0"
    applied = decision.plan
    assert (applied.targets, applied.reason_code) == ((), FailureKind.PLAN_REJECTED.value)
    assert world.job("new").reason == rule
    record = LogRecord(1, 1, "", "says", world.now_s, (), (applied,), (), "")
    (shown,) = changes_of(world.engine, record, ()).decisions
    assert shown.plan.about == NEW
    assert [(option.targets, option.refused) for option in shown.plan.options] == [
        (refused.targets, rule)
    ]


def raising_lines() -> set[tuple[str, int]]:
    """The file and first line of each ``raise PlanRejected``."""
    found = set()
    for path in CONTROLLER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Raise(exc=ast.Call(func=ast.Name(id="PlanRejected"))):
                    found.add((path.name, node.lineno))
    return found


def test_no_rule_is_without_a_case_here() -> None:
    errors = [by_engine(rule) for rule in ENGINE] + [by_round(rule) for rule in ROUND]
    raised = set()
    for error in errors:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raised.add((Path(frame.filename).name, frame.lineno))
    assert raised == raising_lines()
