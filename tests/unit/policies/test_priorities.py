"""``adaptive`` and priorities: jobs of a lower one shrink, or are preempted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reshape_controller.core.model import Mechanism
from reshape_controller.core.plan import Plan, Snapshot
from reshape_controller.core.states import PreemptionReason
from reshape_controller.policies import make_policy
from tests.support.clusters import Cluster, sizes_by_job

ADAPTIVE = make_policy("adaptive")
OVERDUE = make_policy("adaptive:preempt=overdue")


def snapshot(cluster: Cluster, **priorities: int) -> Snapshot:
    """The cluster's snapshot, in queue order, with these priorities (else 0)."""

    def with_priority(view: Any) -> Any:
        return replace(view, spec=replace(view.spec, priority=priorities.get(view.id, 0)))

    def order(view: Any) -> tuple[int, int]:
        return -view.spec.priority, view.place

    found = cluster.snapshot()
    running = sorted(map(with_priority, found.running), key=order)
    queued = sorted(map(with_priority, found.queued), key=order)
    return replace(found, running=tuple(running), queued=tuple(queued))


def decide(cluster: Cluster, **priorities: int) -> Plan:
    return ADAPTIVE.decide(snapshot(cluster, **priorities))


def rigid(*, runs_since_s: float = 0.0, **victim: Any) -> Cluster:
    """Two jobs hold two GPUs each and cannot shrink; ``new`` needs two."""
    cluster = Cluster()
    for name in ("low", "mid"):
        cluster.runs(name, 2, sizes=[2], runs_since_s=runs_since_s, **victim)
    return cluster.waits("new", sizes=[2])


def test_the_job_of_lowest_priority_is_preempted_and_the_plan_says_why() -> None:
    plan = decide(rigid(), mid=5, new=10)
    assert plan.reason_code == "preempts-for-priority"
    assert sizes_by_job(plan.targets) == {"new": 2, "low": 0}
    assert plan.preemption is not None
    assert plan.preemption.reason is PreemptionReason.PRIORITY
    assert "low is preempted (priority 0, below 10)" in plan.text


def test_jobs_that_shrink_are_not_preempted_even_if_that_saves_no_time() -> None:
    cluster = Cluster().runs("low", 4, sizes=[2, 4], left=100_000).waits("new", sizes=[2])
    waits = decide(cluster)
    assert waits.targets == () or waits.reason_code == "shrinks-for-newcomer"
    plan = decide(
        Cluster()
        .runs("low", 2, sizes=[1, 2])
        .runs("mid", 2, sizes=[1, 2])
        .waits("new", sizes=[2], left=1),
        new=1,
    )
    assert sizes_by_job(plan.targets) == {"new": 2, "low": 1, "mid": 1}
    assert plan.preemption is None


def cooling(size: int, now_s: float = 10_000.0) -> Cluster:
    """``low`` has all GPUs and was reshaped a moment ago; ``new`` needs ``size`` of them."""
    low: dict[str, Any] = {"runs_since_s": 0.0, "reshaped_at_s": 9_999.0, "reshape_cost_s": 30.0}
    return Cluster(now_s=now_s).runs("low", 4, sizes=[2, 4], **low).waits("new", sizes=[size])


def test_a_job_that_can_shrink_after_its_cool_down_is_not_preempted_before() -> None:
    plan = decide(cooling(2), new=1)
    assert plan.targets == (), "the engine refuses to preempt a job whose shrink would do"
    assert plan.wake_at_s == 10_149.0
    plan = decide(cooling(2, now_s=10_149.0), new=1)
    assert sizes_by_job(plan.targets) == {"new": 2, "low": 2}


def test_a_job_in_its_cool_down_is_preempted_if_its_shrink_would_not_do() -> None:
    assert sizes_by_job(decide(cooling(4), new=1).targets) == {"new": 4, "low": 0}


def test_equal_priorities_preempt_nobody() -> None:
    assert decide(rigid(), low=1, mid=1, new=1).targets == ()


def test_the_policy_wakes_once_a_job_has_run_for_long_enough() -> None:
    plan = decide(rigid(runs_since_s=9_900.0), new=1)
    assert plan.targets == ()
    assert plan.wake_at_s == 10_200.0


@pytest.mark.parametrize(
    "victim", [{"loses": True}, {"fixed_because": "it cannot save"}, {"frozen": True}]
)
def test_a_job_that_must_not_be_preempted_is_not(victim: dict[str, Any]) -> None:
    assert decide(rigid(**victim), new=1).targets == ()


def test_the_mechanism_none_preempts_no_job() -> None:
    cluster = rigid()
    cluster.mechanism = Mechanism.NONE
    assert decide(cluster, new=1).targets == ()


def test_as_few_gpus_as_will_do_are_taken() -> None:
    cluster = (
        Cluster({"a": ("V100", 8)})
        .runs("one", 1, sizes=[1], runs_since_s=0.0)
        .runs("six", 6, sizes=[6], runs_since_s=0.0)
    )
    plan = decide(
        cluster.runs("last", 1, sizes=[1], runs_since_s=0.0).waits("new", sizes=[1]), new=1
    )
    assert sizes_by_job(plan.targets) in ({"new": 1, "one": 0}, {"new": 1, "last": 0})


def test_what_a_large_victim_frees_is_used() -> None:
    plan = decide(
        Cluster().runs("low", 4, sizes=[4], runs_since_s=0.0).waits("new", sizes=[1, 2, 4]), new=1
    )
    assert sizes_by_job(plan.targets) == {"new": 4, "low": 0}


def test_several_donors_serve_a_newcomer_from_the_start_if_that_saves_time() -> None:
    cluster = Cluster().runs("long", 2, sizes=[1, 2], left=10_000)
    cluster.runs("longer", 2, sizes=[1, 2], left=20_000)
    cluster.waits("new", sizes=[2], left=9_000, speed={2: 4.0})
    plan = decide(cluster)
    assert len(plan.options) > 1, "the start on GPUs of both was compared"


def test_a_job_of_equal_priority_is_not_taken_beside_one_that_cannot_be() -> None:
    cluster = Cluster().runs("low", 2, sizes=[2], runs_since_s=0.0, loses=True)
    cluster.runs("mid", 2, sizes=[2], runs_since_s=0.0).waits("new", sizes=[2])
    assert decide(cluster, mid=5, new=5).targets == ()


def two_of_equal_priority(now_s: float, *, first_since_s: float = 0.0, **victim: Any) -> Cluster:
    """Two jobs hold all GPUs and cannot shrink; ``new`` needs half of them. It came at 10,000 s and
    needs 1,000 s alone."""
    cluster = Cluster(now_s=now_s)
    cluster.runs("first", 2, sizes=[2], left=90_000, runs_since_s=first_since_s, **victim)
    cluster.runs("second", 2, sizes=[2], left=50_000, runs_since_s=0.0)
    return cluster.waits("new", speed={2: 1.0}, left=1000, submitted_at_s=10_000.0)


def test_an_overdue_job_preempts_the_equal_that_ends_last_only_if_that_is_asked_for() -> None:
    found = snapshot(two_of_equal_priority(13_601.0))
    assert ADAPTIVE.decide(found).reason_code == "holds-for-overdue"
    plan = OVERDUE.decide(found)
    assert sizes_by_job(plan.targets) == {"new": 2, "first": 0}
    assert plan.preemption is not None
    assert plan.preemption.reason is PreemptionReason.OVERDUE
    assert plan.text == (
        "new starts on 2 GPUs of a; it is overdue (waited 60 min 1 s), and preempts first."
    )


def test_an_equal_is_spared_until_it_has_run_for_half_an_hour() -> None:
    lately = two_of_equal_priority(13_601.0, first_since_s=12_000.0)
    assert sizes_by_job(OVERDUE.decide(snapshot(lately)).targets) == {"new": 2, "second": 0}
    early = two_of_equal_priority(13_601.0, first_since_s=12_000.0)
    early.running = [replace(job, runs_since_s=13_000.0) for job in early.running]
    plan = OVERDUE.decide(snapshot(early))
    assert (plan.targets, plan.wake_at_s) == ((), 14_800.0)


def test_an_overdue_job_does_not_preempt_a_higher_priority() -> None:
    found = snapshot(two_of_equal_priority(13_601.0), first=1, second=1)
    assert OVERDUE.decide(found).targets == ()
