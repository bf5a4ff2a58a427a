"""docs/policies.md: its example runs, and its tables and figures are those of the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from reshape_controller.core import learning, profile_book
from reshape_controller.core.plan import Policy
from reshape_controller.fits.convergence import POINTS_MIN
from reshape_controller.policies import PRESETS
from reshape_controller.scheduling import decision, empty_plan, rules
from reshape_controller.scheduling.forecast import HEAD_MAX
from reshape_controller.scheduling.planner import Planner
from reshape_profiles import loader
from tests.support import document_policies
from tests.support.clusters import Cluster, sizes_by_job
from tests.support.document_policies import policy_of
from tests.support.world import World

TEXT = document_policies.TEXT


def decide_all(world: World, policy: Policy) -> None:
    """Apply the policy's plans through the planner until it wants none; none is rejected."""
    planner = Planner(policy)
    while world.engine.wants_plan():
        decision = planner.decide(world.engine, world.now_s)
        assert decision.failure is None, decision.plan.text
        for command in decision.step.commands:
            world.carry_out(command)
        world.settle()


def test_the_policy_that_makes_room_serves_two_queued_jobs_with_one_donor() -> None:
    world = World().boot(4)
    world.running("large", 4, 2, 4)
    for name in ("one", "two"):
        world.submit(name, 1)
    decide_all(world, policy_of("MakeRoom"))
    assert [len(world.job(name).gpus) for name in ("large", "one", "two")] == [2, 1, 1]


def test_the_policy_of_even_shares_has_a_running_job_grow_on_gpus_of_another() -> None:
    world = World().boot(8)
    world.running("large", 6, 2, 4, 6)
    world.running("small", 2, 2, 4)
    decide_all(world, policy_of("EvenShares"))
    assert [len(world.job(name).gpus) for name in ("large", "small")] == [4, 4]


def test_the_policy_of_strict_priority_preempts() -> None:
    world = World().boot(2)
    world.running("low", 2, 2)
    world.wait(300.0)
    world.submit("high", 2, priority=1)
    decide_all(world, policy_of("StrictPriority"))
    assert (world.job("high").stage.value, world.job("low").preemptions) == ("training", 1)


def test_the_policy_that_tries_takes_gpus_back_that_do_not_help_and_does_not_try_again() -> None:
    world = World().boot(4)
    policy = policy_of("TryAndKeep")
    world.submit("job", 1, 2, 4)
    sizes = []
    for seconds in (1.0, 0.5, 0.5, 0.5, 0.5, 0.5):
        decide_all(world, policy)
        world.container("job").seconds_per_step = seconds
        world.train("job", 10)
        world.wait(61.0)
        sizes.append(len(world.job("job").gpus))
    assert sizes == [1, 2, 2, 4, 2, 2]
    assert world.job("job").notes == (("limit", "2"),)


def test_the_policy_that_collects_starts_a_job_on_gpus_of_several() -> None:
    world = World().boot(5)
    for name in ("left", "right"):
        world.running(name, 2, 1, 2)
    world.submit("new", 3)
    decide_all(world, policy_of("Collects"))
    assert [len(world.job(name).gpus) for name in ("left", "right", "new")] == [1, 1, 3]


def test_the_policy_that_packs_moves_a_job_to_the_fuller_host_and_then_no_more() -> None:
    world = World().boot(4, hosts=2)
    world.running("few", 1, 1)
    world.submit("many", 2)
    world.plan(("many", 2), host="host-1")
    decide_all(world, policy_of("Packs"))
    assert [world.job(name).host for name in ("few", "many")] == ["host-1", "host-1"]
    assert world.job("few").steps_lost == 0


def test_the_example_is_a_policy_that_the_engine_takes() -> None:
    policy = policy_of("FirstFit")
    assert policy.name == "first-fit"
    cluster = Cluster().runs("job", 1, speed={1: 1.0}).waits("new", speed={1: 3.0, 2: 2.0, 4: 1.0})
    assert sizes_by_job(policy.decide(cluster.snapshot()).targets) == {"new": 2}
    world = World().boot(4)
    world.submit("one", 1, 2, 4)
    world.submit("two", 2)
    while world.engine.wants_plan():
        world.apply(policy.decide(world.engine.snapshot()))
    world.settle()
    assert len(world.job("one").gpus) == 4
    assert world.job("two").gpus == ()


def test_the_example_of_a_file_of_profiles_is_read() -> None:
    (text,) = re.findall(r"```toml\n(\[\[profile\]\].*?)```", TEXT, flags=re.DOTALL)
    (profile,) = loader.parse(tomllib.loads(text), "docs/policies.md").profiles
    assert [(p.gpus, p.source) for p in profile.speed] == [
        (1, "measured 2026-05-02"),
        (2, "assumed"),
    ]
    assert profile.overhead is not None


def test_the_body_of_the_example_has_ten_lines() -> None:
    lines = [line for line in document_policies.examples()[0].splitlines() if line.strip()]
    body = lines[lines.index('    name = "first-fit"') + 1 :]
    assert len(body) <= 10


def test_the_table_of_presets_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| `([\w-]+)` \| `(\w+)` \|", TEXT, flags=re.MULTILINE)
    assert {name: (policy, mechanism) for name, policy, mechanism in rows} == {
        name: (preset.policy, preset.mechanism.value) for name, preset in PRESETS.items()
    }


def test_the_figures_of_the_rules_are_those_of_the_code() -> None:
    assert rules.GAIN == 0.05
    assert "by 5 % of that job's remaining time" in " ".join(TEXT.split())
    assert rules.COOL_DOWN == 5.0
    assert "five times what its last reshape cost" in " ".join(TEXT.split())
    assert rules.MAX_WAIT_S == 3600.0
    assert f"first {HEAD_MAX} queued jobs" in " ".join(TEXT.split())
    assert decision.NEWCOMERS_MAX == 4
    assert POINTS_MIN == 5
    assert (learning.SPEED_WEIGHT, learning.TYPE_WEIGHT, learning.TYPE_EVERY) == (
        0.5,
        0.1,
        10,
    )
    assert (learning.COST_WEIGHT, learning.STRAGGLE_RATIO) == (0.3, 1.5)
    assert f"counts as {profile_book.DEFAULT_WORK_S:.0f} s of training" in TEXT


def test_every_reason_code_of_adaptive_is_in_the_document() -> None:
    files = [module.__file__ for module in (decision, empty_plan)]
    source = "".join(Path(name).read_text() for name in files if name is not None)
    codes = set(
        re.findall(
            r'"((?:starts|shrinks|preempts|grows|moves|waits|holds|keeps)-[a-z-]*|grows|moves)"',
            source,
        )
    )
    assert len(codes) == 15
    assert [code for code in sorted(codes) if f"`{code}`" not in TEXT] == []
