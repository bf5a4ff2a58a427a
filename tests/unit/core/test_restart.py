"""A controller that starts again in the middle, and what of it must be the same."""

from __future__ import annotations

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.limits import Limits
from reshape_controller.core.model import GpuId, JobId, Stage
from reshape_sidecar.wire import Mode
from tests.support.hand_over_scenes import STATES, hand_over_begun, in_state, mid_shrink, two_jobs
from tests.support.world import World


@pytest.mark.parametrize("state", STATES)
def test_a_controller_killed_here_and_started_again_touches_no_training(state: str) -> None:
    world = in_state(state)
    world.auto = False
    running = {key: (c.running, c.running_generation) for key, c in world.containers.items()}
    world.event(ev.ControllerStarted(2, "test", world.mechanism, world.limits))
    assert {k: (c.running, c.running_generation) for k, c in world.containers.items()} == running
    assert not world.engine.wants_plan()
    assert not any(c.mode is Mode.EXIT for c in world.engine.state.jobs.values())
    world.dirty_gpus = set()
    for container in world.containers.values():
        container.saves, container.slow_init = True, False
    world.auto = True
    for command in world.engine.outstanding():
        world.carry_out(command)
    for container in list(world.containers.values()):
        world.report(container)
    world.settle()
    assert not world.engine.state.observing
    assert world.job("a").stage is Stage.TRAINING


def test_nothing_is_granted_until_every_attempt_has_answered() -> None:
    world = in_state("verify")
    world.auto = False
    world.event(ev.ControllerStarted(2, "test", world.mechanism, world.limits))
    world.dirty_gpus = set()
    world.verify()
    world.report(world.container("b"))
    assert world.job("b").stage is Stage.READY, "a has not answered yet"
    world.event(ev.SideCarFellSilent(JobId("a"), 1))
    assert world.job("b").stage is Stage.STARTING


def test_a_controller_killed_between_append_and_effect_repeats_the_effect() -> None:
    world = two_jobs()
    world.effects = False
    world.plan(("b", 2), ("a", 2))
    assert (JobId("b"), 1) not in world.containers
    world.effects = True
    world.event(ev.ControllerStarted(2, "test", world.mechanism, world.limits))
    world.report(world.container("a"))
    for command in world.engine.outstanding():
        world.carry_out(command)
    world.settle()
    assert world.job("b").stage is Stage.TRAINING


def test_deadlines_start_anew_after_a_restart() -> None:
    world = hand_over_begun()
    world.auto = False
    world.now_s = 10_000.0
    world.event(ev.ControllerStarted(2, "test", world.mechanism, world.limits))
    world.event(ev.DeadlinesDue())
    assert world.job("b").stage is Stage.LAUNCHING
    assert world.engine.next_deadline_s() == 10_000.0 + world.limits.early_init_s


@pytest.mark.parametrize("state", STATES)
def test_no_deadline_runs_while_the_controller_is_held_up(state: str) -> None:
    world = in_state(state)
    world.auto = False
    due_s, said = world.engine.next_deadline_s(), len(world.kinds)
    world.now_s += 10_000.0
    world.event(ev.ControllerHeldUp(10_000.0))
    world.event(ev.DeadlinesDue())
    assert world.kinds[said:] == ["controller-held-up"]
    assert world.engine.next_deadline_s() == (None if due_s is None else due_s + 10_000.0)


def test_the_log_fed_to_another_engine_gives_the_same_commands_byte_for_byte() -> None:
    world = mid_shrink()
    world.save_deadline_passes("a")
    world.wait(700)
    assert world.replay() == world.log


def test_the_state_survives_a_snapshot() -> None:
    world = mid_shrink()
    parts = world.engine.state.dump()
    from reshape_controller.core.state import State

    again = State.load(parts)
    assert again.dump() == parts
    assert again.next_deadline_s() == world.engine.state.next_deadline_s()


def test_limits_of_a_run_enter_the_log() -> None:
    world = World(limits=Limits(early_init_s=5.0)).boot()
    world.new_containers[JobId("a")] = {"slow_init": True}
    world.submit("a", 4)
    world.plan(("a", 4))
    assert world.engine.next_deadline_s() == 5.0
    assert world.engine.next_deadline_s(5.0) == 5.0
    assert world.engine.next_deadline_s(4.5) is None
    assert GpuId("GPU-0-0") in world.engine.state.gpus
