"""``fifo``: no later job passes the oldest one, so none is a reason to decide again."""

from __future__ import annotations

from reshape_controller.policies import make_policy
from tests.support.clusters import Cluster


def test_while_the_oldest_job_waits_the_plan_has_looked_up_to_it() -> None:
    cluster = Cluster().runs("full", 4).waits("oldest").waits("later")
    plan = make_policy("fifo").decide(cluster.snapshot())
    assert (plan.targets, plan.about, plan.looked_up_to) == ((), "oldest", "oldest")
