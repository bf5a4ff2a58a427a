"""The cluster index: which snapshots it serves, what makes its entries void, and its size.

``tests/property/test_incremental.py`` compares it with an index that is built from nothing.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.core.knowledge import Learned, Measured
from reshape_controller.core.model import HostId, JobId
from reshape_controller.core.plan import Snapshot, Target
from reshape_controller.policies.adaptive import Adaptive
from reshape_controller.scheduling.cluster_index import CHANGED_MIN, ClusterIndex
from reshape_controller.scheduling.forecast import Forecast
from reshape_controller.scheduling.predictor import Predictor
from reshape_controller.scheduling.queue_index import QueueIndex, is_overdue
from tests.support.clusters import COSTS, FLAT, Cluster

TAIL_MS = 10_000
"""The end of a job by COSTS: checkpoint, process stop and job stop."""


def indexed(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with an index, as a planner gives it to the policy."""
    return ClusterIndex().follow(snapshot, {})


def forecast(snapshot: Snapshot) -> Forecast:
    return Forecast(snapshot, Predictor(snapshot))


def test_a_job_ends_at_its_moment_until_it_should_have_trained_and_then_so_long_after_now() -> None:
    cluster = Cluster(overhead=COSTS).runs("job", 1, speed={1: 1.0}, left=100)
    snapshot = indexed(cluster.snapshot())
    left = []
    for after_s in (0.0, 40.0, 99.0, 100.0, 500.0):
        later = replace(snapshot, now_s=snapshot.now_s + after_s)
        seen = forecast(later)
        assert forecast(replace(later, index=None)).latest == seen.latest
        left.append(seen.end_ms(later.running[0]) - TAIL_MS)
    assert left == [100_000, 60_000, 1_000, 0, 0]


def test_an_older_snapshot_still_has_its_own_forecast() -> None:
    cluster = Cluster(overhead=COSTS).runs("first", 1, speed={1: 1.0}, left=100)
    index = ClusterIndex()
    before = index.follow(cluster.snapshot(), {})
    old = forecast(before).latest
    second = cluster.runs("second", 1, speed={1: 1.0}, left=50).snapshot().running[1]
    both, now_s = (*before.running, second), before.now_s + 1.0
    later = replace(before, running=both, profiles=cluster.book, now_s=now_s)
    later = index.follow(later, {second.id: second})
    assert [name for _, name in forecast(later).latest] == ["first", "second"]
    assert forecast(before).latest == old
    assert [name for _, name in forecast(later).latest] == ["first", "second"]


def test_snapshots_without_a_decision_are_caught_up_with() -> None:
    """The job leaves while no forecast is made, and another comes."""
    cluster = Cluster(overhead=COSTS).runs("leaves", 1, left=100).runs("comes", 1, left=50)
    index, snapshot = ClusterIndex(), cluster.snapshot()
    leaves, comes = snapshot.running
    first = index.follow(replace(snapshot, running=(leaves,)), {leaves.id: leaves})
    assert [name for _, name in forecast(first).latest] == ["leaves"]
    index.follow(replace(snapshot, running=()), {leaves.id: None})
    last = index.follow(replace(snapshot, running=(comes,)), {comes.id: comes})
    assert forecast(last).latest == forecast(replace(last, index=None)).latest


def test_a_report_of_a_job_renews_its_estimate() -> None:
    snapshot, index = Cluster(overhead=COSTS).runs("job", 1, left=100).snapshot(), ClusterIndex()
    job = snapshot.running[0]
    forecast(index.follow(snapshot, {}))
    reported = replace(job, progress=replace(job.progress, step=job.progress.step + 50))
    later = index.follow(replace(snapshot, running=(reported,)), {job.id: reported})
    assert forecast(later).latest == forecast(replace(later, index=None)).latest


def test_a_job_that_joins_a_class_after_another_was_pruned_may_grow() -> None:
    """A job of a class is pruned first; then one joins that trains for much longer."""
    cluster = Cluster(hosts={"a": ("V100", 2), "b": ("V100", 4)}, overhead=COSTS)
    cluster.runs("short", 1, left=3, kind="same").runs("long", 1, left=2000, kind="same")
    snapshot, index = replace(cluster.snapshot(), explain=False), ClusterIndex()
    policy, (short, long) = Adaptive(), snapshot.running
    alone = index.follow(replace(snapshot, running=(short,)), {})
    assert policy.decide(alone).targets == ()
    both = index.follow(snapshot, {long.id: long})
    assert policy.decide(both).targets == (Target(JobId("long"), 4, HostId("b")),)


def test_hosts_that_come_or_go_are_numbered_again() -> None:
    cluster = Cluster(hosts={"a": ("V100", 1), "b": ("P100", 1)}, overhead=COSTS)
    snapshot, index = cluster.runs("job", 1, left=100).snapshot(), ClusterIndex()
    assert forecast(index.follow(snapshot, {})).numbers == {"a": 0, "b": 1}
    for hosts in (snapshot.hosts[1:], snapshot.hosts):
        fewer = index.follow(replace(snapshot, hosts=hosts), {})
        assert list(forecast(fewer).numbers) == [host.id for host in hosts]
        assert forecast(fewer).free_sum_ms == forecast(replace(fewer, index=None)).free_sum_ms


def test_changed_views_do_not_pile_up_while_no_forecast_is_made() -> None:
    snapshot, index = Cluster().runs("job", 1).snapshot(), ClusterIndex()
    forecast(index.follow(snapshot, {}))
    for number in range(5000):
        snapshot = index.follow(snapshot, {JobId(f"job {number}"): None})
    assert len(index.changed) <= CHANGED_MIN + 2
    assert forecast(snapshot).latest == forecast(replace(snapshot, index=None)).latest


def test_new_speeds_of_a_type_move_only_the_ends_that_follow_from_them() -> None:
    """The end of a job that was measured at its size follows from its own speed."""
    cluster = Cluster(overhead=COSTS)
    measured = (Measured("V100", 1, 1.0, 9),)
    cluster.runs("measured", 1, speed={1: 1.0, 2: 0.5}, left=100, measured=measured)
    cluster.runs("believed", 1, speed={1: 1.0, 2: 0.5}, left=100)
    jobs = cluster.running
    spec = replace(jobs[1].spec, job_type=jobs[0].spec.job_type)
    cluster.running[1] = replace(jobs[1], spec=spec)
    snapshot = indexed(cluster.snapshot())
    first = forecast(snapshot)
    assert [first.end_ms(job) for job in snapshot.running] == [110_000, 110_000]
    known = snapshot.profiles.learned_of(spec.job_type)
    slower = replace(known, speed=(Measured("V100", 1, 3.0),))
    later = replace(snapshot, profiles=snapshot.profiles.with_learned(slower))
    second = forecast(later)
    assert [second.end_ms(job) for job in later.running] == [110_000, 310_000]
    costs = replace(slower, checkpoint_s=12.0)
    last = replace(later, profiles=later.profiles.with_learned(costs))
    third = forecast(last)
    assert [third.end_ms(job) for job in last.running] == [120_000, 320_000]


def test_overdue_jobs_come_in_queue_order_and_the_next_deadline_is_known() -> None:
    cluster = Cluster()
    for name, since_s, own_s in (("a", 10.0, None), ("b", 5.0, None), ("c", 60.0, 1.0)):
        cluster.waits(name, submitted_at_s=cluster.now_s - since_s, max_wait_s=own_s)
    cluster.waits("d", submitted_at_s=cluster.now_s, max_wait_s=30.0)
    snapshot = cluster.snapshot()
    queue_index, now_s = QueueIndex(), snapshot.now_s
    for job in snapshot.queued:
        queue_index.put(Predictor(snapshot), job)
    overdue = queue_index.overdue(snapshot.queued, now_s, 10.0)
    assert [job.id for job in overdue] == ["a", "c"]
    assert [job.id for job in snapshot.queued if is_overdue(job, now_s, 10.0)] == ["a", "c"]
    assert queue_index.next_overdue_s(now_s, 10.0) == now_s + 5.0
    queue_index.drop(JobId("b"))
    assert queue_index.next_overdue_s(now_s, 10.0) == now_s + 30.0
    for name in ("a", "c", "d"):
        queue_index.drop(JobId(name))
    assert queue_index.next_overdue_s(now_s, 10.0) == float("inf")
    assert queue_index.overdue(snapshot.queued, now_s, 10.0) == []
    assert not queue_index.classes


def test_a_pruned_growth_is_evaluated_again_when_more_gpus_are_idle() -> None:
    """The job's own host is full; another has one idle GPU at first, and then four."""
    cluster = Cluster(hosts={"a": ("V100", 1), "b": ("V100", 4)}, overhead=COSTS)
    cluster.runs("job", 1, left=1000)
    snapshot = replace(indexed(cluster.snapshot()), explain=False)
    one, four = (
        replace(snapshot, hosts=(snapshot.hosts[0], replace(snapshot.hosts[1], idle=idle)))
        for idle in (1, 4)
    )
    policy, wanted = Adaptive(), (Target(JobId("job"), 4, HostId("b")),)
    plans = [policy.decide(seen).targets for seen in (one, four, one, four)]
    assert plans == [(), wanted, (), wanted]


def test_a_pruned_growth_is_evaluated_again_when_its_type_has_other_speeds() -> None:
    """Its own end stays, for it was measured at its size; its type learns the speed on two GPUs."""
    measured = (Measured("V100", 1, 4.0, 9),)
    cluster = Cluster(hosts={"a": ("V100", 1), "b": ("V100", 2)}, overhead=COSTS)
    cluster.runs("job", 1, speed=FLAT, left=1000, measured=measured)
    policy, before = Adaptive(), replace(indexed(cluster.snapshot()), explain=False)
    assert policy.decide(before).targets == ()
    faster = Learned("type of job", speed=(Measured("V100", 1, 4.0), Measured("V100", 2, 1.0)))
    after = replace(before, profiles=before.profiles.with_learned(faster))
    assert policy.decide(after).targets == (Target(JobId("job"), 2, HostId("b")),)


@pytest.mark.parametrize("explained", [True, False])
@pytest.mark.parametrize("first", ["loses-nothing", "loses-much"])
def test_in_a_class_of_donors_each_job_counts_with_its_own_speeds(
    first: str, explained: bool
) -> None:
    """One of them is as fast on one GPU as on two, whichever trains longer."""
    cluster = Cluster(hosts={"a": ("V100", 4)}, overhead=COSTS)
    for name, alone_s in (("loses-nothing", 1.0), ("loses-much", 20.0)):
        measured = (Measured("V100", 2, 1.0, 9), Measured("V100", 1, alone_s, 9))
        left = 2000 if name == first else 2100
        cluster.runs(name, 2, speed={1: 2.0, 2: 1.0}, left=left, measured=measured, kind="same")
    cluster.waits("newcomer", speed={1: 1.0}, left=100)
    snapshot = replace(cluster.snapshot(), explain=explained)
    assert Adaptive().decide(snapshot).targets == (
        Target(JobId("newcomer"), 1, HostId("a")),
        Target(JobId("loses-nothing"), 1, HostId("a")),
    )
