"""``reshape experiment dragon``: printed inputs, our results by hand, the paper's arithmetic."""

from __future__ import annotations

import json
from dataclasses import replace
from math import sqrt
from pathlib import Path
from statistics import fmean

import pytest

from reshape_controller.cli.replays.dragon_runs import Approach, policy_of, run
from reshape_controller.core.model import Mechanism
from reshape_controller.policies import make_policy
from reshape_controller.policies.dragon import Dragon
from reshape_controller.policies.weighted import Weighted
from reshape_controller.replay import dragon
from reshape_controller.replay.dragon import SCENARIOS, WEIGHTING
from reshape_controller.replay.inputs import Costs
from reshape_controller.replay.shell import replay
from reshape_controller.scheduling.prices import weight
from reshape_profiles.loader import bundled
from reshape_profiles.schema import Overhead
from tests.support.clusters import Cluster
from tests.support.replay_bed import reshape

COSTS = Costs("round", Overhead(1.0, 9.0, 1.0, 1.0, 1.0))
"""Job start 1, process start 9, checkpoint 1, process stop 1, job stop 1."""
WORDS = {6: "six", 8: "eight"}
TEXT = " ".join(dragon.CONTRADICTIONS)


def demand(scenario: dragon.Scenario, count: str) -> int:
    return sum(getattr(job, count) * job.cpus for job in scenario.jobs)


def test_the_tables_ask_for_these_vcpus() -> None:
    found = [[demand(each, count) for count in ("least", "initial", "most")] for each in SCENARIOS]
    assert found == [[13, 16, 46], [6, 8, 22], [18, 24, 66]]
    assert [each.slots for each in (*SCENARIOS, WEIGHTING)] == [24, 24, 18, 24]
    assert len(WEIGHTING.jobs) == 12
    assert all(job.least <= job.initial <= job.most for each in SCENARIOS for job in each.jobs)


def test_with_measured_costs_weighted_ends_before_dragon_and_dragon_before_fixed_sizes() -> None:
    costs = Costs("local", dict(bundled().costs)["local"])
    gains = []
    for scenario in SCENARIOS:
        fixed_s, dragon_s, weighted_s = (
            run(scenario, approach, costs).metrics.makespan_s
            for approach in (Approach.FIXED, Approach.DRAGON, Approach.WEIGHTED)
        )
        assert weighted_s <= dragon_s <= fixed_s
        gains.append(1.0 - weighted_s / fixed_s)
    assert max(gains) == gains[1], "where all jobs fit at their largest sizes"


def test_fixed_sizes_take_what_two_workers_take() -> None:
    """600 s / 1.7 = 352.9 s from the start of training; 10 s before it, and 2 s to the end."""
    for scenario, rounds in zip(SCENARIOS, (1, 1, 2), strict=True):
        result = run(scenario, Approach.FIXED, COSTS)
        last_s = max(row.finished_s for row in result.jobs)
        assert last_s == pytest.approx(rounds * (10.0 + 600.0 / 1.7 + 2.0), abs=1.0 + rounds)
        assert result.metrics.reshape_ups == 0


def test_in_scenario_3_the_highest_priority_starts_first_and_the_last_job_grows_alone() -> None:
    result = run(SCENARIOS[2], Approach.WEIGHTED, COSTS)
    starts = {row.job: row.started_s for row in result.jobs}
    assert [job for job, at_s in starts.items() if at_s is not None and at_s < 10.0] == [
        "job-01",
        "job-02",
        "job-04",
    ]
    ups = [each for each in result.reshapes if each.up]
    assert {each.job for each in ups} == {"job-03"}
    assert result.metrics.reshape_downs == 0


def test_dragon_shrinks_the_newest_jobs_for_the_one_that_waits_too_long() -> None:
    """After 300 s job-04 needs six of 18 slots: job-03, then job-01 can go from six to three."""
    result = run(SCENARIOS[2], Approach.DRAGON, COSTS)
    downs = [each.job for each in result.reshapes if each.down]
    assert sorted(downs) == ["job-01", "job-03"]
    last = next(row for row in result.jobs if row.job == "job-04")
    assert last.started_s is not None
    assert 300.0 <= last.started_s <= 310.0


def test_the_draws_of_scenario_4_differ_by_seed_only() -> None:
    first, again, other = (
        run(WEIGHTING, Approach.WEIGHTED, COSTS, seed=seed).metrics.makespan_s for seed in (0, 0, 1)
    )
    assert first == again != other


def t_needed() -> float:
    """Return Student's t for five pairs (four degrees of freedom) at 5 %, on both sides."""
    low, high = 0.0, 10.0
    while high - low > 1e-9:
        t = (low + high) / 2
        scaled = 1 + t * t / 4
        below = 0.5 + 3 / 8 * t / sqrt(scaled) * (1 - t * t / (12 * scaled))
        low, high = (t, high) if below < 0.975 else (low, t)
    return low


def test_the_contradictions_state_what_the_printed_figures_give() -> None:
    gains = [100 * gain for gain in dragon.PRINTED_GAIN.values()]
    runs = dragon.PRINTED_RUNS
    means = fmean(each.without_s for each in runs), fmean(each.with_s for each in runs)
    first = sum(job.initial for job in SCENARIOS[2].jobs)
    wrong_divisor = 100 * (runs[1].without_s / runs[1].with_s - 1)
    computed = (
        f"a mean of {fmean(gains):.2f} %",
        f"its {wrong_divisor:.2f} % are {100 * runs[1].ratio:.2f} %",
        f"differ by {100 * runs[4].ratio:.2f} %, not by {100 * runs[4].printed_ratio:.2f} %",
        f"gains is {100 * fmean(each.ratio for each in runs):.2f} %",
        f"not {100 * fmean(each.printed_ratio for each in runs):.2f} %",
        f"conclusion's {100 * (1 - means[1] / means[0]):.2f} %",
        f"{', '.join(f'{gain:.2f}' for gain in gains[:2])} and {gains[2]:.2f} % have a mean",
        f"t of these five runs is {dragon.paired_t(runs):.2f}, and {t_needed():.2f} would be",
        f"{WORDS[first]} first workers of scenario 3 need three vCPUs each. They add up to all "
        f"{3 * first} vCPUs, but a node of {dragon.NODE_CPUS} holds two",
        f"so only {WORDS[dragon.NODES * (dragon.NODE_CPUS // 3)]} can run at once",
        f"50 for a priority of 100, and {weight(100, 1.0):.1f} if",
        f"less than {weight(60):.0f} for a priority of 60",
        f"{fmean(dragon.PRINTED_ACCURACY['1 worker']):.1f} % and a single machine "
        f"{fmean(dragon.PRINTED_ACCURACY['centralized']):.1f} %",
        f"({fmean(dragon.PRINTED_ACCURACY['4 workers']):.1f} % with four)",
    )
    assert [text for text in computed if text not in TEXT] == []
    right = [
        number
        for number in (0, 2, 3)
        if abs(runs[number].ratio - runs[number].printed_ratio) < 5e-5
    ]
    assert right == [0, 2, 3], "the other rows are as printed"
    assert means == (660.8, 619.6)


def test_the_command_prints_both_and_keeps_a_document_with_a_figure(tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = reshape("experiment", "dragon", "--seeds", "2", "--out", str(out), "-o", "json")
    assert found.exit_code == 0, found.output
    document = json.loads((out / "experiment.json").read_text())
    assert document == json.loads(found.stdout)
    assert [row["printed_gain_ratio"] for row in document["scenarios"]] == [0.0506, 0.3505, 0.2238]
    assert document["weighting"]["seeds"] == 2
    picture = (out / "figures" / "scenarios.svg").read_text()
    assert all(word in picture for word in ("scenario 3", "weighted", "makespan (s)"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("dragoon",), "unknown experiment 'dragoon'"),
        (("dragon", "--cluster", "eight"), "cluster 'eight'"),
        (("dragon", "--cluster", "2xvCPU"), "never end"),
        (("dragon", "--costs", "cheap"), "unknown set of costs 'cheap'"),
    ],
)
def test_a_wrong_word_is_named(words: tuple[str, ...], message: str) -> None:
    found = reshape("experiment", *words)
    assert found.exit_code != 0
    assert message in str(found.exception) + found.output


NAMED = {
    Approach.FIXED: "default:sizes=largest",
    Approach.DRAGON: "dragon",
    Approach.UNWEIGHTED: "dragon:down_after_s=inf,up_after_s=0",
    Approach.WEIGHTED: "weighted:utility=printed",
}
"""The policy that each approach is, but for its sizes at a start."""
SMALLEST = [
    replace(each, jobs=tuple(replace(job, initial=job.least) for job in each.jobs))
    for each in SCENARIOS
]
"""The scenarios with starts at the smallest sizes: jobs grow, wait and shrink in them."""


@pytest.mark.parametrize("scenario", SMALLEST, ids=lambda each: f"scenario {each.number}")
@pytest.mark.parametrize("approach", Approach)
def test_with_starts_at_the_smallest_size_an_approach_replays_as_the_named_policy(
    approach: Approach, scenario: dragon.Scenario
) -> None:
    fixed = approach is Approach.FIXED
    found = run(scenario, approach, COSTS)
    named = replay(
        dragon.scene(scenario, COSTS, is_fixed=fixed),
        make_policy(NAMED[approach]),
        Mechanism.NONE if fixed else Mechanism.TERMINATE,
    )
    assert found.policy == named.policy
    assert (found.jobs, found.reshapes) == (named.jobs, named.reshapes)


@pytest.mark.parametrize("approach", [Approach.DRAGON, Approach.UNWEIGHTED, Approach.WEIGHTED])
def test_an_approach_starts_each_job_at_its_initial_size(approach: Approach) -> None:
    policy = policy_of(approach, {"job-01": 4, "job-02": 2})
    assert isinstance(policy, (Dragon, Weighted))
    cluster = Cluster().waits("job-01", sizes=(1, 2, 4)).waits("job-02", sizes=(1, 2, 4))
    assert [policy.start_size(job) for job in cluster.queued] == [4, 2]
    named = make_policy(NAMED[approach])
    assert isinstance(named, (Dragon, Weighted))
    assert [named.start_size(job) for job in cluster.queued] == [1, 1]
