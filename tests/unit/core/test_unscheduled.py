"""A container for which the cluster has no room is no try of the program."""

from __future__ import annotations

from reshape_controller.core import events as ev
from reshape_controller.core.model import JobId, JobState, Stage
from tests.support.world import World

NO_ROOM = "it cannot be scheduled: 0/2 nodes are available: Insufficient cpu"


def no_room(world: World, name: str) -> None:
    """The launcher gives a pod up that no node took."""
    job = world.job(name)
    world.containers.pop((JobId(name), job.attempt), None)
    world.event(ev.ContainerGone(JobId(name), job.attempt, None, NO_ROOM, unscheduled=True))


def launching(**fields: object) -> World:
    """A job whose container is launched and comes up only if the test lets it."""
    world = World().boot(4)
    world.auto = False
    world.submit("a", 4, **fields)
    world.plan(("a", 4))
    assert world.job("a").stage is Stage.LAUNCHING
    return world


def test_waiting_for_room_spends_no_retry_however_often() -> None:
    world = launching(retries=0)
    for _ in range(3):
        no_room(world, "a")
        job = world.job("a")
        assert (job.state, job.stage, job.failures) == (JobState.SUBMITTED, Stage.NONE, 0)
        assert job.reason == f"queued again: {NO_ROOM}"
        assert job.deadline is not None, "it backs off first"
        world.wait(700.0)
        world.plan(("a", 4))
        assert world.job("a").stage is Stage.LAUNCHING


def test_it_hides_no_failure_of_the_program() -> None:
    world = World().boot(4)
    world.running("a", 4, 4, retries=3)
    world.crash("a", 137)
    world.crash("a", 137)  # its second death in this container: queued again, after a back-off
    failures = world.job("a").failures
    assert failures
    world.auto = False
    world.wait(700.0)
    world.plan(("a", 4))
    no_room(world, "a")
    job = world.job("a")
    assert job.failures == failures
    assert job.reason == f"queued again: {NO_ROOM}; its last failure: exit code 137"


def test_a_container_that_has_come_up_cannot_have_lacked_room() -> None:
    world = World().boot(4)
    world.running("a", 4, 4, retries=3)
    no_room(world, "a")
    assert world.job("a").failures == 1
