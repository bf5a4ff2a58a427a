"""Plans that shrink jobs for a running job, or for no job at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.model import HostId, JobId, JobState, Mechanism, ReshapeIf, Stage
from reshape_controller.core.plan import Plan, Target
from tests.support.world import World

MECHANISMS = [Mechanism.SIDECAR, Mechanism.TERMINATE]


def two_running(mechanism: Mechanism = Mechanism.SIDECAR, **receiver: object) -> World:
    """Job ``a`` trains on two of four GPUs, and so does ``b``; the second host is idle."""
    world = World(mechanism=mechanism).boot(4, hosts=2)
    world.running("a", 2, 1, 2, 4, **receiver)
    world.running("b", 2, 1, 2, 4)
    return world


def on_its_way(**receiver: object) -> World:
    """``b`` was asked to give one GPU to ``a``, which shall have three, and saves."""
    world = World().boot(4, hosts=2)
    world.running("a", 2, 1, 2, 3, 4, **receiver)
    world.running("b", 2, 1, 2, 4)
    world.container("b").saves = False
    world.plan(("a", 3), ("b", 1))
    assert (world.job("a").stage, world.job("b").stage) == (Stage.TRAINING, Stage.SAVING)
    return world


def sizes(world: World) -> tuple[int, int]:
    return len(world.job("a").gpus), len(world.job("b").gpus)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_running_receiver_grows_once_its_donors_have_shrunk(mechanism: Mechanism) -> None:
    world = World(mechanism=mechanism).boot(4)
    world.running("a", 2, 2, 3)
    world.running("b", 2, 1, 2)
    world.plan(("a", 3), ("b", 1))
    assert sizes(world) == (3, 1)
    assert world.job("a").stage is world.job("b").stage is Stage.TRAINING
    assert world.gpu_states() == ["in use"] * 4
    assert (world.job("a").reshape_ups, world.job("b").reshape_downs) == (1, 1)
    assert world.replay() == world.log


def test_a_receiver_trains_on_its_own_gpus_until_it_is_asked_to_grow() -> None:
    world = on_its_way()
    a = world.job("a")
    assert world.container("a").running == a.gpus
    assert a.hand_over is not None
    assert a.gpus == a.hand_over.gpus[:2]
    view = next(job for job in world.engine.snapshot().running if job.id == "a")
    assert (view.size, view.frozen) == (3, True)
    with pytest.raises(PlanRejected, match="frozen by an earlier decision"):
        world.plan(("a", 1))
    world.container("b").saves = True
    world.settle()
    assert sizes(world) == (3, 1)


def test_a_receiver_is_not_asked_to_grow_before_the_release_is_verified() -> None:
    world = World().boot(4)
    world.running("a", 2, 2, 3)
    world.running("b", 2, 1, 2)
    world.dirty_gpus = {world.job("b").gpus[1]}
    world.plan(("a", 3), ("b", 1))
    assert world.job("b").stage is Stage.TRAINING
    assert (world.job("a").stage, sizes(world)) == (Stage.TRAINING, (2, 1))
    world.dirty_gpus = set()
    world.settle()
    assert sizes(world) == (3, 1)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_receiver_moves_onto_gpus_that_a_donor_of_another_host_gives(
    mechanism: Mechanism,
) -> None:
    world = World(mechanism=mechanism).boot(4, hosts=2)
    world.running("a", 2, 2, 3)
    world.submit("b", 1, 4)
    world.plan(("b", 4), host="host-1")
    world.plan(("a", 3), ("b", 1), host="host-1")
    assert sizes(world) == (3, 1)
    assert world.job("a").host == "host-1"
    assert world.gpu_states() == ["idle"] * 4 + ["in use"] * 4


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_job_that_shrinks_for_no_job_leaves_idle_gpus(mechanism: Mechanism) -> None:
    world = two_running(mechanism)
    world.plan(("a", 1), ("b", 1))
    assert sizes(world) == (1, 1)
    assert world.gpu_states().count("idle") == 6
    assert world.replay() == world.log


def test_two_small_newcomers_share_what_one_donor_gave() -> None:
    world = World().boot(4)
    world.running("a", 4, 2, 4)
    for name in ("b", "c"):
        world.submit(name, 1)
    world.plan(("a", 2))
    world.plan(("b", 1), ("c", 1))
    assert [len(world.job(name).gpus) for name in "abc"] == [2, 1, 1]


def test_a_plan_that_shrinks_a_job_for_two_newcomers_is_refused_by_name() -> None:
    world = two_running()
    for name in ("c", "d"):
        world.submit(name, 1, 2)
    before = world.engine.state.dump()[1:]
    with pytest.raises(PlanRejected, match="may have one receiver at most, not c, d"):
        world.plan(("c", 1), ("d", 1), ("a", 1))
    assert world.engine.state.dump()[1:] == before


def test_two_running_receivers_are_refused_by_name() -> None:
    world = World().boot(8)
    for name in "ab":
        world.running(name, 2, 2, 3)
    world.running("c", 4, 2, 4)
    with pytest.raises(PlanRejected, match="may have one receiver at most, not a, b"):
        world.plan(("a", 3), ("b", 3), ("c", 2))


def test_a_donor_whose_gpus_the_receiver_does_not_take_is_refused() -> None:
    world = World().boot(6)
    for name in "abc":
        world.running(name, 2, 1, 2, 3)
    with pytest.raises(PlanRejected, match="c: would give GPUs that a does not take"):
        world.plan(("a", 3), ("b", 1), ("c", 1))


def test_a_donor_on_another_host_than_the_receiver_is_refused() -> None:
    world = World().boot(4, hosts=2)
    world.running("a", 2, 2, 4)
    world.submit("b", 1, 2)
    world.plan(("b", 2), host="host-1")
    targets = (Target(JobId("a"), 4, HostId("host-0")), Target(JobId("b"), 1, HostId("host-1")))
    with pytest.raises(PlanRejected, match="b: is on host-1, a on host-0"):
        world.apply(Plan(targets, "test"))


def test_a_donor_that_does_not_save_leaves_the_receiver_as_it_is() -> None:
    world = on_its_way()
    world.save_deadline_passes("b")
    assert sizes(world) == (2, 2)
    assert world.job("a").hand_over is None
    with pytest.raises(PlanRejected, match="refused to save a short time ago"):
        world.plan(("b", 1))


def crash(world: World) -> None:
    world.crash("a")


def kill(world: World) -> None:
    world.kill_container("a")


def finish(world: World) -> None:
    world.finish("a")


def halt(world: World) -> None:
    world.event(ev.HaltRequested(JobId("a")))


def cancel(world: World) -> None:
    world.event(ev.CancelRequested(JobId("a")))


def drain(world: World) -> None:
    world.event(ev.HostDrained(HostId("host-0")))


def lose_gpu(world: World) -> None:
    gpus = world.engine.state.hosts[HostId("host-0")].gpus
    world.event(ev.GpusSeen(HostId("host-0"), gpus[1:]))


@pytest.mark.parametrize("end", [crash, kill, finish, halt, cancel, drain, lose_gpu])
def test_a_receiver_that_stops_for_another_reason_loses_its_hand_over(
    end: Callable[[World], None],
) -> None:
    world = on_its_way()
    end(world)
    assert world.job("a").hand_over is None
    world.container("b").saves = True
    world.settle()
    assert all(gpu.promised_to is None for gpu in world.engine.state.gpus.values())
    assert "reserved" not in world.gpu_states()
    assert world.replay() == world.log


def test_gpus_for_an_unreachable_receiver_become_idle() -> None:
    world = on_its_way()
    world.container("a").reachable = False
    world.event(ev.SideCarFellSilent(JobId("a"), 1))
    assert world.job("a").hand_over is not None, "the donor was asked already (R2)"
    world.container("b").saves = True
    world.settle()
    assert sizes(world) == (2, 1)
    assert world.gpu_states().count("idle") == 5


def test_a_receiver_whose_verdict_worsens_is_not_asked_to_grow() -> None:
    world = World().boot(4)
    world.running("a", 2, 2, 3)
    world.running("b", 2, 1, 2)
    state = world.engine.state
    world.container("b").saves = False
    world.plan(("a", 3), ("b", 1))
    a = state.jobs[JobId("a")]
    state.put_job(replace(a, spec=replace(a.spec, reshape_if=ReshapeIf.EXACT)))
    world.container("b").saves = True
    world.settle()
    assert sizes(world) == (2, 1)
    assert "its trajectory is unknown" in world.job("a").reason


def test_a_receiver_pinned_meanwhile_stays_at_its_size() -> None:
    world = on_its_way()
    world.event(ev.PinRequested(JobId("a"), 2))
    world.container("b").saves = True
    world.settle()
    assert sizes(world) == (2, 1)
    assert "is no longer one of its GPU counts" in world.job("a").reason


@pytest.mark.parametrize("moment", ["saving", "releasing"])
def test_a_controller_killed_before_the_growth_asks_for_it_after_its_start(moment: str) -> None:
    world = on_its_way()
    given = world.job("b").gpus[1]
    if moment == "releasing":
        world.dirty_gpus = {given}
        world.container("b").saves = True
        world.settle()
    world.auto = False
    world.event(ev.ControllerStarted(2, "test", world.mechanism, world.limits))
    world.dirty_gpus = set()
    world.verify()
    assert world.job("a").stage is Stage.TRAINING, "no attempt has answered yet (R6)"
    world.container("b").saves = True
    world.auto = True
    for command in world.engine.outstanding():
        world.carry_out(command)
    for container in list(world.containers.values()):
        world.report(container)
    world.settle()
    assert sizes(world) == (3, 1)
    assert world.job("a").state is JobState.RUNNING


@pytest.mark.parametrize("receiver", ["a", "new"])
def test_an_unreachable_receiver_frees_donors_that_have_not_been_asked(receiver: str) -> None:
    world = World().boot(4)
    world.running("a", 2, 2, 3)
    world.new_containers[JobId("b")] = {"can_prepare": True, "slow_prepare": True}
    world.running("b", 2, 1, 2)
    world.submit("new", 1)
    world.plan((receiver, 3 if receiver == "a" else 1), ("b", 1))
    assert world.job("b").donation is not None, "it waits for its successor"
    world.container(receiver).reachable = False
    world.event(ev.SideCarFellSilent(JobId(receiver), 1))
    assert world.job(receiver).hand_over is None
    assert (world.job("b").donation, len(world.job("b").gpus)) == (None, 2)
