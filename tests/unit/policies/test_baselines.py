"""The baselines ``fifo``, ``srtf`` and ``tiresias``, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.core.model import Service
from reshape_controller.core.plan import Policy, Snapshot
from reshape_controller.policies import UnknownPolicy, make_policy
from reshape_controller.scheduling import preemption_reason
from tests.support.clusters import Cluster, sizes_by_job

FIFO, SRTF, TIRESIAS = map(make_policy, ("fifo", "srtf", "tiresias"))
BY_RATIO = make_policy("adaptive:preempt=ratio")


def test_fifo_lets_no_job_pass_the_oldest() -> None:
    cluster = Cluster().runs("job", 2, speed={2: 1.0})
    cluster.waits("old", speed={4: 1.0}).waits("new", speed={1: 1.0})
    plan = FIFO.decide(cluster.snapshot())
    assert (plan.targets, plan.about) == ((), "old")
    assert plan.text == "old is the oldest and waits for 4 GPUs"
    cluster.queued.pop(0)
    assert sizes_by_job(FIFO.decide(cluster.snapshot()).targets) == {"new": 1}


def test_fifo_counts_places_and_no_priority() -> None:
    cluster = Cluster().waits("old").waits("new")
    high = replace(cluster.queued[1], spec=replace(cluster.queued[1].spec, priority=9))
    snapshot = replace(cluster.snapshot(), queued=(high, cluster.queued[0]))
    assert sizes_by_job(FIFO.decide(snapshot).targets) == {"old": 1}


def test_srtf_starts_the_shortest_job_where_it_ends_first() -> None:
    cluster = Cluster({"a": ("K80", 4), "b": ("V100", 1)})
    cluster.waits("long", left=2000)
    speeds = {"K80": {1: 9.0, 4: 3.0}, "V100": {1: 2.0}}
    cluster.waits("short", speeds=speeds, sizes=(1, 4), left=100)
    plan = SRTF.decide(cluster.snapshot())
    assert [(t.job, t.size, t.host) for t in plan.targets] == [("short", 1, "b")]


def waiting(wait_s: float, *, left: int = 1000, run_s: float = 1800.0) -> Snapshot:
    """A rigid job holds all GPUs; ``new`` needs 200 s alone."""
    cluster = Cluster().runs("job", 4, speed={4: 1.0}, left=left, runs_since_s=10_000.0 - run_s)
    cluster.running[0] = replace(
        cluster.running[0],
        served=(Service("V100", "training", 4 * run_s),),
        serves_since_s=10_000.0,
    )
    cluster.waits("new", speed={4: 1.0}, left=200, submitted_at_s=10_000.0 - wait_s)
    return cluster.snapshot()


@pytest.mark.parametrize("policy", [SRTF, TIRESIAS, BY_RATIO], ids=lambda policy: policy.name)
def test_a_job_at_a_ratio_of_three_preempts_one_with_four_times_as_much_to_go(
    policy: Policy,
) -> None:
    plan = policy.decide(waiting(400.0))
    assert sizes_by_job(plan.targets) == {"new": 4, "job": 0}
    assert preemption_reason.confirmed(plan, waiting(400.0), policy).targets == plan.targets
    too_soon = policy.decide(waiting(399.0))
    assert too_soon.targets == ()
    assert too_soon.wake_at_s == pytest.approx(10_001.0, abs=0.01)
    assert policy.decide(waiting(400.0, left=799)).targets == ()
    assert policy.decide(waiting(400.0, run_s=1799.0)).targets == ()


def test_no_job_preempts_its_equal_unless_that_is_asked_for() -> None:
    assert make_policy("adaptive").decide(waiting(400.0)).targets == ()
    assert BY_RATIO.name == "adaptive:preempt=ratio"
    assert BY_RATIO.decide(waiting(400.0)).text == (
        "new starts on 4 GPUs of a; job, which has far more to go, is preempted and waits in its "
        "old place."
    )
    with pytest.raises(UnknownPolicy, match="use one of priority, ratio"):
        make_policy("adaptive:preempt=always")


def test_tiresias_preempts_no_job_of_the_first_queue_and_starts_it_first() -> None:
    assert make_policy("tiresias:service_s=7201").decide(waiting(400.0)).targets == ()
    cluster = Cluster().waits("served").waits("fresh")
    cluster.queued[0] = replace(cluster.queued[0], served=(Service("V100", "training", 3600.0),))
    assert sizes_by_job(TIRESIAS.decide(cluster.snapshot()).targets) == {"fresh": 1}
    with pytest.raises(UnknownPolicy, match="must be above 0"):
        make_policy("tiresias:service_s=0")
