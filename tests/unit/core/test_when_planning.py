"""When a decision is wanted: as soon as one can be other than the last one, and not before."""

from __future__ import annotations

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.model import JobId, Mechanism, Stage
from reshape_controller.core.plan import Plan
from reshape_controller.core.state import State
from tests.support.hand_over_scenes import two_jobs
from tests.support.world import World


def decided(world: World) -> World:
    """Nothing is to be done for now, says a policy."""
    world.apply(Plan())
    assert not world.engine.wants_plan()
    world.auto = False
    return world


def test_a_decision_waits_until_the_gpus_of_an_ended_job_are_free() -> None:
    world = decided(two_jobs())
    world.finish("a")
    assert not world.engine.wants_plan()
    world.verify()
    assert world.engine.wants_plan()


def test_a_decision_waits_until_the_gpus_of_a_cancelled_job_are_free() -> None:
    world = decided(two_jobs())
    world.event(ev.CancelRequested(JobId("a"), "ada"))
    assert not world.engine.wants_plan()
    world.settle()
    assert world.gpu_states() == ["idle"] * 4
    assert world.engine.wants_plan()


def test_a_job_that_is_cancelled_in_the_queue_makes_room_at_once() -> None:
    world = decided(two_jobs())
    world.event(ev.CancelRequested(JobId("b"), "ada"))
    assert world.engine.wants_plan()


def test_gpus_that_never_came_back_are_a_reason_to_decide() -> None:
    world = decided(two_jobs())
    world.finish("a")
    world.dirty_gpus = set(world.engine.state.gpus)
    world.wait(world.engine.state.limits.verify_s + 1.0)
    assert world.gpu_states() == ["quarantined"] * 4
    assert world.engine.wants_plan()


def started(*sizes: int, gpus: int, mechanism: Mechanism = Mechanism.SIDECAR) -> World:
    """A job starts on so many of four GPUs, and nothing was to be decided until its first step."""
    world = World().boot(4)
    world.engine.state.mechanism = mechanism
    world.submit("a", *sizes)
    world.new_containers[JobId("a")] = {"slow_init": True}
    world.plan(("a", gpus))
    decided(world)
    world.container("a").slow_init = False
    return world


def test_a_first_step_is_no_reason_to_decide_where_nobody_can_give_or_get_gpus() -> None:
    world = started(4, gpus=4)
    world.settle()
    assert world.job("a").stage is Stage.TRAINING
    assert not world.engine.wants_plan()


@pytest.mark.parametrize(("sizes", "gpus"), [((2, 4), 4), ((2,), 2)])
def test_a_first_step_is_one_where_the_job_can_give_or_gpus_are_idle(
    sizes: tuple[int, ...], gpus: int
) -> None:
    world = started(*sizes, gpus=gpus)
    world.settle()
    assert world.engine.wants_plan()


def test_a_first_step_is_none_under_a_mechanism_that_reshapes_nobody() -> None:
    world = started(2, 4, gpus=2, mechanism=Mechanism.NONE)
    world.settle()
    assert not world.engine.wants_plan()


def looked_up_to(name: str) -> World:
    """``a`` trains on all GPUs, ``b`` with priority 5 waits, and nobody behind was looked at."""
    world = World().boot(4)
    world.running("a", 4, 1, 2, 4)
    world.submit("b", 2, priority=5)
    world.apply(Plan(looked_up_to=JobId(name)))
    world.auto = False
    return world


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, False),
        ({"priority": 5}, False),
        ({"priority": 6}, True),
        ({"max_wait_s": 10.0}, True),
    ],
)
def test_who_comes_behind_all_that_are_looked_at_is_no_reason_to_decide(
    fields: dict[str, object], wanted: bool
) -> None:
    world = looked_up_to("b")
    world.submit("c", 2, **fields)
    assert world.engine.wants_plan() is wanted


def test_the_newest_plan_counts_and_the_one_up_to_whom_it_looked_has_to_wait_still() -> None:
    world = looked_up_to("b")
    world.apply(Plan())
    world.submit("c", 2)
    assert world.engine.wants_plan()
    world = looked_up_to("gone")
    world.submit("c", 2)
    assert world.engine.wants_plan()


def test_up_to_whom_was_looked_survives_a_dump() -> None:
    state = State.load(looked_up_to("b").engine.state.dump())
    assert state.looked_up_to == "b"


@pytest.mark.parametrize(("priority", "wanted"), [(1, True), (0, False)])
def test_a_job_that_trains_at_last_can_be_preempted_by_a_queued_one_of_higher_priority(
    priority: int, *, wanted: bool
) -> None:
    world = started(4, gpus=4)
    world.submit("high", 4, priority=priority)
    decided(world)
    world.container("a").slow_init = False
    world.settle()
    assert world.job("a").stage is Stage.TRAINING
    assert world.engine.wants_plan() is wanted


def test_jobs_that_train_and_jobs_of_equal_priority_are_no_reason_to_preempt() -> None:
    world = World().boot(4)
    world.running("high", 2, 2, priority=1)
    world.new_containers[JobId("a")] = {"slow_init": True}
    world.submit("a", 2)
    world.plan(("a", 2))
    world.submit("equal", 2)
    decided(world)
    world.container("a").slow_init = False
    world.settle()
    assert world.job("a").stage is Stage.TRAINING
    assert not world.engine.wants_plan()
    world.submit("higher", 2, priority=1)
    assert world.engine.wants_plan()
