"""A container that another controller suspends: its GPUs are free on evidence, its job waits."""

from __future__ import annotations

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.model import JobId, JobState, Mechanism, Stage
from tests.support.hand_over_scenes import STATES, in_state, mid_shrink
from tests.support.world import World

WHY = "suspended by a test"


def waits(world: World, name: str) -> None:
    """The job waits in its attempt: without GPUs, deadline or failure, and says why."""
    job = world.job(name)
    assert (job.state, job.stage, job.attempt) == (JobState.SUBMITTED, Stage.LAUNCHING, 1)
    assert (job.gpus, job.hand_over, job.deadline, job.failures) == ((), None, None, 0)
    assert WHY in (job.reason, job.suspended)


def test_the_gpus_of_a_suspended_job_are_free_once_their_release_is_verified() -> None:
    world = World().boot()
    world.running("a", 4, 4)
    world.dirty_gpus = {gpu.id for gpu in world.engine.state.gpus.values()}
    world.suspend("a")
    waits(world, "a")
    assert world.gpu_states() == ["releasing"] * 4, "only a check gives them to another job"
    world.dirty_gpus = set()
    world.settle()
    assert world.gpu_states() == ["idle"] * 4
    world.submit("b", 4)
    world.plan(("b", 4))
    assert world.job("b").stage is Stage.TRAINING


def test_a_suspended_job_goes_on_in_its_attempt_once_it_is_resumed() -> None:
    world = World().boot()
    world.running("a", 4, 4)
    world.suspend("a")
    world.settle()
    world.wait(100_000.0)
    waits(world, "a")
    world.admit("a")
    world.settle()
    assert world.job("a").stage is Stage.READY
    world.plan(("a", 4))
    assert (world.job("a").stage, world.job("a").attempt) == (Stage.TRAINING, 1)
    assert world.job("a").suspended == ""


def test_a_job_that_a_queueing_system_has_not_admitted_holds_no_gpus_and_has_no_deadline() -> None:
    world = World().boot()
    world.new_containers[JobId("a")] = {"slow_init": True}
    world.submit("a", 4)
    world.plan(("a", 4))
    assert world.gpu_states() == ["reserved"] * 4
    world.suspend("a")
    assert world.gpu_states() == ["idle"] * 4
    waits(world, "a")
    world.wait(100_000.0)
    waits(world, "a")
    world.admit("a")
    world.settle()
    assert world.job("a").stage is Stage.READY


def test_the_deadline_of_a_start_runs_from_the_admission() -> None:
    world = World().boot()
    world.new_containers[JobId("a")] = {"slow_init": True}
    world.submit("a", 4)
    world.plan(("a", 4))
    world.suspend("a")
    world.wait(1000.0)
    world.event(ev.ContainerAdmitted(JobId("a"), 1))
    assert world.job("a").deadline is not None
    world.wait(world.limits.early_init_s + 1)
    assert world.job("a").failures == 1


@pytest.mark.parametrize("moment", STATES)
@pytest.mark.parametrize("name", ["a", "b"])
def test_at_any_moment_of_a_hand_over_no_gpu_is_in_two_hands_and_nothing_fails(
    moment: str, name: str
) -> None:
    world = in_state(moment)
    if JobId(name) not in world.engine.state.jobs:
        assert (moment, name) in {("running", "b"), ("grow", "b")}
        return
    world.suspend(name)
    world.dirty_gpus = set()
    for container in world.containers.values():
        container.saves, container.slow_init = True, False
    world.settle()
    world.wait(2000.0)
    waits(world, name)
    assert all(job.failures == 0 for job in world.engine.state.jobs.values())
    assert not any(gpu.owner == name for gpu in world.engine.state.gpus.values())
    assert world.replay() == world.log


def test_a_job_that_was_asked_to_leave_ends_its_container_and_is_queued() -> None:
    world = World(mechanism=Mechanism.TERMINATE).boot()
    world.running("a", 4, 4)
    world.container("a").saves = False
    world.event(ev.HaltRequested(JobId("a"), "op"))
    assert world.job("a").stage is Stage.SAVING
    world.suspend("a")
    world.settle()
    assert (world.job("a").state, world.job("a").stage) == (JobState.HALTED, Stage.NONE)
    assert world.job("a").failures == 0
    assert world.gpu_states() == ["idle"] * 4


def test_a_container_that_is_suspended_while_it_ends_is_removed() -> None:
    world = World().boot()
    world.running("a", 4, 4)
    world.event(ev.CancelRequested(JobId("a"), "op"))
    world.suspend("a")
    world.settle()
    assert world.job("a").state is JobState.CANCELLED
    assert JobId("a") not in world.engine.state.jobs


def test_a_suspended_container_that_a_person_deletes_is_no_failure() -> None:
    world = World().boot()
    world.running("a", 4, 4)
    world.suspend("a")
    world.event(ev.ContainerGone(JobId("a"), 1, None, "deleted"))
    job = world.job("a")
    assert (job.stage, job.failures, job.suspended) == (Stage.NONE, 0, "")


def test_a_suspended_job_waits_through_a_restart_of_the_controller_and_holds_up_no_plan() -> None:
    world = World().boot()
    world.running("a", 4, 4)
    world.suspend("a")
    world.settle()
    world.event(ev.ControllerStarted(2, "test", world.mechanism, world.limits))
    waits(world, "a")
    assert not world.engine.state.observing, "a container without a process gives no answer"
    world.submit("b", 4)
    world.plan(("b", 4))
    assert world.job("b").stage is Stage.TRAINING


def test_the_same_reason_again_is_no_news() -> None:
    world = mid_shrink()
    world.suspend("a")
    before = world.kinds.copy()
    world.event(ev.ContainerSuspended(JobId("a"), 1, WHY))
    assert world.kinds == before
