"""The two traces of ``examples/trace`` in which a job of priority 100 comes behind others."""

from __future__ import annotations

from pathlib import Path

import pytest

from reshape_controller.cli.replays.inputs import ReplayRequest, contender, setup_of
from reshape_controller.replay.shell import Result, replay

TRACES = Path(__file__).parents[3] / "examples" / "trace"


def replayed(trace: str, policy: str = "adaptive") -> Result:
    found = contender(policy)
    scene = setup_of(ReplayRequest(str(TRACES / trace), cluster="8xV100", costs="paper")).scene(0)
    return replay(scene, found.policy, found.mechanism)


def wait_s(result: Result) -> float:
    return next(job for job in result.jobs if job.job == "high").wait_s


def test_among_jobs_of_one_gpu_the_higher_priority_preempts() -> None:
    result = replayed("priority-rigid.csv")
    assert wait_s(result) <= 400.0
    assert result.metrics.steps_lost == 0
    assert sum(job.container_restarts for job in result.jobs) == 1
    assert all(job.state == "completed" for job in result.jobs)


def test_jobs_that_can_shrink_do_so_for_the_higher_priority() -> None:
    result = replayed("priority-elastic.csv")
    assert wait_s(result) <= 120.0
    assert all(job.state == "completed" and job.container_restarts == 0 for job in result.jobs)


@pytest.mark.parametrize("trace", ["priority-rigid.csv", "priority-elastic.csv"])
def test_the_paper_lets_the_higher_priority_wait(trace: str) -> None:
    assert wait_s(replayed(trace, "paper")) > 400.0
