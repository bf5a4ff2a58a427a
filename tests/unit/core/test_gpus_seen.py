"""GPUs that their host does not show any more: nobody gets them until it does."""

from __future__ import annotations

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.model import GpuId, HostId, JobState, Mechanism, Stage
from reshape_controller.core.state import State
from tests.support.hand_over_scenes import STATES, in_state
from tests.support.world import World

HOST = HostId("host-0")
ALL = tuple(GpuId(f"GPU-0-{number}") for number in range(4))


def shows(world: World, *gpus: GpuId) -> None:
    world.event(ev.GpusSeen(HOST, gpus))


def states(world: World) -> list[str]:
    return [gpu.state.value for gpu in world.engine.state.gpus_of_host(HOST)]


def test_an_idle_gpu_that_is_not_there_any_more_is_nobodys_and_says_why() -> None:
    world = World().boot()
    shows(world, *ALL[:3])
    gone = world.engine.state.gpus[ALL[3]]
    assert states(world) == ["idle"] * 3 + ["lost"]
    assert (
        gone.reason
        == "host-0 does not report it; repair it or raise --gpus, then restart the daemon"
    )
    assert world.kinds[-1] == "gpu-lost"
    world.submit("a", 4)
    with pytest.raises(PlanRejected, match="4 idle GPUs on host-0, not 3"):
        world.plan(("a", 4))


def test_it_is_idle_again_once_it_is_shown_again() -> None:
    world = World().boot()
    world.submit("a", 4)
    shows(world, *ALL[:3])
    shows(world, *ALL)
    assert states(world) == ["idle"] * 4
    assert world.engine.state.gpus[ALL[3]].reason == ""
    assert world.kinds[-1] == "gpu-found"
    world.plan(("a", 4))
    assert world.job("a").stage is Stage.TRAINING


def with_a_quarantined_gpu() -> World:
    """Its last one could not be shown to be empty."""
    world = World().boot()
    world.running("a", 4, 4)
    world.dirty_gpus = {ALL[3]}
    world.finish("a")
    world.wait(world.limits.verify_s + 1)
    return world


def test_a_look_that_shows_what_the_last_one_did_is_no_news() -> None:
    world = World().boot()
    shows(world, *ALL)
    shows(world, *ALL[1:])
    before = world.kinds.copy()
    shows(world, *ALL[1:])
    assert world.kinds == before


def test_a_gpu_that_failed_its_release_stays_quarantined_when_it_is_shown_again() -> None:
    world = with_a_quarantined_gpu()
    shows(world, *ALL[:3])
    shows(world, *ALL)
    assert states(world) == ["idle"] * 3 + ["quarantined"]


@pytest.mark.parametrize("event", [ev.GpuCleared(ALL[3], "op"), ev.HostCleaned(HOST, "rebooted")])
def test_nobody_but_its_host_gives_it_back(event: ev.Event) -> None:
    world = with_a_quarantined_gpu()
    shows(world, *ALL[:3])
    world.event(event)
    assert states(world) == ["idle"] * 3 + ["lost"]
    shows(world, *ALL)
    assert states(world) == ["idle"] * 4


def test_what_a_silent_host_has_lost_is_not_given_back_by_a_look_alone() -> None:
    world = World().boot()
    shows(world, *ALL[:3])
    world.event(ev.HostFellSilent(HOST, "no word"))
    shows(world, *ALL)
    assert states(world) == ["lost"] * 4
    world.event(ev.HostCleaned(HOST, "rebooted"))
    assert states(world) == ["idle"] * 4


def test_a_job_on_it_saves_and_goes_on_with_others() -> None:
    world = World().boot()
    world.running("a", 4, 2, 4)
    world.train("a", 7)
    shows(world, *ALL[:2])
    a = world.job("a")
    assert (a.state, a.stage, a.failures, a.steps_lost) == (JobState.SUBMITTED, Stage.NONE, 0, 0)
    assert "host-0 no longer reports GPU-0-2, GPU-0-3" in a.reason
    assert states(world) == ["idle", "idle", "lost", "lost"]
    world.plan(("a", 2))
    assert world.job("a").gpus == ALL[:2]


def test_a_start_that_fails_on_it_strikes_no_size() -> None:
    world = World().boot()
    world.auto = False
    world.submit("a", 4)
    world.plan(("a", 4))
    world.settle_until("a", Stage.STARTING)
    shows(world, *ALL[:3])
    assert world.job("a").stage is Stage.STARTING  # what it is in the middle of is its own
    world.crash("a")
    world.auto = True
    world.settle()
    a = world.job("a")
    assert (a.stage, a.struck, a.start_failures) == (Stage.NONE, (), ())
    assert states(world) == ["idle"] * 3 + ["lost"]


@pytest.mark.parametrize("mechanism", [Mechanism.SIDECAR, Mechanism.TERMINATE])
def test_a_hand_over_of_it_is_given_up(mechanism: Mechanism) -> None:
    world = World(mechanism=mechanism).boot()
    world.running("a", 4, 2, 4)
    world.auto = False
    world.submit("b", 2)
    world.plan(("b", 2), ("a", 2), about="b")
    shows(world, *ALL[:3])
    assert world.job("b").hand_over is None
    assert world.job("a").donation is None
    world.auto = True
    world.settle()
    assert states(world) == ["idle"] * 3 + ["lost"]
    world.plan(("b", 2))
    assert world.job("b").stage is Stage.TRAINING


def test_a_donor_that_keeps_it_takes_the_newcomers_hand_over_along() -> None:
    world = World(mechanism=Mechanism.TERMINATE).boot()
    world.running("a", 4, 2, 4)
    world.container("a").saves = False
    world.submit("b", 2)
    world.plan(("b", 2), ("a", 2), about="b")
    assert world.job("a").stage is Stage.SAVING
    shows(world, *ALL[1:])
    assert world.job("b").hand_over is None, "it would wait for ever for what a does not give"
    world.container("a").saves = True
    world.settle()
    assert world.job("a").stage is Stage.NONE
    world.plan(("b", 2))
    assert world.job("b").stage is Stage.TRAINING


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("gone", [ALL[:1], ALL[3:], ALL])
def test_in_every_moment_of_a_hand_over_it_comes_to_rest_as_lost(
    state: str, gone: tuple[GpuId, ...]
) -> None:
    world = in_state(state)
    world.dirty_gpus = set()
    shows(world, *(gpu for gpu in ALL if gpu not in gone))
    world.auto = True
    for container in world.containers.values():
        container.saves, container.slow_init = True, False
    for _ in range(5):
        world.settle()
        world.wait(1000.0)
    for gpu in gone:
        assert world.engine.state.gpus[gpu].state.value == "lost", gpu
    for job in world.engine.state.jobs.values():
        assert not set(job.gpus) & set(gone)
        assert job.stage in (Stage.NONE, Stage.READY, Stage.TRAINING), job


def test_what_is_not_shown_outlives_a_snapshot_and_a_replay() -> None:
    world = World().boot()
    world.running("a", 2, 2)
    shows(world, *ALL[1:3])
    assert State.load(world.engine.state.dump()).dump() == world.engine.state.dump()
    assert world.replay() == world.log


def test_a_look_at_a_host_that_nobody_knows_changes_nothing() -> None:
    world = World().boot()
    before = world.engine.state.dump()
    world.event(ev.GpusSeen(HostId("elsewhere"), ()))
    assert world.engine.state.dump() == before
