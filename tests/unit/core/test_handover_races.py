"""Races of the hand-over: a SideCar that is further than the engine has heard, and endings in the
middle of a change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.model import HostId, JobId, JobState, Mechanism, Stage
from reshape_sidecar.wire import Mode, Outcome, OutcomeKind, Phase
from tests.support.world import World

GPUS = 4


def growing(*, mute: bool) -> World:
    """``a`` trains on two GPUs and was told to train on four; ``mute``: it does, unheard."""
    world = World().boot()
    world.running("a", 2, 1, 2, 4)
    world.container("a").saves = mute
    world.container("a").mute = mute
    world.plan(("a", 4))
    assert world.job("a").stage is Stage.SAVING
    assert len(world.container("a").running) == (GPUS if mute else 2)
    return world


def shrinking_unheard(mechanism: Mechanism = Mechanism.SIDECAR) -> World:
    """``a`` gave two of four GPUs up for ``b``, and nobody has heard of it yet."""
    world = World(mechanism=mechanism).boot()
    world.running("a", 4, 1, 2, 4)
    world.submit("b", 2)
    world.container("a").mute = True
    world.plan(("b", 2), ("a", 2))
    assert world.job("a").stage is Stage.SAVING
    return world


def heard(world: World, name: str) -> None:
    world.container(name).mute = False
    world.report(world.container(name))
    world.settle()


def idle(world: World) -> int:
    return world.gpu_states().count("idle")


def test_gpus_of_a_job_cancelled_while_it_grows_are_nobodys_before_they_are_verified() -> None:
    world = growing(mute=True)
    world.container("a").reachable = False
    world.event(ev.CancelRequested(JobId("a")))
    assert idle(world) == 0, "it may train on all four"
    world.container("a").reachable = True
    world.settle()
    assert world.job("a").state is JobState.CANCELLED
    assert idle(world) == GPUS


def test_a_withdrawn_growth_that_took_place_unheard_keeps_its_gpus() -> None:
    world = growing(mute=True)
    c = world.container("a")
    c.reachable, c.saves = False, False
    world.wait(world.limits.save_min_s + world.limits.save_answer_s + 1)
    change = world.job("a").change
    assert change is not None
    assert change.withdrawn
    assert idle(world) == 0, "it may train on all four"
    c.reachable = True
    c.mute = False
    world.settle()
    world.save_deadline_passes("a")
    a = world.job("a")
    assert (a.stage, len(a.gpus)) == (Stage.TRAINING, len(c.running))
    assert set(a.gpus) == set(c.running)
    assert idle(world) == GPUS - len(a.gpus)


def test_a_withdrawn_growth_that_is_refused_gives_the_idle_gpus_back() -> None:
    world = growing(mute=False)
    world.container("a").reachable = False
    world.wait(world.limits.save_min_s + world.limits.save_answer_s + 1)
    world.container("a").reachable = True
    world.settle()
    a = world.job("a")
    assert (a.stage, len(a.gpus)) == (Stage.TRAINING, 2)
    assert idle(world) == 2


def test_a_container_removed_while_its_job_grows_gives_every_gpu_back() -> None:
    world = growing(mute=False)
    c = world.container("a")
    c.reachable = False
    stopping = c.observed()
    generation = world.job("a").generation
    outcome = Outcome(generation, OutcomeKind.STOPPING, 3)
    world.event(
        ev.SideCarReported(replace(stopping, sequence=99, generation=generation, outcome=outcome))
    )
    assert world.job("a").stage is Stage.STOPPING
    world.wait(world.limits.kill_after_s + world.limits.stop_s + 1)
    assert world.job("a").stage is Stage.NONE
    assert idle(world) == GPUS


def test_a_withdrawn_shrink_that_took_place_unheard_is_believed() -> None:
    world = shrinking_unheard()
    c = world.container("a")
    c.saves = False
    c.reachable = False
    world.event(ev.CancelRequested(JobId("b")))
    c.reachable = True
    c.mute = False
    world.settle()
    world.save_deadline_passes("a")
    a = world.job("a")
    assert a.stage is Stage.TRAINING
    assert set(a.gpus) == set(c.running)
    assert idle(world) == GPUS - len(a.gpus)


def test_a_grant_does_not_wait_for_a_container_that_is_gone() -> None:
    """R6: the last attempt that has not answered is gone: the others' hand-overs go on."""
    world = World().boot()
    world.running("a", 2, 1, 2)
    world.submit("b", 2)
    world.new_containers[JobId("b")] = {"slow_init": True}
    world.plan(("b", 2))
    world.auto = False
    world.event(ev.ControllerStarted(2, "test", world.mechanism, world.limits))
    world.container("b").slow_init = False
    world.converge(world.container("b"))
    assert world.job("b").stage is Stage.READY, "a has not answered yet"
    world.kill_container("a")
    assert world.job("b").stage is Stage.STARTING


def test_a_halt_is_not_forgotten_when_the_start_after_a_reshape_fails() -> None:
    world = World().boot()
    world.running("a", 4, 2, 4)
    world.submit("b", 2)
    world.container("a").crashes = True
    world.auto = False
    world.plan(("b", 2), ("a", 2))
    world.settle_until("a", Stage.STARTING)
    world.event(ev.HaltRequested(JobId("a"), "ann"))
    world.auto = True
    world.settle()
    assert world.job("a").state is JobState.HALTED


def test_a_halt_is_not_forgotten_when_the_container_dies_in_a_reshape() -> None:
    world = growing(mute=False)
    world.event(ev.HaltRequested(JobId("a"), "ann"))
    world.kill_container("a")
    assert world.job("a").state is JobState.HALTED
    assert idle(world) == GPUS


def test_a_halt_during_a_relaunch_is_done_when_the_container_has_ended() -> None:
    world = World(mechanism=Mechanism.TERMINATE).boot()
    world.running("a", 2, 2, 4)
    world.container("a").saves = False
    world.plan(("a", 4))
    world.event(ev.HaltRequested(JobId("a"), "ann"))
    world.container("a").saves = True
    world.settle()
    a = world.job("a")
    assert (a.state, a.stage, a.attempt) == (JobState.HALTED, Stage.NONE, 1)
    assert idle(world) == GPUS


@pytest.mark.parametrize("exit_code", [0, 137])
def test_a_container_that_was_told_to_end_and_ended_unheard_is_no_failure(exit_code: int) -> None:
    world = World(mechanism=Mechanism.TERMINATE).boot()
    world.running("a", 2, 2, 4)
    world.container("a").reachable = False
    world.plan(("a", 4))
    assert world.job("a").mode is Mode.EXIT
    world.auto = False
    world.kill_container("a", code=exit_code)
    a = world.job("a")
    assert a.failures == (1 if exit_code else 0)
    if exit_code == 0:
        world.auto = True
        world.settle()
        a = world.job("a")
        assert (a.stage, len(a.gpus)) == (Stage.TRAINING, 4)


@pytest.mark.parametrize("trained", [False, True])
def test_an_attempt_that_may_not_start_ends_its_job_at_once_with_the_reason(trained: bool) -> None:
    world = World().boot()
    if trained:
        world.running("a", 4, 4)
        world.container("a").saved_step = 5
        world.train("a", 5)
        world.kill_container("a")
        world.wait(world.limits.retry_backoff_s + 1)
    else:
        world.submit("a", 4)
    world.auto = False
    world.plan(("a", 4))
    c = world.container("a")
    world.converge(c)
    assert world.job("a").stage is Stage.STARTING
    c.phase, c.generation = Phase.UNFIT, world.job("a").generation
    c.error = "checkpoint folder is claimed by attempt 9"
    world.report(c)
    world.auto = True
    world.settle()
    a = world.job("a")
    assert a.state is (JobState.HALTED if trained else JobState.FAILED)
    assert "claimed by attempt 9" in a.reason
    assert idle(world) == GPUS


def test_an_event_of_an_unknown_host_changes_nothing() -> None:
    world = World().boot()
    before = world.engine.state.dump()
    for event in (
        ev.HostDrained(HostId("elsewhere")),
        ev.HostUndrained(HostId("elsewhere")),
        ev.HostFellSilent(HostId("elsewhere")),
        ev.HostCleaned(HostId("elsewhere")),
    ):
        world.event(event)
    assert world.engine.state.dump() == before


def test_a_newcomer_without_a_container_is_not_launched_on_a_drained_host() -> None:
    world = World(mechanism=Mechanism.TERMINATE).boot()
    world.running("a", 4, 2, 4)
    world.submit("b", 2)
    world.container("a").saves = False
    world.plan(("b", 2), ("a", 2))
    assert world.job("b").stage is Stage.NONE
    world.event(ev.HostDrained(HostId("host-0"), "op"))
    world.container("a").saves = True
    world.settle()
    for name in ("a", "b"):
        job = world.job(name)
        assert (job.state, job.stage) == (JobState.SUBMITTED, Stage.NONE), name
    assert (world.job("a").attempt, world.job("b").attempt) == (1, 0), "nothing was launched"
    assert idle(world) == GPUS
