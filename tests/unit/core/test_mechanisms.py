"""Jobs that leave their container: relaunch, another host, drain and halt; and ``none``."""

from __future__ import annotations

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.model import HostId, JobId, JobState, Mechanism, Stage
from reshape_controller.core.plan import Plan
from tests.support.hand_over_scenes import assert_given_back, mid_shrink, two_jobs
from tests.support.world import World


class TestTerminate:
    """The same plans under the mechanism ``terminate``: containers end, and are launched again."""

    def world(self) -> World:
        world = World(mechanism=Mechanism.TERMINATE).boot()
        world.running("a", 4, 1, 2, 4)
        world.submit("b", 2)
        return world

    def test_both_run_afterwards_and_the_victim_has_a_new_container(self) -> None:
        world = self.world()
        world.train("a", 5)
        world.plan(("b", 2), ("a", 2))
        a, b = world.job("a"), world.job("b")
        assert (a.attempt, len(a.gpus), a.steps_lost) == (2, 2, 0)
        assert (b.attempt, len(b.gpus)) == (1, 2)
        assert [(job.reshape_ups, job.reshape_downs) for job in (a, b)] == [(0, 1), (0, 0)]
        assert a.reshaped_at_s is not None

    def test_the_newcomer_is_launched_only_after_the_gpus_are_free(self) -> None:
        world = self.world()
        world.container("a").saves = False
        world.plan(("b", 2), ("a", 2))
        assert world.job("b").stage is Stage.NONE
        world.container("a").saves = True
        world.settle()
        assert world.job("b").stage is Stage.TRAINING

    def test_a_reshape_up_relaunches(self) -> None:
        world = World(mechanism=Mechanism.TERMINATE).boot()
        world.running("a", 2, 1, 2, 4)
        world.plan(("a", 4))
        assert (world.job("a").attempt, len(world.job("a").gpus)) == (2, 4)
        assert (world.job("a").reshape_ups, world.job("a").reshape_downs) == (1, 0)

    def test_a_refusal_takes_nothing(self) -> None:
        world = self.world()
        world.container("a").saves = False
        world.plan(("b", 2), ("a", 2))
        world.save_deadline_passes("a")
        assert_given_back(world)
        assert world.job("b").state is JobState.SUBMITTED


def test_the_mechanism_none_reshapes_nobody() -> None:
    world = World(mechanism=Mechanism.NONE).boot()
    world.running("a", 4, 2, 4)
    world.submit("b", 2)
    with pytest.raises(PlanRejected, match="mechanism none"):
        world.plan(("b", 2), ("a", 2))


def test_a_job_moves_to_another_host_by_save_terminate_relaunch() -> None:
    world = World().boot(hosts=2)
    world.running("a", 2, 2, 4)
    world.train("a", 3)
    world.plan(("a", 4), host="host-1")
    a = world.job("a")
    assert (a.host, a.attempt, len(a.gpus), a.steps_lost) == ("host-1", 2, 4, 0)
    assert [g.state.value for g in world.engine.state.gpus_of_host(HostId("host-0"))] == (
        ["idle"] * 4
    )


def test_drain_saves_the_job_and_nothing_starts_there() -> None:
    world = World().boot(hosts=2)
    world.running("a", 4, 2, 4)
    world.event(ev.HostDrained(HostId("host-0"), "op"))
    assert world.job("a").state is JobState.SUBMITTED
    assert world.job("a").steps_lost == 0
    with pytest.raises(PlanRejected, match="cannot be used"):
        world.plan(("a", 4), host="host-0")
    world.plan(("a", 4), host="host-1")
    assert world.job("a").host == "host-1"


def test_drain_in_the_middle_of_a_hand_over_waits_for_it_and_then_empties_the_host() -> None:
    world = mid_shrink()
    world.event(ev.HostDrained(HostId("host-0"), "op"))
    world.container("a").saves = True
    world.settle()
    assert world.gpu_states() == ["idle"] * 4
    assert {world.job(n).state for n in "ab"} == {JobState.SUBMITTED}


def test_halt_saves_and_gives_all_gpus_back_and_resume_queues_again() -> None:
    world = World().boot()
    world.running("a", 4, 4)
    world.event(ev.HaltRequested(JobId("a"), "ann"))
    assert world.job("a").state is JobState.HALTED
    assert world.gpu_states() == ["idle"] * 4
    world.event(ev.ResumeRequested(JobId("a"), "ann"))
    world.plan(("a", 4))
    assert world.job("a").stage is Stage.TRAINING


def test_halt_in_a_hand_over_is_kept_and_done_afterwards() -> None:
    world = mid_shrink()
    world.event(ev.HaltRequested(JobId("a"), "ann"))
    assert world.job("a").halt_wanted
    world.container("a").saves = True
    world.settle()
    assert world.job("a").state is JobState.HALTED
    assert world.job("b").stage is Stage.TRAINING


def test_a_job_that_waits_says_what_the_policy_said() -> None:
    world = two_jobs()
    world.apply(Plan((), "waits", "it ends sooner if it waits for a", JobId("b")))
    assert world.job("b").reason == "it ends sooner if it waits for a"
    assert world.job("b").state is JobState.SUBMITTED
