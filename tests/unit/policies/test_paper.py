"""Algorithms 1 and 2 on examples computed by hand, and the rules that fill their gaps."""

from __future__ import annotations

import pytest

from reshape_controller.core.model import Mechanism
from reshape_controller.policies import make_policy
from tests.support.clusters import COSTS, FLAT, PAPER, Cluster, sizes_by_job

PAPERS = make_policy("paper")


def test_two_resnets_share_four_gpus_instead_of_queueing_as_in_the_introduction() -> None:
    """1.7 and 2.4 times the speed: two GPUs each, 800 * 1.2 and 1000 * 1.2 seconds."""
    cluster = Cluster().runs("job1", 4, speed=PAPER, left=800).waits("job2", speed=PAPER)
    plan = PAPERS.decide(cluster.snapshot())
    assert sizes_by_job(plan.targets) == {"job2": 2, "job1": 2}
    assert plan.chosen is not None
    assert plan.options[plan.chosen].makespan_s == pytest.approx(1200.0)
    assert plan.reason_code == "shrinks-for-newcomer"


def test_every_size_and_victim_is_weighed_by_the_pair_of_jobs() -> None:
    """4 - 1 = 3 and 4 - 4 = 0 are no sizes of job1; only two GPUs can be taken."""
    cluster = Cluster().runs("job1", 4, speed=PAPER, left=800).waits("job2", speed=PAPER)
    plan = PAPERS.decide(cluster.snapshot())
    assert [sizes_by_job(option.targets) for option in plan.options] == [{"job2": 2, "job1": 2}]


def test_table_four_makes_a_newcomer_take_two_v100s() -> None:
    """1000 iterations at 0.14 s with 40 s around them, against 0.18 s on one GPU."""
    table = {1: 0.18, 2: 0.14}
    cluster = Cluster({"a": ("V100", 2)}, COSTS).waits("job", speed=table)
    plan = PAPERS.decide(cluster.snapshot())
    assert sizes_by_job(plan.targets) == {"job": 2}
    assert sorted(option.makespan_s or 0 for option in plan.options) == [
        pytest.approx(180.0),
        pytest.approx(220.0),
    ]


def test_idle_gpus_count_before_anything_is_taken() -> None:
    """One GPU is idle, so two for the newcomer take one of job1's three."""
    speed = {1: 6.0, 2: 3.0, 3: 2.0}
    cluster = Cluster().runs("job1", 3, speed=speed).waits("job2", speed={2: 1.0})
    assert sizes_by_job(PAPERS.decide(cluster.snapshot()).targets) == {"job2": 2, "job1": 2}


def test_of_equal_makespans_the_first_victim_is_taken() -> None:
    cluster = Cluster({"a": ("V100", 8)})
    cluster.runs("first", 4, left=10).runs("second", 4, left=10).waits("new", speed={2: 9.0})
    assert sizes_by_job(PAPERS.decide(cluster.snapshot()).targets) == {"new": 2, "first": 2}


def test_the_printed_range_of_gpus_to_remove_is_kept() -> None:
    """N_remove runs from N_min = 7: that 8 - 1 = 7 is a size is not seen."""
    cluster = Cluster({"a": ("V100", 8)})
    cluster.runs("job1", 8, speed={7: 1.2, 8: 1.0}).waits("job2", speed={1: 1.0})
    plan = PAPERS.decide(cluster.snapshot())
    assert plan.targets == ()
    assert plan.reason_code == "waits"


def test_a_reshape_is_taken_even_if_waiting_were_better() -> None:
    """The makespan starts at infinity: job1 with one second left is saved and started again."""
    cluster = Cluster(overhead=COSTS)
    cluster.runs("job1", 4, speed={2: 2.0, 4: 1.0}, left=1).waits("job2", speed={2: 1.0})
    assert sizes_by_job(PAPERS.decide(cluster.snapshot()).targets) == {"job2": 2, "job1": 2}


def test_reshaping_up_lengthens_no_other_job_and_takes_the_longest() -> None:
    """Algorithm 2 over two running jobs: only the longer one's growth lowers the makespan."""
    cluster = Cluster({"a": ("V100", 8)})
    cluster.runs("short", 2, left=100).runs("long", 2, left=900)
    plan = PAPERS.decide(cluster.snapshot())
    assert sizes_by_job(plan.targets) == {"long": 4}
    assert plan.chosen is not None
    assert plan.options[plan.chosen].makespan_s == pytest.approx(1800.0)


def test_reshaping_up_happens_even_where_more_gpus_are_slower() -> None:
    cluster = Cluster().runs("job", 2, speed={2: 1.0, 4: 1.5})
    assert sizes_by_job(PAPERS.decide(cluster.snapshot()).targets) == {"job": 4}


def test_no_job_grows_while_another_is_queued() -> None:
    """Algorithm 2 is for idle GPUs without incoming jobs: two GPUs stay idle here."""
    cluster = Cluster().runs("job", 2, speed={2: 2.0, 4: 1.0}).waits("new", speed={8: 1.0})
    assert PAPERS.decide(cluster.snapshot()).targets == ()


def test_growing_on_another_host_counts_the_restart() -> None:
    """In place 2 to 4 is not possible; four GPUs of b cost 40 s more than the training."""
    cluster = Cluster({"a": ("V100", 2), "b": ("V100", 4)}, COSTS)
    plan = PAPERS.decide(cluster.runs("job", 2, left=1000).snapshot())
    assert [(t.job, t.size, t.host) for t in plan.targets] == [("job", 4, "b")]
    assert plan.chosen is not None
    assert plan.options[plan.chosen].makespan_s == pytest.approx(40 + 2000 + 10)


def test_with_restarts_the_sums_are_those_of_restarts() -> None:
    cluster = Cluster(overhead=COSTS, mechanism=Mechanism.TERMINATE)
    cluster.runs("job1", 4, speed=FLAT, left=100).waits("job2", speed={2: 1.0}, left=10)
    plan = PAPERS.decide(cluster.snapshot())
    assert plan.chosen is not None
    assert plan.options[plan.chosen].makespan_s == pytest.approx(40 + 400 + 10)


def test_frozen_jobs_are_no_option() -> None:
    cluster = Cluster().runs("job1", 4, frozen=True).waits("job2", speed={2: 1.0})
    assert PAPERS.decide(cluster.snapshot()).targets == ()
