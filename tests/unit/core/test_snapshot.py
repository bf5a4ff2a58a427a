"""What a policy sees is always what the state is, however much of it is kept between snapshots."""

from __future__ import annotations

import random

from reshape_controller.core import events as ev
from reshape_controller.core.model import GpuId, HostId, JobId, Mechanism
from reshape_controller.core.plan import Plan
from reshape_controller.core.state import State
from tests.property.test_handover import ACTIONS, JOBS, Chaos
from tests.support.world import World


def test_kept_views_are_those_that_a_fresh_state_gives() -> None:
    """Random runs through every state; a state that was loaded has nothing kept."""
    draw = random.Random(11)
    for _ in range(15):
        chaos = Chaos(Mechanism.SIDECAR)
        for _ in range(60):
            chaos.act(draw.choice(ACTIONS), draw.choice(JOBS), draw.randint(0, 29))
            state = chaos.world.engine.state
            fresh = State.load(state.dump())
            kept, made = state.snapshot(), fresh.snapshot()
            assert kept == made


def test_the_view_of_a_job_that_did_not_change_is_kept() -> None:
    world = World().boot(4)
    world.running("a", 1, 1, 2)
    world.submit("b", 2)
    first, second = world.engine.snapshot(), world.engine.snapshot()
    assert [view.id for view in first.running] == ["a"]
    assert all(a is b for a, b in zip(first.running, second.running, strict=True))
    world.train("a", 5)
    third = world.engine.snapshot()
    assert third.running[0].progress.step == 5
    assert third.queued[0] is first.queued[0]


def test_what_is_said_of_a_job_that_waits_is_nothing_that_policies_see() -> None:
    world = World().boot(1)
    world.submit("a", 2)
    before = world.engine.snapshot().queued[0]
    world.apply(Plan((), "waits", "a waits for a second GPU", JobId("a")))
    assert world.job("a").reason == "a waits for a second GPU"
    assert world.engine.snapshot().queued[0] is before


def test_the_queue_is_in_order_of_priority_then_of_submission() -> None:
    world = World().boot(1)
    for name, priority in (("first", 0), ("second", 5), ("third", 0), ("fourth", 5)):
        world.submit(name, 2, priority=priority)
    queued = [view.id for view in world.engine.snapshot().queued]
    assert queued == ["second", "fourth", "first", "third"]


def test_a_halted_job_is_nobodys_option_until_it_is_resumed() -> None:
    world = World().boot(2)
    world.running("a", 1, 1, 2)
    world.event(ev.HaltRequested(JobId("a"), "ann"))
    world.settle()
    snapshot = world.engine.snapshot()
    assert (snapshot.running, snapshot.queued, snapshot.hosts[0].idle) == ((), (), 2)
    world.event(ev.ResumeRequested(JobId("a"), "ann"))
    assert [view.id for view in world.engine.snapshot().queued] == ["a"]


def test_another_type_of_a_known_hosts_gpus_is_what_policies_see_from_then_on() -> None:
    world = World().boot(2)
    world.running("a", 1, 1, 2)
    before = world.engine.snapshot()
    assert (before.hosts[0].gpu_type, before.running[0].gpu_type) == ("V100", "V100")
    gpus = world.engine.state.hosts[HostId("host-0")].gpus
    world.event(ev.HostAdded(HostId("host-0"), "A100", gpus))
    after = world.engine.snapshot()
    assert (after.hosts[0].gpu_type, after.running[0].gpu_type) == ("A100", "A100")
    assert after.hosts[0].total == 2


def test_gpus_that_nobody_may_use_are_not_usable() -> None:
    world = World().boot(4)
    world.running("a", 2, 2)
    world.dirty_gpus.add(GpuId("GPU-0-0"))
    world.finish("a")
    world.wait(120.0)
    (host,) = world.engine.snapshot().hosts
    assert (host.total, host.usable, host.idle) == (4, 3, 3)
