"""Jobs over several hosts in replays: they start, give GPUs in place and get them back."""

from __future__ import annotations

from typing import Any

import pytest

from reshape_controller.core.model import Mechanism, Spans
from reshape_controller.policies import make_policy
from reshape_controller.replay.shell import Result, Scene, replay
from tests.support.gang_scenes import gang_job, gang_scene

POLICIES = (
    *("adaptive", "adaptive:objective=balanced", "adaptive:objective=jct"),
    *("paper", "optimus", "default", "fifo", "ffdl", "srtf", "tiresias", "dragon", "weighted"),
)
ADAPTIVE = POLICIES[:3]


def played(scene: Scene, policy: str) -> Result:
    return replay(scene, make_policy(policy), Mechanism.SIDECAR, keep=True, check=True)


def targets(result: Result) -> list[dict[str, tuple[int, tuple[str, ...]]]]:
    """Return the targets of each plan: by job its size and its hosts."""
    return [
        {target.job: (target.size, target.all_hosts) for target in decision.plan.targets}
        for decision in result.decisions
        if decision.plan.targets
    ]


BOTH = ("host-0000", "host-0001")


@pytest.mark.parametrize("policy", ADAPTIVE)
def test_a_gang_of_eight_lends_four_to_a_gang_in_place_and_gets_them_back(policy: str) -> None:
    large, small = gang_job("large", 4, 8, steps=6000), gang_job("small", 4, steps=200)
    result = played(gang_scene((0.0, large), (100.0, small)), policy)
    assert targets(result) == [
        {"large": (8, BOTH)},
        {"small": (4, BOTH), "large": (4, BOTH)},
        {"large": (8, BOTH)},
    ]
    metrics = result.metrics
    assert (metrics.reshape_downs, metrics.reshape_ups, metrics.moves) == (1, 1, 0)
    assert (metrics.steps_lost, metrics.container_restarts) == (0, 0)
    assert [(job.job, job.state, job.steps) for job in result.jobs] == [
        ("large", "completed", 6000),
        ("small", "completed", 200),
    ]
    texts = [decision.plan.text for decision in result.decisions if decision.plan.targets]
    assert texts[0].startswith("large starts on 8 GPUs of host-0000 and host-0001.")
    assert texts[1].startswith("small starts on 4 GPUs of host-0000 and host-0001; large lends 4 ")
    assert texts[2].startswith("large grows from 4 to 8 GPUs of host-0000 and host-0001.")


@pytest.mark.parametrize("policy", ADAPTIVE)
def test_a_gang_gives_to_a_job_of_one_host_what_it_takes_there(policy: str) -> None:
    """Each worker gives as much, so two GPUs of the other host are idle meanwhile."""
    large = gang_job("large", 4, 8, steps=6000)
    small = gang_job("small", 2, steps=100, workers=1, span=Spans.NEVER)
    result = played(gang_scene((0.0, large), (100.0, small)), policy)
    assert targets(result) == [
        {"large": (8, BOTH)},
        {"small": (2, BOTH[:1]), "large": (4, BOTH)},
        {"large": (8, BOTH)},
    ]
    assert result.metrics.steps_lost == 0


def test_two_jobs_of_one_host_give_to_a_gang() -> None:
    """Neither host alone has GPUs enough, and none of the jobs gives enough alone."""
    ones = [
        gang_job(f"one-{number}", 2, 4, steps=4000, workers=1, span=Spans.NEVER)
        for number in range(2)
    ]
    gang = gang_job("gang", 4, steps=50, max_wait_s=0.0)
    scene = gang_scene((0.0, ones[0]), (0.0, ones[1]), (500.0, gang))
    result = played(scene, "adaptive")
    assert {"gang": (4, BOTH), "one-0": (2, BOTH[:1]), "one-1": (2, BOTH[1:])} in targets(result)
    assert result.metrics.steps_lost == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_starts_a_job_that_no_host_can_hold(policy: str) -> None:
    result = played(gang_scene((0.0, gang_job("large", 8, steps=100))), policy)
    assert targets(result)[0] == {"large": (8, BOTH)}
    assert result.jobs[0].state == "completed"


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_starts_a_job_on_one_host_while_one_has_the_gpus(policy: str) -> None:
    result = played(gang_scene((0.0, gang_job("small", 4, steps=100))), policy)
    assert targets(result)[0] == {"small": (4, BOTH[:1])}


def test_a_job_moves_onto_several_hosts_once_they_are_free() -> None:
    """It starts on the one free host, and is launched again on both when the other is free."""
    first = gang_job("first", 4, steps=500, **ONE_HOST)
    large = gang_job("large", 4, 8, steps=6000)
    result = played(gang_scene((0.0, first), (1.0, large)), "adaptive")
    assert targets(result) == [
        {"first": (4, BOTH[:1])},
        {"large": (4, BOTH[1:])},
        {"large": (8, BOTH)},
    ]
    assert chosen_texts(result)[2].startswith(
        "large moves from 4 GPUs of host-0001 to 8 of host-0000 and host-0001."
    )
    assert (result.metrics.container_restarts, result.metrics.steps_lost) == (1, 0)


def test_a_gang_moves_to_one_of_its_hosts_once_that_has_room_for_all() -> None:
    """On two hosts a step takes 3 s instead of 2 s. A job of three GPUs on each leaves it two."""
    ones = [gang_job(f"one-{number}", 3, steps=50 + number, **ONE_HOST) for number in range(2)]
    gang = gang_job("gang", 4, steps=2000)
    scene = gang_scene(*[(0.0, one) for one in ones], (1.0, gang), cluster="2*5xV100", host_s=1.0)
    result = played(scene, "adaptive")
    moves = [plan["gang"] for plan in targets(result) if "gang" in plan]
    assert len(moves) == 2, moves
    assert (moves[0][0], len(moves[0][1])) == (4, 2)
    assert moves[1] == (4, moves[1][1][:1])
    assert chosen_texts(result)[-1].startswith("gang moves from 4 GPUs of host-")
    assert (result.metrics.container_restarts, result.metrics.steps_lost) == (1, 0)
    assert all(job.state == "completed" for job in result.jobs)


ONE_HOST: dict[str, Any] = {"workers": 1, "span": Spans.NEVER}


def test_a_job_of_higher_priority_takes_gpus_of_a_gang_by_a_shrink() -> None:
    low = gang_job("low", 4, 8, steps=1000)
    high = gang_job("high", 2, steps=5000, priority=1, **ONE_HOST)
    result = played(gang_scene((0.0, low), (100.0, high)), "adaptive")
    assert targets(result)[1] == {"high": (2, BOTH[:1]), "low": (4, BOTH)}
    assert "low goes from 8 to 4" in chosen_texts(result)[1]


def test_a_job_of_higher_priority_preempts_a_gang_that_cannot_shrink() -> None:
    low = gang_job("low", 8, steps=1000, min_runtime_s=0.0)
    high = gang_job("high", 4, steps=50, priority=1, **ONE_HOST)
    result = played(gang_scene((0.0, low), (100.0, high)), "adaptive")
    assert targets(result)[1:] == [
        {"high": (4, BOTH[:1]), "low": (0, BOTH[:1])},
        {"low": (8, BOTH)},
    ]
    assert result.metrics.steps_lost == 0


def test_a_gang_of_higher_priority_preempts_jobs_on_both_hosts() -> None:
    lows = [gang_job(f"low-{n}", 4, steps=1000, min_runtime_s=0.0, **ONE_HOST) for n in range(2)]
    high = gang_job("high", 8, steps=50, priority=1)
    scene = gang_scene((0.0, lows[0]), (0.0, lows[1]), (100.0, high))
    result = played(scene, "adaptive")
    taken = {"high": (8, BOTH), "low-0": (0, BOTH[:1]), "low-1": (0, BOTH[1:])}
    assert targets(result)[2] == taken
    assert result.metrics.steps_lost == 0


def test_a_short_job_preempts_a_gang_with_far_more_to_go_under_srtf() -> None:
    long, short = gang_job("long", 8, steps=9000), gang_job("short", 4, steps=20, **ONE_HOST)
    result = played(gang_scene((0.0, long), (2000.0, short)), "srtf")
    assert targets(result)[1] == {"short": (4, BOTH[:1]), "long": (0, BOTH[:1])}
    assert result.metrics.steps_lost == 0


@pytest.mark.parametrize(
    "policy", ["dragon:down_after_s=0,up_after_s=0", "weighted", "weighted:utility=printed"]
)
def test_a_gang_gives_and_grows_back_under_dragon_and_weighted(policy: str) -> None:
    large = gang_job("large", 6, 8, steps=6000)
    small = gang_job("small", 2, steps=50, priority=1)
    result = played(gang_scene((0.0, large), (1000.0, small)), policy)
    assert targets(result) == [
        {"large": (6, BOTH)},
        {"large": (8, BOTH)},
        {"small": (2, BOTH), "large": (6, BOTH)},
        {"large": (8, BOTH)},
    ]
    assert result.metrics.steps_lost == 0


def test_optimus_grows_a_gang_on_its_hosts() -> None:
    result = played(gang_scene((0.0, gang_job("large", 6, 8, steps=6000))), "optimus")
    assert targets(result) == [{"large": (6, BOTH)}, {"large": (8, BOTH)}]


def chosen_texts(result: Result) -> list[str]:
    return [each.plan.text for each in result.decisions if each.plan.targets]
