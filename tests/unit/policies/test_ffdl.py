"""``ffdl``: which queued job starts, and what is said of those that wait."""

from __future__ import annotations

from reshape_controller.policies import make_policy
from tests.support.clusters import Cluster, sizes_by_job

FFDL = make_policy("ffdl")


def test_a_job_that_no_host_can_hold_is_passed() -> None:
    cluster = Cluster().waits("large", sizes=[8]).waits("small", sizes=[2])
    assert sizes_by_job(FFDL.decide(cluster.snapshot()).targets) == {"small": 2}


def test_a_job_that_no_host_can_hold_is_told_so_if_no_other_waits() -> None:
    plan = FFDL.decide(Cluster().waits("large", sizes=[8]).snapshot())
    text = "large waits for hosts that can hold 8 GPUs: the usable ones cannot, even idle"
    assert (plan.targets, plan.about, plan.text) == ((), "large", text)


def test_an_empty_queue_has_no_plan() -> None:
    assert FFDL.decide(Cluster().runs("job", 2).snapshot()).text == ""
