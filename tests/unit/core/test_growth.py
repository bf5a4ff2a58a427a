"""A job that trains says why it has not more GPUs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.growth import why_not_larger
from reshape_controller.core.model import HostId, JobId, Mechanism, Share, Spans
from reshape_controller.core.plan import Plan, Target
from tests.support.world import World


def text(world: World, name: str = "a") -> str:
    return why_not_larger(world.engine.state, world.job(name))


def training(*sizes: int, mechanism: Mechanism = Mechanism.SIDECAR) -> World:
    world = World(mechanism=mechanism).boot(4)
    world.running("a", 2, *sizes)
    return world


def test_a_job_at_its_largest_size_or_in_the_queue_says_nothing() -> None:
    world = training(1, 2)
    world.submit("b", 1, 4)
    assert (text(world), text(world, "b")) == ("", "")


def test_an_unknown_length_is_named_with_the_idle_gpus_and_the_remedy() -> None:
    world = training(2, 4)
    state, job = world.engine.state, world.job("a")
    unknown = replace(
        job,
        spec=replace(job.spec, length=None),
        progress=replace(job.progress, total_steps=None),
    )
    assert why_not_larger(state, unknown) == "2 GPUs idle: length unknown, set epochs or steps"
    assert text(world) == "2 GPUs idle: policy test keeps its size"


def test_missing_gpus_are_counted() -> None:
    world = training(2, 4)
    world.running("b", 1, 1)
    assert text(world) == "needs 2 GPUs more on host-0, 1 idle"


def test_the_rules_of_the_engine_are_named() -> None:
    assert "mechanism none" in text(training(2, 4, mechanism=Mechanism.NONE))
    world = training(2, 4)
    world.event(ev.PinRequested(JobId("a"), 2))
    assert text(world) == "pinned at 2 GPUs"
    world = training(2, 4)
    job = replace(world.job("a"), struck=(4,))
    assert why_not_larger(world.engine.state, job) == "failed to start on 4 GPUs"
    job = replace(world.job("a"), answered=False)
    assert why_not_larger(world.engine.state, job) == "a hand-over is under way"


@pytest.mark.parametrize("stage", ["saving"])
def test_a_job_that_saves_says_nothing(stage: str) -> None:
    world = training(2, 4)
    world.container("a").saves = False
    world.plan(("a", 4))
    assert world.job("a").stage.value == stage
    assert text(world) == ""


def test_the_host_of_a_gang_that_lacks_gpus_is_named() -> None:
    world = World().boot(4, hosts=2)
    world.submit("a", 4, 8, workers=2, span=Spans.ANY)
    shares = (Share(HostId("host-0"), 1), Share(HostId("host-1"), 1))
    world.apply(Plan((Target(JobId("a"), 4, HostId("host-0"), shares),), "test"))
    assert text(world) == "4 GPUs idle: policy test keeps its size"
    world.submit("b", 2)
    world.apply(Plan((Target(JobId("b"), 2, HostId("host-1")),), "test"))
    assert text(world) == "needs 2 GPUs more on host-1, 0 idle"
