"""Moments of a hand-over that tests begin at: ``a`` trains on four GPUs, ``b`` wants two."""

from __future__ import annotations

from reshape_controller.core.model import JobId, JobState, Stage
from tests.support.world import World


def two_jobs(**victim: object) -> World:
    """Job ``a`` trains on all four GPUs; ``b`` has been submitted and wants two."""
    world = World().boot()
    world.running("a", 4, 1, 2, 4, **victim)
    world.submit("b", 2)
    return world


def hand_over_begun(slow: bool = True) -> World:
    """``b`` is promised two of ``a``'s GPUs and (if slow) still initialises."""
    world = two_jobs()
    world.new_containers[JobId("b")] = {"slow_init": slow}
    world.plan(("b", 2), ("a", 2))
    return world


def initialise(world: World, name: str = "b") -> None:
    world.container(name).slow_init = False
    world.settle()


def mid_shrink() -> World:
    """``a`` was asked to shrink for ``b`` and has not saved yet."""
    world = hand_over_begun()
    world.container("a").saves = False
    initialise(world)
    assert world.job("a").stage is Stage.SAVING
    return world


def assert_given_back(world: World) -> None:
    """Nothing was taken from ``a``: it trains on its four GPUs under its first process."""
    a = world.job("a")
    assert (a.stage, a.state, len(a.gpus)) == (Stage.TRAINING, JobState.RUNNING, 4)
    assert world.gpu_states() == ["in use"] * 4
    assert all(gpu.promised_to is None for gpu in world.engine.state.gpus.values())


STATES = ["running", "early", "shrink", "verify", "grow", "ready"]


def in_state(name: str) -> World:
    if name == "grow":
        world = World().boot(hosts=2)
        world.running("a", 2, 1, 2, 4)
        world.container("a").saves = False
        world.plan(("a", 4))
        return world
    world = World().boot(hosts=2)
    world.running("a", 4, 1, 2, 4)
    if name == "running":
        return world
    world.submit("b", 2)
    world.new_containers[JobId("b")] = {"slow_init": True}
    if name == "ready":
        world.container("a").saves = False
    world.plan(("b", 2), ("a", 2))
    if name == "early":
        return world
    world.container("a").saves = name == "verify"
    if name == "verify":
        given = world.job("b").hand_over
        assert given is not None
        world.dirty_gpus = set(given.gpus)
    initialise(world)
    if name == "ready":
        world.save_deadline_passes("a")
    return world
