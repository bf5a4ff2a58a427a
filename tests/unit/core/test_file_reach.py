"""A job whose files can be reached from one host only: it waits for that host, and says why."""

from __future__ import annotations

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.model import HostId, JobId, JobState, Stage
from reshape_controller.core.plan import Plan
from reshape_controller.policies import make_policy
from reshape_controller.scheduling import legal_moves
from tests.support.world import HOST, World

OTHER = HostId("host-1")
ADAPTIVE = make_policy("adaptive")


def tied(files: HostId | None = None) -> World:
    """Two hosts with four GPUs each; the files of job a are on one of them."""
    world = World().boot(4, hosts=2)
    world.one_host = {JobId("a"): files}
    return world


def decide(world: World) -> Plan:
    snapshot = world.engine.snapshot()
    plan = ADAPTIVE.decide(snapshot)
    job = world.engine.state.jobs.get(plan.about) if plan.about is not None else None
    plan = legal_moves.with_unusable_hosts(plan, job, snapshot.hosts)
    world.apply(plan)
    return plan


def test_its_first_host_is_its_only_one() -> None:
    world = tied()
    world.running("a", 2, 2, 4)
    job = world.job("a")
    assert (job.only_host, job.only_host_because) == (HOST, "its files are on host-0")
    assert "files-found" in world.kinds
    with pytest.raises(PlanRejected, match="can run only on host-0, not on host-1"):
        world.plan(("a", 4), host=OTHER)
    world.plan(("a", 4))
    assert world.job("a").host == HOST


def test_drained_it_saves_waits_for_its_host_and_says_why() -> None:
    world = tied()
    world.running("a", 2, 2, 4)
    world.event(ev.HostDrained(HOST, "ann"))
    world.settle()
    job = world.job("a")
    assert (job.state, job.stage, job.only_host) == (JobState.SUBMITTED, Stage.NONE, HOST)
    assert job.reason.endswith("; can run only on host-0: its files are on host-0")
    plan = decide(world)
    assert plan.targets == ()
    assert plan.text.endswith("; host-1 is excluded: its files are on host-0")
    assert world.job("a").reason == plan.text
    world.submit("b", 2)
    assert decide(world).about == "b", "who comes after it is not held up"
    world.event(ev.HostUndrained(HOST, "ann"))
    assert decide(world).about == "a"
    assert (world.job("a").host, world.job("a").attempt) == (HOST, 2)
    assert world.job("a").failures == 0


def test_a_launch_where_its_files_are_not_reached_is_no_failure_and_not_repeated_there() -> None:
    world = tied(files=OTHER)
    world.submit("a", 2)
    world.plan(("a", 2))
    job = world.job("a")
    assert (job.state, job.stage, job.failures) == (JobState.SUBMITTED, Stage.NONE, 0)
    assert (job.only_host, job.hand_over) == (OTHER, None)
    assert all(gpu.owner is None for gpu in world.engine.state.gpus.values())
    plan = decide(world)
    assert [target.host for target in plan.targets] == [OTHER]
    assert world.job("a").gpus


def test_a_job_that_never_got_gpus_has_left_nothing_on_its_host() -> None:
    world = tied()
    world.new_containers[JobId("a")] = {"slow_init": True}
    world.submit("a", 2)
    world.plan(("a", 2))
    assert world.job("a").only_host == HOST
    world.kill_container("a")
    assert world.job("a").only_host is None
    assert "only" not in world.job("a").reason


def test_files_that_every_host_reaches_again_bind_no_longer() -> None:
    world = tied()
    world.running("a", 2, 2)
    world.event(ev.FilesFound(JobId("a"), 1, None))
    assert world.job("a").only_host is None


def test_what_is_said_of_another_host_does_not_move_a_job_that_trains() -> None:
    world = tied()
    world.running("a", 2, 2)
    before = world.job("a")
    world.event(ev.FilesFound(JobId("a"), 1, OTHER, "a mistake"))
    world.event(ev.FilesFound(JobId("a"), 7, None))
    assert world.job("a") == before
