"""When a decision is wanted around the end of a job: once its GPUs are somebody's to have."""

from __future__ import annotations

from reshape_controller.core import events as ev
from reshape_controller.core.model import JobId
from reshape_controller.core.plan import Plan
from tests.hand_over_scenes import two_jobs
from tests.world import World


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
