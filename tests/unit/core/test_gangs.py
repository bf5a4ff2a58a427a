"""Jobs on several hosts: placed, granted, shrunk, moved and ended as a whole."""

from __future__ import annotations

import json

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.commands import CheckRelease, Command, Launch
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.model import GpuId, HostId, JobId, JobState, Share, Spans, Stage
from reshape_controller.core.plan import Plan, Target
from reshape_sidecar import codec
from tests.support.world import World

A, B = HostId("host-0"), HostId("host-1")
GANG = {"workers": 2, "span": Spans.ANY}


def target(job: str, size: int, *shares: tuple[HostId, int]) -> Target:
    """A target on these hosts, each with so many workers."""
    placed = tuple(Share(host, workers) for host, workers in shares)
    return Target(JobId(job), size, shares[0][0], placed if len(placed) > 1 else ())


def give(world: World, *targets: Target) -> None:
    world.apply(Plan(targets, "test", about=targets[0].job))


def on_two_hosts(size: int = 8) -> World:
    """Job a trains with four GPUs on each of two hosts of four, or with fewer."""
    world = World().boot(4, hosts=3)
    world.submit("a", 4, 8, **GANG)
    give(world, target("a", size, (A, 1), (B, 1)))
    assert world.job("a").stage is Stage.TRAINING
    return world


def commands_of(world: World, name: str) -> list[Command]:
    """The commands of this name, in the order of the log."""
    texts = [text for entry in world.log for text in entry[3:]]
    return [codec.from_value(Command, json.loads(text)) for text in texts if f'"{name}"' in text]


def test_a_gang_starts_on_both_hosts_with_equal_gpus_for_each_worker() -> None:
    world = on_two_hosts()
    job = world.job("a")
    assert job.hosts == (A, B)
    assert [world.engine.state.gpus[gpu].host for gpu in job.gpus] == [A] * 4 + [B] * 4
    (launch,) = commands_of(world, "Launch")
    assert launch == Launch(1, JobId("a"), 1, A, (Share(A, 1), Share(B, 1)))


def test_a_gang_gets_no_gpu_before_it_can_have_all() -> None:
    world = on_two_hosts(4)
    world.submit("new", 8, **GANG)
    with pytest.raises(PlanRejected, match="4 idle GPUs on host-0, not 2"):
        give(world, target("new", 8, (A, 1), (B, 1)))
    assert not world.job("new").gpus


def test_a_gang_gives_half_of_each_host_in_place_and_gets_it_back() -> None:
    world = on_two_hosts()
    world.train("a", 10)
    world.submit("new", 4, **GANG)
    give(world, target("new", 4, (A, 1), (B, 1)), target("a", 4, (A, 1), (B, 1)))
    job, new = world.job("a"), world.job("new")
    assert (job.stage, new.stage) == (Stage.TRAINING, Stage.TRAINING)
    assert (job.attempt, job.hosts, job.steps_lost) == (1, (A, B), 0)
    assert [world.engine.state.gpus[gpu].host for gpu in job.gpus] == [A, A, B, B]
    assert [world.engine.state.gpus[gpu].host for gpu in new.gpus] == [A, A, B, B]
    world.finish("new")
    give(world, target("a", 8, (A, 1), (B, 1)))
    job = world.job("a")
    assert (len(job.gpus), job.attempt, job.steps_lost) == (8, 1, 0)


def test_the_release_of_a_gang_is_checked_on_each_host() -> None:
    world = on_two_hosts()
    world.finish("a")
    checks = [each for each in commands_of(world, "CheckRelease") if isinstance(each, CheckRelease)]
    hosts = [{GpuId(gpu).split("-")[1] for gpu in check.gpus} for check in checks]
    assert hosts == [{"0"}, {"1"}]


def test_a_job_of_one_host_moves_onto_two_by_another_container() -> None:
    world = World().boot(4, hosts=2)
    world.submit("a", 4, 8, **GANG)
    give(world, target("a", 4, (A, 2)))
    own = world.job("a").gpus
    give(world, target("a", 8, (A, 1), (B, 1)))
    job = world.job("a")
    assert (job.stage, job.hosts, job.attempt, len(job.gpus)) == (Stage.TRAINING, (A, B), 2, 8)
    assert job.gpus[:4] == own


def test_a_host_that_falls_silent_ends_the_whole_attempt() -> None:
    world = on_two_hosts()
    world.auto = False
    world.event(ev.HostFellSilent(B, "no answer"))
    job = world.job("a")
    assert job.stage in (Stage.ENDING, Stage.NONE)
    world.auto = True
    world.settle()
    job = world.job("a")
    assert (job.stage, job.state, job.failures) == (Stage.NONE, JobState.SUBMITTED, 0)
    assert world.gpu_states()[:8] == ["idle"] * 4 + ["lost"] * 4


def test_a_worker_that_fails_because_a_host_of_the_gang_is_lost_costs_no_retry() -> None:
    world = on_two_hosts()
    world.auto = False
    world.crash("a")
    assert world.job("a").failures == 1
    world.event(ev.HostFellSilent(B, "no answer"))
    assert world.job("a").failures == 0
    world.event(ev.HostFellSilent(A, "no answer"))
    assert world.job("a").failures == 0, "it is given back once"
    assert world.replay() == world.log


def test_a_gang_keeps_its_gpus_of_other_hosts_until_its_containers_there_are_gone() -> None:
    world = on_two_hosts()
    world.auto = world.effects = False
    world.event(ev.HostFellSilent(B, "no answer"))
    assert world.job("a").stage is Stage.ENDING
    assert world.gpu_states()[:8] == ["in use"] * 4 + ["lost"] * 4


def test_drained_host_of_a_gang_makes_the_whole_gang_leave() -> None:
    world = on_two_hosts()
    world.event(ev.HostDrained(B))
    job = world.job("a")
    assert (job.stage, job.state, job.steps_lost) == (Stage.NONE, JobState.SUBMITTED, 0)


def test_a_log_with_gangs_replays_to_the_same_commands() -> None:
    world = on_two_hosts()
    world.event(ev.HostFellSilent(B, "no answer"))
    assert world.replay() == world.log
