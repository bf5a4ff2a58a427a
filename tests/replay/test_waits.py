"""How long jobs wait: for smaller ones, for equals, for lower priorities."""

from __future__ import annotations

import pytest

from reshape_controller.policies.adaptive import OBJECTIVES
from reshape_controller.replay.inputs import WorkJob
from reshape_controller.replay.shell import Result, Scene
from tests.support.input_p import input_p, input_v
from tests.support.replay_bed import job, run, scene

STREAM = 90
SMALL_S = 40.0 + 20.0 + 74 * 8.0 + 5.0
"""Container start, process start with the first step, the other steps, the end."""
EVERY_S = 130.0


def waits_of(result: Result) -> dict[str, float]:
    return {row.job: row.wait_s for row in result.jobs}


def stream_and_rigid() -> Scene:
    """One-GPU jobs of eleven minutes come faster than four GPUs do them; ``rigid`` comes early and
    needs all four GPUs for about 200 s."""
    small = [job(f"small-{n:02d}", EVERY_S * n, 75, (1,)) for n in range(STREAM)]
    return scene([*small, job("rigid", 500.0, 100, (4,))])


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_small_jobs_hold_back_a_rigid_large_one_at_most_by_the_bound(objective: str) -> None:
    """``rigid`` waits for 3,600 s (twice its own time is less), and then for the small jobs that
    hold the GPUs, and for their ends."""
    result = run(stream_and_rigid(), "adaptive", objective=objective)
    wait_s = waits_of(result)
    assert wait_s["rigid"] <= 3600.0 + SMALL_S + 30.0
    behind = [row for row in result.jobs if row.submitted_s > 500.0 + wait_s["rigid"]]
    assert len(behind) > STREAM / 3, "the stream goes on long after that"


def test_an_overdue_job_sends_equals_back_to_the_queue_only_if_that_is_asked_for() -> None:
    """Two jobs of 8,000 s hold all GPUs, and cannot shrink; ``new`` needs 400 s alone."""
    jobs: list[WorkJob] = [job(f"long-{n}", 0.0, 2000, (2,)) for n in range(2)]
    given = scene([*jobs, job("new", 100.0, 200, (4,))])
    waits, asked = (
        waits_of(run(given, "adaptive", preempt=preempt)) for preempt in ("priority", "overdue")
    )
    assert waits["new"] > 7900.0
    assert 3600.0 <= asked["new"] <= 3700.0  # with the hand-over and the container's start


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_high_priority_waits_for_shrinks_150_s_and_for_preemptions_400_s(objective: str) -> None:
    """83 s of each wait are the start of the container."""
    for given, most_s in ((input_p(), 150.0), (input_v(), 400.0)):
        assert waits_of(run(given, "adaptive", objective=objective))["high"] <= most_s
