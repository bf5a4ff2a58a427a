"""A running job that can only give more than the newcomer wants: the rest becomes idle."""

from __future__ import annotations

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.model import GpuState, JobId, Mechanism, Stage
from tests.support.world import World


def asked(mechanism: Mechanism = Mechanism.SIDECAR) -> World:
    """``a`` trains on four GPUs and may have two; ``b`` wants one."""
    world = World(mechanism=mechanism).boot(4)
    world.running("a", 4, 2, 4)
    world.submit("b", 1)
    return world


@pytest.mark.parametrize("mechanism", [Mechanism.SIDECAR, Mechanism.TERMINATE])
def test_what_the_newcomer_does_not_take_is_idle_after_its_verified_release(
    mechanism: Mechanism,
) -> None:
    world = asked(mechanism)
    world.plan(("b", 1), ("a", 2))
    world.settle()
    assert sorted(world.gpu_states()) == ["idle", "in use", "in use", "in use"]
    assert (len(world.job("a").gpus), len(world.job("b").gpus)) == (2, 1)
    assert world.job("a").stage is Stage.TRAINING


def test_the_surplus_is_nobodys_option_before_its_release_was_verified() -> None:
    world = asked()
    gpus = world.job("a").gpus
    world.dirty_gpus = set(gpus)
    world.auto = False
    world.plan(("b", 1), ("a", 2))
    assert world.engine.snapshot().hosts[0].idle == 0
    hand_over = world.job("b").hand_over
    assert hand_over is not None
    assert len(hand_over.gpus) == 1
    world.auto = True
    world.settle()
    assert sorted(world.gpu_states()) == ["in use", "in use", "releasing", "releasing"]
    assert world.engine.snapshot().hosts[0].idle == 0
    assert world.job("b").stage is Stage.READY
    world.dirty_gpus = set()
    world.settle()
    assert world.engine.snapshot().hosts[0].idle == 1
    assert world.job("b").stage is Stage.TRAINING


def test_a_surplus_that_is_not_empty_is_quarantined_and_the_newcomer_starts_all_the_same() -> None:
    world = asked()
    gpus = world.job("a").gpus
    world.auto = False
    world.plan(("b", 1), ("a", 2))
    hand_over = world.job("b").hand_over
    assert hand_over is not None
    (surplus,) = [gpu for gpu in gpus[2:] if gpu not in hand_over.gpus]
    world.dirty_gpus = {surplus}
    world.auto = True
    world.settle()
    assert world.job("b").stage is Stage.TRAINING
    world.wait(world.limits.verify_s + 1)
    assert world.engine.state.gpus[surplus].state is GpuState.QUARANTINED


def test_gpus_that_become_idle_before_the_shrink_spare_a_donor_with_surplus() -> None:
    world = World().boot(5)
    world.running("a", 4, 2, 4)
    world.running("c", 1, 1)
    world.submit("b", 1)
    world.new_containers[JobId("b")] = {"slow_init": True}
    world.plan(("b", 1), ("a", 2))
    world.finish("c")
    world.container("b").slow_init = False
    world.settle()
    assert (len(world.job("a").gpus), len(world.job("b").gpus)) == (4, 1)


def test_a_newcomer_that_is_cancelled_leaves_the_donor_and_all_its_gpus_alone() -> None:
    world = asked()
    world.auto = False
    world.plan(("b", 1), ("a", 2))
    world.event(ev.CancelRequested(JobId("b"), "eve"))
    world.auto = True
    world.settle()
    assert len(world.job("a").gpus) == 4
    assert world.gpu_states() == ["in use"] * 4


def test_a_donor_of_which_nothing_is_needed_is_no_donor() -> None:
    world = World().boot(8)
    for name in ("a", "c"):
        world.running(name, 4, 2, 4)
    world.submit("b", 2)
    with pytest.raises(PlanRejected, match="c: would give GPUs that b does not take"):
        world.plan(("b", 2), ("a", 2), ("c", 2))
