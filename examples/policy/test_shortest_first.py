"""The policy shortest-first decides as CONTRIBUTING.md says, and the engine takes its plans."""

from __future__ import annotations

from reshape_controller.policies import make_policy
from tests.support.clusters import Cluster, said
from tests.support.world import World


def test_the_job_with_the_fewest_steps_starts_first() -> None:
    cluster = Cluster().waits("long", left=900).waits("short", left=100)
    plan = make_policy("shortest-first").decide(cluster.snapshot())
    assert said(plan.targets) == {"short": 4}


def test_the_policy_reshapes_no_running_job() -> None:
    cluster = Cluster().runs("first", 4).waits("second")
    assert make_policy("shortest-first").decide(cluster.snapshot()).targets == ()


def test_the_engine_takes_every_plan_until_the_policy_has_no_other() -> None:
    policy, world = make_policy("shortest-first"), World().boot(4)
    for name in ("one", "two"):
        world.submit(name, 1, 2)
    while world.engine.wants_plan():
        world.apply(policy.decide(world.engine.snapshot()))
    world.settle()
    assert world.job("one").gpus
    assert world.job("two").gpus
