"""``optimus``, ``default``, the registry and the presets."""

from __future__ import annotations

import collections
from importlib import metadata

import pytest

from reshape_controller.core.model import Mechanism
from reshape_controller.core.plan import Plan, Snapshot
from reshape_controller.policies import (
    BUILT_IN,
    PRESETS,
    UnknownPolicy,
    make_policy,
    policy_names,
)
from tests.support.clusters import COSTS, LINEAR, PAPER, Cluster, sizes_by_job
from tests.support.world import World

OPTIMUS = make_policy("optimus")


def test_optimus_starts_a_newcomer_on_its_smallest_size() -> None:
    assert sizes_by_job(OPTIMUS.decide(Cluster().waits("new", speed=PAPER).snapshot()).targets) == {
        "new": 1
    }


def test_optimus_grows_by_one_size_where_a_gpu_gains_most() -> None:
    """From one GPU to two: ``fast`` saves 4000 s of training, ``slow`` 840."""
    cluster = Cluster().runs("slow", 1, speed=PAPER).runs("fast", 1, speed=LINEAR)
    assert sizes_by_job(OPTIMUS.decide(cluster.snapshot()).targets) == {"fast": 2}


def test_optimus_counts_the_gain_for_each_gpu_that_is_added() -> None:
    """Two more GPUs save 2000 s, 1000 for each; one more saves 1500."""
    cluster = Cluster({"a": ("V100", 5)})
    cluster.runs("by two", 1, speed={1: 4.0, 3: 2.0}).runs("by one", 1, speed={1: 4.0, 2: 2.5})
    assert sizes_by_job(OPTIMUS.decide(cluster.snapshot()).targets) == {"by one": 2}


def test_optimus_does_not_count_the_restart_as_the_comparison_of_the_paper_does_not() -> None:
    cluster = Cluster(overhead=COSTS, mechanism=Mechanism.TERMINATE)
    cluster.runs("job", 1, speed=PAPER, left=10)
    assert sizes_by_job(OPTIMUS.decide(cluster.snapshot()).targets) == {"job": 2}


def test_optimus_never_grows_where_a_further_gpu_is_slower() -> None:
    cluster = Cluster().runs("job", 1, speed={1: 1.0, 2: 1.5})
    assert OPTIMUS.decide(cluster.snapshot()).targets == ()


def test_optimus_lets_a_newcomer_wait_rather_than_shrink_anyone() -> None:
    cluster = Cluster().runs("job", 4, speed=PAPER).waits("new", speed=PAPER)
    assert OPTIMUS.decide(cluster.snapshot()).targets == ()


def drawn(seed: int) -> tuple[int, ...]:
    """Sizes that twelve newcomers get, each on a cluster of its own."""
    policy, found = make_policy("default"), []
    for number in range(12):
        cluster = Cluster({"a": ("V100", 8)}, seed=seed, place=number).waits("new", speed=LINEAR)
        found.append(policy.decide(cluster.snapshot()).targets[0].size)
    return tuple(found)


def test_default_draws_among_the_sizes_from_the_seed_of_the_state() -> None:
    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    counts = collections.Counter(size for seed in range(20) for size in drawn(seed))
    assert set(counts) == {1, 2, 4, 8}
    assert all(count > 30 for count in counts.values())


def test_a_job_keeps_its_draw_while_it_waits() -> None:
    """The head drew more than is idle; it is not drawn again until it fits."""
    policy = make_policy("default")
    cluster = Cluster({"a": ("V100", 8)}, seed=1, place=0).runs("job", 7, speed={7: 1.0})
    cluster.place = drawn(1).index(8)
    cluster.waits("eight", speed=LINEAR)
    for _ in range(3):
        assert policy.decide(cluster.snapshot()).targets == ()


def test_default_starts_past_a_job_that_does_not_fit() -> None:
    policy = make_policy("default", sizes="largest")
    cluster = Cluster().runs("job", 2, speed={2: 1.0})
    cluster.waits("big", speed={4: 1.0}).waits("small", speed={1: 1.0, 2: 0.9})
    assert sizes_by_job(policy.decide(cluster.snapshot()).targets) == {"small": 2}


def test_the_largest_size_is_the_largest_that_a_host_can_hold() -> None:
    policy = make_policy("default", sizes="largest")
    assert sizes_by_job(policy.decide(Cluster().waits("new", speed=LINEAR).snapshot()).targets) == {
        "new": 4
    }


def test_every_preset_names_a_policy_that_is_there() -> None:
    assert {name: (p.policy, p.mechanism.value) for name, p in PRESETS.items()} == {
        "adaptive": ("adaptive", "sidecar"),
        "adaptive-v1": ("adaptive-v1", "sidecar"),
        "paper": ("paper", "sidecar"),
        "termination": ("optimus", "terminate"),
        "case-study-termination": ("paper", "terminate"),
        "default": ("default", "none"),
    }
    for preset in PRESETS.values():
        assert make_policy(preset.policy).name == preset.policy


def test_a_policy_can_be_named_with_its_options_and_its_name_says_them_again() -> None:
    policy = make_policy("default:sizes=largest")
    cluster = Cluster().waits("small", sizes=(1, 2))
    assert sizes_by_job(policy.decide(cluster.snapshot()).targets) == {"small": 2}
    assert policy.name == "default:sizes=largest"
    assert make_policy("default:sizes=random").name == "default"
    for text in ("default:sizes", "default:=largest", "default:sizes=smallest", "adaptive:speed=3"):
        with pytest.raises(UnknownPolicy, match=text.split(":")[0]):
            make_policy(text)


def test_an_unknown_policy_or_option_is_refused_with_what_there_is() -> None:
    with pytest.raises(
        UnknownPolicy, match="use one of adaptive, adaptive-v1, paper, optimus, default"
    ):
        make_policy("best")
    with pytest.raises(UnknownPolicy, match="use one of random, largest"):
        make_policy("default", sizes="smallest")
    with pytest.raises(UnknownPolicy, match="gain appears twice"):
        make_policy("adaptive:gain=0.1,max_wait_s=60,gain=0.3")
    with pytest.raises(UnknownPolicy, match="'speed'; its options: "):
        make_policy("adaptive", speed=3)


class Idle:
    """A policy of another package."""

    name = "idle"

    def decide(self, snapshot: Snapshot) -> Plan:
        return Plan()


def test_a_policy_of_another_package_is_found_by_its_entry_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = metadata.EntryPoint("idle", "tests.unit.policies.test_others:Idle", "reshape.policies")

    def entry_points(group: str, name: str | None = None) -> list[metadata.EntryPoint]:
        assert group == "reshape.policies"
        return [entry] if name in (None, "idle") else []

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    assert make_policy("idle").name == "idle"
    assert policy_names() == (*BUILT_IN, "idle")


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_each_preset_brings_the_demo_to_its_end_in_a_world_of_sidecars(preset: str) -> None:
    """Job 1 of 1, 2 or 4 GPUs, then Job 2 of 2, on one host with four; whoever can goes on."""
    policy = make_policy(PRESETS[preset].policy)
    world = World(PRESETS[preset].mechanism).boot(4)
    sizes: list[tuple[int, int]] = []

    def plan() -> None:
        while world.engine.wants_plan():
            world.apply(policy.decide(world.engine.snapshot()))
        world.settle()
        while world.engine.wants_plan():
            world.apply(policy.decide(world.engine.snapshot()))
        sizes.append((len(world.job("job1").gpus), len(world.job("job2").gpus)))

    world.submit("job1", 1, 2, 4)
    while world.engine.wants_plan():
        world.apply(policy.decide(world.engine.snapshot()))
    world.settle()
    world.submit("job2", 2)
    plan()
    world.finish("job1" if sizes[-1][1] == 0 else "job2")
    plan()
    expected = {
        "adaptive": [(2, 2), (4, 0)],
        "adaptive-v1": [(2, 2), (4, 0)],
        "paper": [(2, 2), (4, 0)],
        "termination": [(4, 0), (0, 2)],
        "case-study-termination": [(2, 2), (4, 0)],
    }
    if preset == "default":
        assert sizes in ([(2, 2), (2, 0)], [(1, 2), (1, 0)], [(4, 0), (0, 2)])
    else:
        assert sizes == expected[preset]


def test_settings_of_adaptive_are_read_from_its_name_and_are_in_it() -> None:
    assert make_policy("adaptive").name == "adaptive"
    policy = make_policy("adaptive:gain=0.1,max_wait_s=60")
    assert policy.name == "adaptive:gain=0.1,max_wait_s=60"
    assert make_policy(policy.name).name == policy.name
    growth = Cluster().runs("job", 2, speed={2: 1.0, 4: 0.92})
    assert policy.decide(growth.snapshot()).targets == ()
    assert sizes_by_job(make_policy("adaptive").decide(growth.snapshot()).targets) == {"job": 4}
    with pytest.raises(UnknownPolicy, match="could not convert"):
        make_policy("adaptive:gain=much")
    with pytest.raises(UnknownPolicy, match="must lie between 0 and 1"):
        make_policy("adaptive:gain=1.5")
