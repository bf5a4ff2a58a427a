"""``Plan.looked_up_to`` of ``adaptive-v1``: a job queued behind it is no reason to decide again."""

from __future__ import annotations

from typing import Any

from reshape_controller.policies import make_policy
from reshape_controller.scheduling.decision import NEWCOMERS_MAX
from reshape_controller.scheduling.rules import MAX_WAIT_S
from tests.support.clusters import Cluster

ADAPTIVE = make_policy("adaptive-v1")


def queue(count: int, *, gpus: int = 4, **more: Any) -> Cluster:
    """A long job has four of ``gpus`` GPUs and had better keep them; ``count`` short ones wait."""
    cluster = Cluster({"a": ("V100", gpus)}).runs("long", 4, left=4000, sizes=(1, 2, 4))
    for number in range(count):
        cluster.waits(f"job{number}", speed={2: 1.0}, left=100, **more)
    return cluster


def test_a_decision_stops_after_enough_newcomers_if_no_gpu_is_idle() -> None:
    plan = ADAPTIVE.decide(queue(NEWCOMERS_MAX + 2).snapshot())
    assert plan.reason_code == "waits-gain-too-small"
    assert plan.looked_up_to == f"job{NEWCOMERS_MAX}"


def test_a_decision_examines_a_short_queue_to_its_end() -> None:
    plan = ADAPTIVE.decide(queue(NEWCOMERS_MAX).snapshot())
    assert plan.reason_code == "waits-gain-too-small"
    assert plan.looked_up_to is None


def test_a_decision_examines_the_whole_queue_while_a_gpu_is_idle() -> None:
    """The next job might need one GPU only."""
    plan = ADAPTIVE.decide(queue(NEWCOMERS_MAX + 2, gpus=5).snapshot())
    assert plan.reason_code == "waits-gain-too-small"
    assert plan.looked_up_to is None


def test_without_any_donor_a_decision_stops_after_the_first_job() -> None:
    """The plan says why the first job waits; the reason holds for every job behind it."""
    cluster = Cluster().runs("one", 2, sizes=(2,)).runs("two", 2, sizes=(2, 4))
    for number in range(3):
        cluster.waits(f"job{number}", speed={1: 1.0})
    plan = ADAPTIVE.decide(cluster.snapshot())
    assert (plan.reason_code, plan.about) == ("waits-nothing-fits", "job0")
    assert plan.looked_up_to == "job1"


def test_the_next_decision_comes_before_a_job_that_arrives_now_is_overdue() -> None:
    """In this queue no job becomes overdue in time."""
    patient = queue(NEWCOMERS_MAX + 2, max_wait_s=2.0 * MAX_WAIT_S)
    assert ADAPTIVE.decide(patient.snapshot()).looked_up_to is None
    usual = ADAPTIVE.decide(queue(NEWCOMERS_MAX + 2).snapshot())
    assert usual.wake_at_s == 10_000.0 + MAX_WAIT_S


def test_a_decision_stops_while_all_hosts_are_held_for_an_overdue_job() -> None:
    cluster = Cluster().runs("one", 2, sizes=(2,)).runs("two", 2, sizes=(2,))
    cluster.waits("big", speed={4: 1.0}, max_wait_s=0.0).waits("small", speed={1: 1.0})
    plan = ADAPTIVE.decide(cluster.snapshot())
    assert (plan.reason_code, plan.looked_up_to) == ("holds-for-overdue", "small")
