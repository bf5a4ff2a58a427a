"""A host on which nothing starts: its jobs go to another one, and none is failed for the host."""

from __future__ import annotations

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.model import HostId, JobId, JobState, Stage
from reshape_controller.policies import make_policy
from reshape_controller.scheduling import legal_moves
from reshape_sidecar.wire import Phase
from tests.support.world import HOST, World

OTHER = HostId("host-1")
MISSING = "/data is not there"
POLICIES = ("adaptive", "paper", "optimus", "default")


def two_hosts(*jobs: str, retries: int = 3) -> World:
    """Two hosts with four GPUs each, and jobs of which every self-check fails."""
    world = World().boot(4, hosts=2)
    for job in jobs:
        world.new_containers[JobId(job)] = {"slow_init": True}
        world.submit(job, 4, retries=retries)
    return world


def unfit(world: World, job: str) -> None:
    """The self-check of its container fails, and what follows from that is done."""
    c = world.container(job)
    c.phase, c.error, c.generation = Phase.UNFIT, MISSING, world.job(job).generation
    world.report(c)
    world.settle()


def does_not_start(world: World, job: str, host: HostId) -> None:
    """Its process fails on four GPUs of the host, and once more."""
    world.new_containers[JobId(job)] = {"crashes": True}
    before = world.kinds.count("start-failed")
    world.plan((job, 4), host=host)
    assert world.kinds.count("start-failed") == before + 2
    backed_off(world, world.job(job).failures)


def backed_off(world: World, failures: int = 1) -> None:
    world.wait(world.limits.retry_backoff_s * 2.0 ** (failures - 1) + 1)


def starts(world: World, policy: str) -> set[HostId]:
    """Hosts on which the policy lets something start."""
    return {target.host for target in make_policy(policy).decide(world.engine.snapshot()).targets}


def test_a_host_on_which_self_checks_fail_does_not_fail_one_job_after_the_other() -> None:
    world = two_hosts("a", "b")
    for name in ("a", "b"):
        world.plan((name, 4))
        unfit(world, name)
        job = world.job(name)
        assert (job.state, job.stage, job.unfit_on) == (JobState.SUBMITTED, Stage.NONE, (HOST,))
        assert job.failures == 1
        assert world.gpu_states() == ["idle"] * 8


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_starts_on_another_host_than_that_of_its_failed_self_check(policy: str) -> None:
    for first in (HOST, OTHER):
        world = two_hosts("a")
        world.plan(("a", 4), host=first)
        unfit(world, "a")
        assert (
            world.job("a").reason == f"queued again for another host; error on {first}: {MISSING}"
        )
        backed_off(world)
        assert starts(world, policy) == {HOST, OTHER} - {first}


def test_a_job_that_waits_for_another_host_says_why() -> None:
    world = two_hosts("a")
    world.plan(("a", 4))
    unfit(world, "a")
    world.submit("b", 4)
    world.plan(("b", 4), host=OTHER)
    backed_off(world)
    snapshot = world.engine.snapshot()
    plan = make_policy("adaptive").decide(snapshot)
    assert plan.targets == ()
    text = legal_moves.with_unusable_hosts(plan, world.job("a"), snapshot.hosts).text
    assert text.endswith("; host-0 is excluded: it failed to start there")


def test_what_no_host_has_fails_the_job_as_soon_as_each_was_tried() -> None:
    world = two_hosts("a")
    for host in (HOST, OTHER):
        world.plan(("a", 4), host=host)
        unfit(world, "a")
        backed_off(world)
    assert (world.job("a").state, world.job("a").reason) == (JobState.FAILED, MISSING)


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_where_no_other_host_can_be_had_it_is_tried_there_again_while_it_may_fail(
    retries: int,
) -> None:
    world = two_hosts("a", retries=retries)
    world.event(ev.HostDrained(OTHER, "ann"))
    for failures in range(1, retries + 1):
        assert starts(world, "adaptive") == {HOST}
        world.plan(("a", 4))
        unfit(world, "a")
        assert (world.job("a").state, world.job("a").failures) == (JobState.SUBMITTED, failures)
        backed_off(world, failures)
    world.plan(("a", 4))
    unfit(world, "a")
    assert world.job("a").state is JobState.FAILED


def test_a_size_is_struck_only_if_it_does_not_start_on_another_host_either() -> None:
    world = World().boot(4, hosts=2)
    world.submit("a", 2, 4, retries=9)
    for host in (HOST, OTHER):
        assert world.job("a").struck == ()
        does_not_start(world, "a", host)
    job = world.job("a")
    assert (job.struck, job.unfit_on, job.failures) == ((4,), (), 4)
    assert (job.state, job.sizes) == (JobState.SUBMITTED, (2,))


def test_a_job_that_does_not_start_on_one_host_trains_on_another_at_all_of_its_sizes() -> None:
    world = World().boot(4, hosts=2)
    world.submit("a", 4)
    does_not_start(world, "a", HOST)
    job = world.job("a")
    assert (job.state, job.struck, job.unfit_on) == (JobState.SUBMITTED, (), (HOST,))
    assert job.reason == "queued again for another host; error on host-0: exit code 1"
    world.new_containers.clear()
    backed_off(world)
    assert starts(world, "adaptive") == {OTHER}
    world.plan(("a", 4), host=OTHER)
    assert world.job("a").stage is Stage.TRAINING


def test_a_size_at_which_a_reshaped_job_does_not_start_is_struck_at_once() -> None:
    """Its host is not at fault: it just trained there."""
    world = World().boot(4, hosts=2)
    world.running("a", 4, 2, 4)
    world.container("a").crashes = True
    world.submit("b", 2)
    world.plan(("b", 2), ("a", 2))
    assert (world.job("a").struck, world.job("a").unfit_on) == ((2,), ())


def test_a_resume_forgives_the_host() -> None:
    world = two_hosts("a")
    world.plan(("a", 4))
    unfit(world, "a")
    world.event(ev.HaltRequested(JobId("a"), "ann"))
    world.event(ev.ResumeRequested(JobId("a"), "ann"))
    assert world.job("a").unfit_on == ()
