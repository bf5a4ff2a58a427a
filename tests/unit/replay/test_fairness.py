"""The metrics of fairness, by hand."""

from __future__ import annotations

import pytest

from reshape_controller.replay.fairness import fairness
from tests.support.replay_bed import job, run, scene


def test_a_job_alone_on_its_best_gpus_has_a_slowdown_of_one() -> None:
    given = scene([job("only", 100.0, 51, (4,))])
    found = fairness(given, run(given, "adaptive").jobs)
    assert found["worst_slowdown"] == pytest.approx(1.0, abs=0.1)
    assert found["worst_slowdown"] == found["mean_slowdown"]
    assert (found["longest_wait_s"] > 0.0, found["reshapes_per_job"]) == (True, 0.0)


def test_a_job_that_waits_for_another_is_the_worst() -> None:
    """Under ``default`` the second job waits for all GPUs of the first."""
    given = scene([job("first", 0.0, 400, (4,)), job("second", 1.0, 40, (4,))])
    rows = run(given, "default").jobs
    found = fairness(given, rows)
    second = rows[1].jct_s / (rows[1].jct_s - rows[1].wait_s)
    assert found["worst_slowdown"] > 2.0
    assert found["worst_slowdown"] == pytest.approx(second, rel=0.5)
    assert found["longest_wait_s"] == rows[1].wait_s
    assert found["worst_fairness"] == pytest.approx(found["worst_slowdown"], rel=0.05)
