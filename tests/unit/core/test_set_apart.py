"""An attempt that reported what cannot be: it keeps its GPUs, and nobody waits for its word."""

from __future__ import annotations

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.limits import LOCAL
from reshape_controller.core.model import JobId, JobState, Stage
from tests.support.hand_over_scenes import (
    STATES,
    assert_given_back,
    hand_over_begun,
    in_state,
    mid_shrink,
    two_jobs,
)
from tests.support.world import World

WHY = "it knows epoch 1000000"


def lies(world: World, name: str = "a") -> None:
    job = world.job(name)
    world.event(ev.SideCarContradicted(job.id, job.attempt, WHY))


def test_nothing_that_it_says_is_believed_any_more_and_a_person_is_told() -> None:
    world = two_jobs()
    lies(world)
    before = world.job("a")
    assert (before.reason, before.reachable) == (f"set apart: {WHY}", False)
    assert [entry.text for entry in world.entries("set-apart")] == [WHY]
    world.train("a", 100)
    world.finish("a")
    world.event(ev.SideCarFellSilent(JobId("a"), 1))
    assert world.job("a") == before
    assert world.gpu_states() == ["in use"] * 4


def test_its_gpus_are_in_no_plan_and_another_job_gets_none_of_them() -> None:
    world = two_jobs()
    lies(world)
    view = next(job for job in world.engine.snapshot().running if job.id == "a")
    assert view.frozen
    with pytest.raises(PlanRejected, match="unreachable"):
        world.plan(("b", 2), ("a", 2))


def test_before_it_is_asked_the_hand_over_ends_and_it_keeps_its_gpus() -> None:
    world = hand_over_begun()
    lies(world)
    assert world.job("b").hand_over is None
    assert_given_back(world)


def test_once_it_is_asked_nobody_waits_for_its_answer() -> None:
    world = mid_shrink()
    lies(world)
    assert world.job("b").hand_over is None
    a = world.job("a")
    assert (len(a.gpus), a.reason) == (4, f"set apart: {WHY}")
    assert all(gpu.promised_to is None for gpu in world.engine.state.gpus.values())
    world.wait(10_000.0)
    assert world.gpu_states() == ["in use"] * 4, "time takes no GPU"


@pytest.mark.parametrize("state", STATES)
def test_in_any_state_all_gpus_are_free_once_it_is_cancelled(state: str) -> None:
    world = in_state(state)
    world.dirty_gpus = set()
    lies(world)
    world.event(ev.CancelRequested(JobId("a")))
    world.wait(1000.0)
    world.settle()
    held = [gpu for gpu in world.engine.state.gpus.values() if gpu.owner == "a"]
    assert held == []
    assert world.job("a").state is JobState.CANCELLED


@pytest.mark.parametrize("early", [True, False])
def test_a_pause_removes_its_container_after_the_time_of_a_save(early: bool) -> None:
    world = mid_shrink()
    if early:
        world.event(ev.HaltRequested(JobId("a")))
    lies(world)
    world.event(ev.HaltRequested(JobId("a")))
    world.container("a").mute = True
    world.wait(LOCAL.save_min_s + LOCAL.kill_after_s + LOCAL.save_answer_s + 200.0)
    world.settle()
    assert world.job("a").state is JobState.HALTED
    assert world.gpu_states() == ["idle"] * 4


def test_a_start_waits_for_no_word_of_it() -> None:
    world = two_jobs()
    lies(world)
    world.event(ev.ControllerStarted(2, "test", world.mechanism, world.limits))
    assert not world.engine.state.observing


def test_its_next_attempt_is_believed_again() -> None:
    world = two_jobs()
    lies(world)
    world.kill_container("a")
    world.wait(60.0)
    world.plan(("a", 2))
    a = world.job("a")
    assert (a.attempt, a.stage, a.set_apart, a.reachable) == (2, Stage.TRAINING, "", True)


def test_a_word_about_an_earlier_attempt_changes_nothing() -> None:
    world = two_jobs()
    before = world.job("a")
    world.event(ev.SideCarContradicted(JobId("a"), 9, WHY))
    world.event(ev.SideCarContradicted(JobId("nobody"), 1, WHY))
    assert world.job("a") == before
