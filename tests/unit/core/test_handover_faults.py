"""The hand-over, row by row: reports that lie, hosts and processes that die, clocks that jump."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.model import DeadlineKind, HostId, JobId, JobState, Stage
from reshape_sidecar.wire import Phase
from tests.support.hand_over_scenes import (
    STATES,
    assert_given_back,
    hand_over_begun,
    in_state,
    initialise,
    mid_shrink,
    two_jobs,
)
from tests.support.world import World


def test_two_donors_that_do_not_answer_are_each_given_the_withdrawals_time() -> None:
    world = World().boot()
    for name in ("a", "b"):
        world.running(name, 2, 1, 2)
        world.container(name).mute, world.container(name).saves = True, False
    world.submit("c", 2)
    world.plan(("c", 2), ("a", 1), ("b", 1))
    world.wait(world.limits.save_min_s + world.limits.save_answer_s + 1)
    assert world.kinds.count("deadline") == 1, "b's was renewed when its request was withdrawn"
    assert {world.job(name).reason for name in "abc"} == {"a did not answer the request to save"}


def test_late_and_duplicate_reports_change_nothing() -> None:
    world = hand_over_begun()
    late = world.container("a").observed()
    initialise(world)
    before = world.engine.state.dump()
    world.event(ev.SideCarReported(late))
    world.event(ev.SideCarReported(replace(late, sequence=10_000, attempt=0)))
    assert world.engine.state.dump() == before


def test_an_unreachable_victim_before_the_shrink_aborts_the_hand_over() -> None:
    world = hand_over_begun()
    world.container("a").reachable = False
    world.event(ev.SideCarFellSilent(JobId("a"), 1))
    initialise(world)
    assert_given_back(world)
    assert world.job("b").stage is Stage.READY
    assert "unreachable" in world.job("b").reason


def test_an_unreachable_victim_after_the_shrink_is_waited_for() -> None:
    world = hand_over_begun()
    world.container("a").reachable = False
    initialise(world)
    assert world.job("a").stage is Stage.SAVING
    world.event(ev.SideCarFellSilent(JobId("a"), 1))
    world.wait(10 * 60)
    assert world.job("a").stage is Stage.SAVING
    assert [g.state.value for g in world.engine.state.gpus.values()] == ["in use"] * 4
    world.container("a").reachable = True
    world.settle()
    assert world.job("b").stage is Stage.TRAINING
    assert len(world.job("a").gpus) == 2


def test_a_sidecar_that_never_answers_has_its_request_withdrawn() -> None:
    world = mid_shrink()
    world.auto = False
    world.wait(world.limits.save_min_s + world.limits.save_answer_s + 1)
    assert "withdrawn" in world.kinds
    world.auto = True
    world.settle()
    assert_given_back(world)


def test_a_released_gpu_that_is_not_empty_is_quarantined_with_the_reason() -> None:
    world = hand_over_begun()
    given = world.job("b").hand_over
    assert given is not None
    world.dirty_gpus = {given.gpus[1]}
    initialise(world)
    dirty = world.engine.state.gpus[given.gpus[1]]
    why = ev.ReleaseNotEmpty(JobId("a"), 1, dirty.generation, (dirty.id,), "1 GiB still used")
    world.event(why)
    world.wait(world.limits.verify_s + 1)
    dirty = world.engine.state.gpus[dirty.id]
    assert (dirty.state.value, dirty.reason) == ("quarantined", "1 GiB still used")
    assert world.job("b").stage is Stage.READY
    assert world.engine.state.gpus[given.gpus[0]].state.value == "idle"
    world.event(ev.GpuCleared(dirty.id, "op"))
    world.dirty_gpus = set()
    world.plan(("b", 2))
    assert world.job("b").stage is Stage.TRAINING


@pytest.mark.parametrize("state", STATES)
def test_a_silent_host_loses_its_gpus_and_its_jobs_go_elsewhere(state: str) -> None:
    world = in_state(state)
    for container in list(world.containers.values()):
        container.reachable = False
    world.event(ev.HostFellSilent(HostId("host-0"), "no heartbeat for 120 s"))
    lost = [gpu.state.value for gpu in world.engine.state.gpus_of_host(HostId("host-0"))]
    assert lost == ["lost"] * 4
    a = world.job("a")
    assert (a.state, a.stage, a.failures) == (JobState.SUBMITTED, Stage.NONE, 0)
    world.plan(("a", 4), host="host-1")
    assert world.job("a").host == "host-1"
    assert world.job("a").attempt == 2
    desired = world.engine.desired(JobId("a"))
    assert desired is not None
    assert desired.attempt == 2


@pytest.mark.parametrize("state", STATES)
def test_a_host_that_was_cleaned_is_used_again(state: str) -> None:
    world = in_state(state)
    for container in list(world.containers.values()):
        container.reachable = False
    world.event(ev.HostFellSilent(HostId("host-0"), "cut off"))
    for key in list(world.containers):
        del world.containers[key]
    world.dirty_gpus = set()
    world.event(ev.HostCleaned(HostId("host-0"), "rebooted"))
    assert [g.state.value for g in world.engine.state.gpus_of_host(HostId("host-0"))] == (
        ["idle"] * 4
    )
    world.plan(("a", 4), host="host-0")
    assert world.job("a").stage is Stage.TRAINING


@pytest.mark.parametrize("state", STATES)
def test_a_host_that_rebooted_at_once_frees_everything_of_before(state: str) -> None:
    world = in_state(state)
    for key in list(world.containers):
        if world.containers[key].host == "host-0":
            del world.containers[key]
    world.dirty_gpus = set()
    world.event(ev.HostCleaned(HostId("host-0"), "boot id changed"))
    assert world.job("a").state is JobState.SUBMITTED
    states = [g.state.value for g in world.engine.state.gpus_of_host(HostId("host-0"))]
    assert states == ["idle"] * 4


def test_a_clock_that_jumps_back_is_not_believed() -> None:
    world = two_jobs()
    world.now_s = 1000.0
    world.train("a", 1)
    world.now_s = 10.0
    world.train("a", 1)
    assert world.engine.state.now_s == 1000.0
    world.submit("c", 1)
    assert world.job("c").submitted_at_s == 1000.0


def test_a_container_killed_in_training_is_launched_again_from_its_checkpoint() -> None:
    world = World().boot()
    world.running("a", 4, 4)
    world.train("a", 7)
    world.kill_container("a")
    a = world.job("a")
    assert (a.state, a.failures, a.steps_lost) == (JobState.SUBMITTED, 1, 7)
    with pytest.raises(PlanRejected, match="waits for its retry after a failure"):
        world.plan(("a", 4))
    world.wait(world.limits.retry_backoff_s + 0.1)
    world.plan(("a", 4))
    assert (world.job("a").attempt, world.job("a").container_restarts) == (2, 1)


def test_a_job_fails_when_its_retries_are_used_up() -> None:
    world = World().boot()
    world.running("a", 4, 4, retries=1)
    world.crash("a")
    assert world.job("a").state is JobState.RUNNING
    world.crash("a")
    assert world.job("a").state is JobState.FAILED
    assert world.gpu_states() == ["idle"] * 4


def test_a_crash_starts_the_process_again_in_its_living_container() -> None:
    world = World().boot()
    world.running("a", 4, 4)
    world.crash("a")
    a = world.job("a")
    assert (a.stage, a.attempt, a.process_restarts, a.failures) == (Stage.TRAINING, 1, 1, 1)


def test_a_container_that_dies_after_its_process_is_the_same_failure() -> None:
    """When a worker's container dies, the others' processes often fail for it first."""
    world = World().boot()
    world.running("a", 4, 4, retries=1)
    world.train("a", 5)
    world.auto = False
    world.crash("a")
    world.kill_container("a")
    a = world.job("a")
    assert (a.state, a.failures, a.steps_lost) == (JobState.SUBMITTED, 1, 5)


@pytest.mark.parametrize("how", ["container", "host"])
def test_steps_are_lost_once_although_the_next_attempt_ends_before_it_trains(how: str) -> None:
    world = World().boot(hosts=2)
    world.running("a", 4, 4)
    world.train("a", 7)
    world.kill_container("a")
    world.wait(world.limits.retry_backoff_s + 0.1)
    world.auto = False
    world.plan(("a", 4))
    if how == "container":
        world.kill_container("a")
    else:
        world.event(ev.HostFellSilent(HostId("host-0"), "its node is not ready"))
    assert world.job("a").steps_lost == 7


def test_a_host_that_dies_under_a_job_that_has_completed_loses_no_step() -> None:
    world = World().boot()
    world.running("a", 4, 4)
    world.train("a", 7)
    world.auto = False
    world.container("a").saved_step = None
    c = world.container("a")
    c.phase, c.running, c.exit_code = Phase.FINISHED, (), 0
    world.report(c)
    assert world.job("a").state is JobState.COMPLETED
    world.event(ev.HostFellSilent(HostId("host-0"), "its node is not ready"))
    assert (world.job("a").state, world.job("a").steps_lost) == (JobState.COMPLETED, 0)


def test_an_attempt_that_trained_again_after_a_failure_can_fail_again() -> None:
    world = World().boot()
    world.running("a", 4, 4, retries=1)
    world.crash("a")
    assert world.job("a").stage is Stage.TRAINING
    world.kill_container("a")
    assert (world.job("a").state, world.job("a").failures) == (JobState.FAILED, 2)


def test_a_container_that_trained_and_was_taken_away_in_order_is_no_failure_of_its_job() -> None:
    world = World().boot()
    world.running("a", 4, 4, retries=0)
    for attempt in (1, 2, 3):
        world.train("a", 5)
        world.kill_container("a", code=0)
        a = world.job("a")
        assert (a.state, a.attempt, a.failures) == (JobState.SUBMITTED, attempt, 0)
        assert a.deadline is not None
        assert (a.deadline.kind, a.deadline.length_s) == (DeadlineKind.RETRY, 2.0)
        world.wait(3.0)
        world.plan(("a", 4))
        assert world.job("a").stage is Stage.TRAINING


def test_one_that_is_taken_away_before_it_trains_is_for_it_would_go_on_so_for_ever() -> None:
    world = World().boot()
    world.auto = False
    world.submit("a", 4, retries=0)
    world.plan(("a", 4))
    world.kill_container("a", code=0)
    assert (world.job("a").state, world.job("a").failures) == (JobState.FAILED, 1)


def test_each_attempt_that_dies_before_its_first_step_is_a_failure_of_its_own() -> None:
    world = World().boot()
    world.running("a", 4, 4, retries=2)
    world.auto = False
    world.crash("a")
    world.kill_container("a")
    for failures in (2, 3):
        world.settle()
        world.wait(world.limits.retry_backoff_s * 8)
        world.plan(("a", 4))
        world.kill_container("a")
        assert world.job("a").failures == failures
    assert world.job("a").state is JobState.FAILED


def test_a_first_step_that_never_comes_is_a_failed_start() -> None:
    world = World().boot()
    world.submit("a", 2, 4)
    world.auto = False
    world.plan(("a", 4))
    world.converge(world.container("a"))
    world.engine.desired(JobId("a"))
    c = world.container("a")
    c.generation, c.phase, c.running = world.job("a").generation, Phase.STARTING, ()
    c.error = "no room for its checkpoints"
    world.report(c)
    world.wait(world.limits.start_timeout_s + 1)
    assert world.job("a").stage is Stage.ENDING
    assert "start-failed" in world.kinds
    assert world.job("a").reason.endswith("0 is none: no room for its checkpoints")


def test_an_unfit_container_fails_the_job_with_the_cause() -> None:
    world = World().boot()
    world.new_containers[JobId("a")] = {"slow_init": True}
    world.submit("a", 4)
    world.plan(("a", 4))
    c = world.container("a")
    c.phase, c.error, c.generation = Phase.UNFIT, "train.py is not there", 1
    world.report(c)
    assert world.job("a").state is JobState.FAILED
    assert world.job("a").reason == "train.py is not there"
    assert world.gpu_states() == ["idle"] * 4
