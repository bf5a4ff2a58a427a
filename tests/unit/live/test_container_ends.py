"""What the containers of an attempt say of its end: of one, and of those of a gang."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.model import HostId, JobId, Share, Spans
from reshape_controller.core.plan import Plan, Target
from reshape_controller.live.container_ends import ContainerEnd, answering, end_of
from reshape_launcher.spec import ContainerStatus
from reshape_sidecar.wire import Mode
from tests.support.world import World

ONE, TWO = HostId("host-0"), HostId("host-1")
RUNS = ContainerStatus("a", 1, True)
KILLED = ContainerStatus("a", 1, False, 137, "out of memory")
LEFT = ContainerStatus("a", 1, False, 0, "Completed")
UNFIT = ContainerStatus("a", 1, False, None, "no such image", lasting=True)


def on(host: str, status: ContainerStatus) -> ContainerStatus:
    return replace(status, host=host)


def gang() -> World:
    """A gang of two workers that trains on two hosts; from now on no command has an effect."""
    world = World().boot(hosts=2)
    world.submit("a", 8, workers=2, span=Spans.ANY)
    target = Target(JobId("a"), 8, ONE, (Share(ONE, 1), Share(TWO, 1)))
    world.apply(Plan((target,), "test"))
    world.auto = world.effects = False
    return world


def end(
    world: World, *statuses: ContainerStatus, asked_to_end: bool = False
) -> ContainerEnd | None:
    job = world.job("a")
    if asked_to_end:
        job = replace(job, mode=Mode.EXIT)
    return end_of(world.engine.state, job, statuses)


def test_an_attempt_on_one_host_ends_with_its_container_and_one_that_is_not_listed_is_removed() -> (
    None
):
    world = World().boot()
    world.running("a", 4, 4)
    assert end(world, RUNS) is None
    assert end(world, KILLED) == ContainerEnd(KILLED)
    found = end(world)
    assert found is not None
    assert not found.is_whole
    assert found.status.reason == "its container does not exist"


def test_a_gang_runs_while_all_its_containers_run() -> None:
    assert end(gang(), on(ONE, RUNS), on(TWO, RUNS)) is None


@pytest.mark.parametrize(("dead", "other"), [(ONE, TWO), (TWO, ONE)])
def test_a_gang_of_which_one_container_has_ended_is_to_be_removed(dead: str, other: str) -> None:
    found = end(gang(), on(dead, KILLED), on(other, RUNS))
    assert found is not None
    assert (found.is_whole, found.status.exit_code) == (False, 137)
    assert found.status.reason == f"{dead}: out of memory"


def test_a_gang_of_which_a_container_is_not_listed_is_to_be_removed() -> None:
    found = end(gang(), on(ONE, RUNS))
    assert found is not None
    assert (found.is_whole, found.status.exit_code) == (False, None)
    assert found.status.reason == f"its container on {TWO} does not exist"


def test_the_containers_of_a_gang_that_was_asked_to_end_each_have_their_time() -> None:
    assert end(gang(), on(ONE, LEFT), on(TWO, RUNS), asked_to_end=True) is None
    both = end(gang(), on(ONE, LEFT), on(TWO, LEFT), asked_to_end=True)
    assert both is not None
    assert (both.is_whole, both.status.exit_code) == (True, 0)
    for statuses in ((on(ONE, KILLED), on(TWO, RUNS)), (on(ONE, LEFT),)):
        found = end(gang(), *statuses, asked_to_end=True)
        assert found is not None, "one that failed, or that is not there, takes the rest along"
        assert not found.is_whole


def test_the_end_of_a_gang_is_told_by_the_container_that_failed() -> None:
    for first, second in ((LEFT, KILLED), (KILLED, LEFT)):
        found = end(gang(), on(ONE, first), on(TWO, second))
        assert found is not None
        assert (found.is_whole, found.status.exit_code) == (True, 137)
    found = end(gang(), on(ONE, KILLED), on(TWO, UNFIT))
    assert found is not None
    assert found.status.lasting, "no other attempt would get past it"


def test_a_host_that_does_not_answer_has_no_say_in_the_end_of_a_gang() -> None:
    world = gang()
    assert answering(world.engine.state, world.job("a")) == ()
    world.event(ev.HostFellSilent(TWO, "a test"))
    assert answering(world.engine.state, world.job("a")) == (ONE,)
    assert end(world, on(ONE, RUNS), on(TWO, RUNS)) is None
    found = end(world, on(ONE, KILLED), on(TWO, RUNS))
    assert found is not None
    assert found.is_whole
