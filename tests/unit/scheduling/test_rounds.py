"""A round: events, then plans until there are none; and what it makes of a failing policy."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.engine import Engine, Step
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.limits import PLAN_ROUNDS_MAX
from reshape_controller.core.model import JobId
from reshape_controller.core.plan import Plan, Snapshot, Target
from reshape_controller.core.record import LogRecord
from reshape_controller.policies import make_policy
from reshape_controller.scheduling import rounds
from reshape_controller.scheduling.planner import FailureKind, Planner
from reshape_sidecar import codec
from tests.support.world import HOST, World


@dataclasses.dataclass
class Scripted:
    """A policy that is a function."""

    decide: Callable[[Snapshot], Plan]
    name: str = "scripted"


def fails(snapshot: Snapshot) -> Plan:
    raise RuntimeError("a bug")


def breaks_a_rule(snapshot: Snapshot) -> Plan:
    return Plan((Target(snapshot.queued[0].id, 3, HOST),), "no such size", wake_at_s=99.0)


def returns_none(snapshot: Snapshot) -> Plan:
    return None  # type: ignore[return-value]


def submitted() -> World:
    """A host with four GPUs, and a job that waits."""
    world = World().boot(4)
    world.submit("a", 2, 4)
    return world


def record_of(done: rounds.Round, events: tuple[ev.Event, ...], at_s: float) -> LogRecord:
    return LogRecord(1, 1, "test", "test", at_s, events, done.plans, done.commands, "")


@pytest.mark.parametrize(
    ("decide", "kind", "text"),
    [
        (fails, FailureKind.POLICY_FAILED, "the policy failed: RuntimeError('a bug')"),
        (breaks_a_rule, FailureKind.PLAN_REJECTED, "a: 3 is not in its GPU counts (2, 4)"),
        (
            returns_none,
            FailureKind.POLICY_FAILED,
            "the policy failed: what it returned is no plan: document: None is not an object",
        ),
    ],
)
def test_an_empty_plan_takes_the_place_of_a_failed_one_and_the_failure_is_returned(
    decide: Callable[[Snapshot], Plan], kind: FailureKind, text: str
) -> None:
    world = submitted()
    before = world.job("a")
    done = rounds.run(world.engine, Planner(Scripted(decide)), (), 5.0)
    (plan,) = done.plans
    assert (plan.targets, plan.reason_code, plan.text) == ((), kind.value, text)
    (failure,) = [decision.failure for decision in done.decisions]
    assert failure is not None
    assert (failure.kind, failure.policy, failure.at_s) == (kind, "scripted", 5.0)
    assert isinstance(failure.error, PlanRejected) is (kind is FailureKind.PLAN_REJECTED)
    assert (done.commands, done.history, world.job("a")) == ((), (), before)
    assert not world.engine.wants_plan(), "it is asked again once something changes"
    assert world.engine.state.wake_at_s == 6.0, "or a second later; nothing of the plan is left"


@pytest.mark.parametrize("decide", [fails, breaks_a_rule])
def test_a_policy_that_fails_again_and_again_is_asked_ever_more_seldom(
    decide: Callable[[Snapshot], Plan],
) -> None:
    world, heals = submitted(), [False]
    ask = make_policy("adaptive").decide
    planner = Planner(Scripted(lambda snapshot: (ask if heals[0] else decide)(snapshot)))
    rounds.run(world.engine, planner, (), 0.0)
    at_s, pauses = 0.0, []
    for _ in range(9):
        wake_s = world.engine.state.wake_at_s
        assert wake_s is not None
        pauses.append(wake_s - at_s)
        at_s = wake_s
        assert rounds.run(world.engine, planner, (ev.DeadlinesDue(),), at_s).decisions
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    failure = planner.failure
    assert failure is not None
    assert (failure.since_s, failure.at_s, failure.in_a_row) == (0.0, at_s, 10)
    heals[0] = True
    done = rounds.run(world.engine, planner, (ev.DeadlinesDue(),), at_s + 60.0)
    assert done.decisions[0].plan.targets
    assert planner.failure is None


def test_later_events_of_the_same_kind_ask_a_failed_policy_again() -> None:
    world, asked = submitted(), [0]

    def fails_once(snapshot: Snapshot) -> Plan:
        asked[0] += 1
        return fails(snapshot) if asked[0] == 1 else make_policy("adaptive").decide(snapshot)

    planner = Planner(Scripted(fails_once))
    assert rounds.run(world.engine, planner, (), 0.0).decisions[0].failure
    event = ev.JobSubmitted(JobId("b"), dataclasses.replace(world.job("a").spec, name="b"))
    done = rounds.run(world.engine, planner, (event,), 1.0)
    assert not any(decision.failure for decision in done.decisions)
    assert {target.job for plan in done.plans for target in plan.targets} >= {"a"}


def test_the_index_of_a_failed_policy_is_not_used_again() -> None:
    world, indexes = submitted(), list[object]()

    def fails_once(snapshot: Snapshot) -> Plan:
        indexes.append(snapshot.index)
        return fails(snapshot) if len(indexes) == 1 else Plan()

    planner = Planner(Scripted(fails_once))
    for at_s in (0.0, 1.0, 2.0):
        rounds.run(world.engine, planner, (), at_s)
        world.submit(f"b{at_s:g}", 2)
    assert indexes[0] is not indexes[1], "it may hold a part of the snapshot only"
    assert indexes[1] is indexes[2]


def test_events_come_first_then_plans_until_one_is_empty_with_all_effects_in_order() -> None:
    world = World().boot(4)
    spec = dataclasses.replace(submitted().job("a").spec, optional_gpus=(2,))
    events = tuple(
        ev.JobSubmitted(JobId(name), dataclasses.replace(spec, name=name)) for name in "abc"
    )
    done = rounds.run(world.engine, Planner(make_policy("adaptive")), events, 7.0)
    assert [bool(plan.targets) for plan in done.plans] == [True, True, False]
    kinds = [entry.kind for entry in done.history]
    assert kinds[:3] == ["submitted"] * 3
    assert kinds.count("decided") == 2
    steps = [*done.steps, *(decision.step for decision in done.decisions)]
    assert done.commands == tuple(command for step in steps for command in step.commands)
    assert done.commands


def test_a_policy_that_never_ends_waits_for_the_next_round() -> None:
    world = submitted()

    class Endless(Engine):
        def apply(self, plan: Plan, now_s: float) -> Step:
            return Step((), ())

    engine = Endless(world.engine.state)
    done = rounds.run(engine, Planner(Scripted(lambda snapshot: Plan())), (), 0.0)
    assert len(done.plans) == PLAN_ROUNDS_MAX
    assert engine.wants_plan()


def test_the_text_of_a_plan_names_the_hosts_that_are_no_option() -> None:
    world = World().boot(4, hosts=2)
    world.one_host = {JobId("a"): None}
    world.running("a", 2, 2, 4)
    world.event(ev.HostDrained(HOST, "ann"))
    world.settle()
    done = rounds.run(world.engine, Planner(make_policy("adaptive")), (), 0.0)
    assert done.plans[-1].text.endswith("; host-1 is excluded: its files are on host-0")


def test_an_error_of_the_engine_names_the_event_and_its_number() -> None:
    world = World().boot(4)

    class Defect(Engine):
        def step(self, event: ev.Event, now_s: float) -> Step:
            if isinstance(event, ev.PinRequested):
                raise ZeroDivisionError("a defect")
            return super().step(event, now_s)

    engine, planner = Defect(world.engine.state), Planner(Scripted(fails))
    events = (ev.HostUndrained(HOST), ev.PinRequested(JobId("x"), 1))
    with pytest.raises(rounds.EventFailed, match="failed on PinRequested: ZeroDivision") as caught:
        rounds.run(engine, planner, events, 0.0)
    assert caught.value.number == 1
    assert caught.value.event is events[1]
    assert isinstance(caught.value.error, ZeroDivisionError)


@pytest.mark.parametrize("decide", [fails, breaks_a_rule, make_policy("adaptive").decide])
def test_a_recorded_round_is_redone_without_its_policy(
    decide: Callable[[Snapshot], Plan],
) -> None:
    engine, again = Engine(), Engine()
    planner, seq = Planner(Scripted(decide)), 0
    world = submitted()
    for _, at, text, *_ in world.log:
        seq += 1
        events = (codec.from_value(ev.Event, json.loads(text)),)
        done = rounds.run(engine, planner, events, float(at))
        redone = rounds.redo(again, record_of(done, events, float(at)))
        assert codec.dumps(redone.commands) == codec.dumps(done.commands)
        assert (redone.history, redone.plans) == (done.history, done.plans)
        assert again.state.dump() == engine.state.dump()
    assert seq == 3
    assert not engine.wants_plan()
