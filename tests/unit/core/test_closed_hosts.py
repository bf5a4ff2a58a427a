"""A host that takes no new job: tainted, not ready or absent, long before it counts as lost."""

from __future__ import annotations

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.model import HostId, JobId, JobState, Mechanism, Stage
from tests.support.world import World

FIRST, SECOND = HostId("host-0"), HostId("host-1")
TAINT = "its node has the taint dedicated=web:NoSchedule"


def close(world: World, host: HostId = FIRST, *, answers: bool = True) -> None:
    world.event(ev.HostClosed(host, TAINT, answers))


def hosts_offered(world: World) -> set[str]:
    return {host.id for host in world.engine.snapshot().hosts}


def test_a_closed_host_is_no_option_until_it_is_open_again() -> None:
    world = World().boot(hosts=2)
    close(world)
    assert hosts_offered(world) == {SECOND}
    world.submit("a", 4)
    with pytest.raises(PlanRejected, match=f"host-0 takes no new job: {TAINT}"):
        world.plan(("a", 4))
    world.event(ev.HostOpened(FIRST))
    assert hosts_offered(world) == {FIRST, SECOND}
    world.plan(("a", 4))
    assert world.job("a").stage is Stage.TRAINING


def test_a_job_that_runs_on_a_closed_host_goes_on() -> None:
    world = World().boot(hosts=2)
    world.running("a", 4, 4)
    close(world)
    world.wait(1000.0)
    assert (world.job("a").stage, world.job("a").attempt) == (Stage.TRAINING, 1)
    assert world.gpu_states()[:4] == ["in use"] * 4, "only the silence of a host loses its GPUs"


def test_a_job_whose_container_has_not_come_up_there_starts_elsewhere_without_a_failure() -> None:
    world = World().boot(hosts=2)
    world.new_containers[JobId("a")] = {"slow_init": True}
    world.submit("a", 4)
    world.plan(("a", 4))
    close(world)
    job = world.job("a")
    assert (job.state, job.stage, job.failures) == (JobState.SUBMITTED, Stage.NONE, 0)
    assert world.gpu_states() == ["idle"] * 8
    world.plan(("a", 4), host=SECOND)
    assert world.job("a").host == SECOND


def test_nothing_is_ended_on_a_host_that_does_not_answer() -> None:
    world = World().boot(hosts=2)
    world.new_containers[JobId("a")] = {"slow_init": True}
    world.submit("a", 4)
    world.plan(("a", 4))
    close(world, answers=False)
    assert world.job("a").stage is Stage.LAUNCHING


def test_a_launch_that_waits_for_gpus_there_is_called_off() -> None:
    world = World(mechanism=Mechanism.TERMINATE).boot(hosts=2)
    world.running("a", 4, 2, 4)
    world.container("a").saves = False
    world.submit("b", 2)
    world.plan(("b", 2), ("a", 2))
    close(world)
    world.container("a").saves = True
    world.settle()
    assert world.job("b").stage is Stage.NONE
    assert world.job("b").hand_over is None


def test_the_same_look_again_is_no_news() -> None:
    world = World().boot(hosts=2)
    close(world)
    before = world.kinds.copy()
    close(world)
    assert world.kinds == before
