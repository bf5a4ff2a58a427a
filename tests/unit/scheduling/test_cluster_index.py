"""What a forecast keeps for the next one: for whom that is, until when it holds, and how much.

That it never differs from what is made from nothing is ``tests/property/test_incremental.py``.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.core.knowledge import Learned, Measured
from reshape_controller.core.model import HostId, JobId
from reshape_controller.core.plan import IndexCache, Snapshot, Target
from reshape_controller.policies.adaptive import Adaptive
from reshape_controller.scheduling.cluster_index import QueueIndex, is_overdue
from reshape_controller.scheduling.forecast import Forecast
from reshape_controller.scheduling.predictor import Predictor
from tests.support.clusters import COSTS, FLAT, Cluster

TAIL_MS = 10_000
"""The end of a job by COSTS: checkpoint, process stop and job stop."""


def kept(snapshot: Snapshot) -> Snapshot:
    """As a state gives it."""
    memory = IndexCache()
    memory.show(snapshot.queued, snapshot.running)
    return replace(snapshot, kept=memory, kept_numbering=snapshot.numbering)


def forecast(snapshot: Snapshot) -> Forecast:
    return Forecast(snapshot, Predictor(snapshot))


def test_a_job_ends_at_its_moment_until_it_should_have_trained_and_then_so_long_after_now() -> None:
    cluster = Cluster(overhead=COSTS).runs("job", 1, speed={1: 1.0}, left=100)
    snapshot = kept(cluster.snapshot())
    left = []
    for after_s in (0.0, 40.0, 99.0, 100.0, 500.0):
        later = replace(snapshot, now_s=snapshot.now_s + after_s)
        seen = forecast(later)
        assert forecast(replace(later, kept=None)).latest == seen.latest
        left.append(seen.end_ms(later.running[0]) - TAIL_MS)
    assert left == [100_000, 60_000, 1_000, 0, 0]


def test_a_snapshot_of_before_is_still_seen_as_it_was() -> None:
    cluster = Cluster(overhead=COSTS).runs("first", 1, speed={1: 1.0}, left=100)
    before = kept(cluster.snapshot())
    old = forecast(before).latest
    second = cluster.runs("second", 1, speed={1: 1.0}, left=50).snapshot().running[1]
    assert before.kept is not None
    before.kept.running[second.id] = second
    later = replace(
        before, running=(*before.running, second), profiles=cluster.book, now_s=before.now_s + 1.0
    )
    before.kept.show(later.queued, later.running)
    assert [name for _, name in forecast(later).latest] == ["first", "second"]
    assert forecast(before).latest == old
    assert [name for _, name in forecast(later).latest] == ["first", "second"]


def test_renewed_views_do_not_pile_up_where_no_forecast_is_made() -> None:
    view = Cluster().runs("job", 1).snapshot().running[0]
    memory = IndexCache()
    memory.running[view.id] = view
    memory.show((), (view,))
    assert not memory.running
    memory.index = object()
    for number in range(5000):
        memory.running[JobId(f"job {number}")] = None
    memory.show((), (view,))
    assert [memory.index, memory.running] == [None, {}]


def test_what_a_type_learns_moves_only_the_ends_that_follow_from_it() -> None:
    """A job that was measured at its size ends when it says; another as its type has it."""
    cluster = Cluster(overhead=COSTS)
    told = (Measured("V100", 1, 1.0, 9),)
    cluster.runs("measured", 1, speed={1: 1.0, 2: 0.5}, left=100, measured=told)
    cluster.runs("believed", 1, speed={1: 1.0, 2: 0.5}, left=100)
    jobs = cluster.running
    spec = replace(jobs[1].spec, job_type=jobs[0].spec.job_type)
    cluster.running[1] = replace(jobs[1], spec=spec)
    snapshot = kept(cluster.snapshot())
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


def test_who_waited_too_long_is_told_in_the_order_of_the_queue_and_who_will_next() -> None:
    cluster = Cluster()
    for name, since_s, own_s in (("a", 10.0, None), ("b", 5.0, None), ("c", 60.0, 1.0)):
        cluster.waits(name, submitted_at_s=cluster.now_s - since_s, max_wait_s=own_s)
    cluster.waits("d", submitted_at_s=cluster.now_s, max_wait_s=30.0)
    snapshot = cluster.snapshot()
    waits, now_s = QueueIndex(), snapshot.now_s
    for job in snapshot.queued:
        waits.put(Predictor(snapshot), job)
    overdue = waits.overdue(snapshot.queued, now_s, 10.0)
    assert [job.id for job in overdue] == ["a", "c"]
    assert [job.id for job in snapshot.queued if is_overdue(job, now_s, 10.0)] == ["a", "c"]
    assert waits.next_s(now_s, 10.0) == now_s + 5.0
    waits.drop(JobId("b"))
    assert waits.next_s(now_s, 10.0) == now_s + 30.0
    for name in ("a", "c", "d"):
        waits.drop(JobId(name))
    assert waits.next_s(now_s, 10.0) == float("inf")
    assert waits.overdue(snapshot.queued, now_s, 10.0) == []
    assert not waits.same


def test_a_job_that_was_not_worth_growing_is_looked_at_again_when_more_gpus_are_idle() -> None:
    """The job's own host is full; another has one idle GPU at first, and then four."""
    cluster = Cluster(hosts={"a": ("V100", 1), "b": ("V100", 4)}, overhead=COSTS)
    cluster.runs("job", 1, left=1000)
    snapshot = replace(kept(cluster.snapshot()), explain=False)
    one, four = (
        replace(snapshot, hosts=(snapshot.hosts[0], replace(snapshot.hosts[1], idle=idle)))
        for idle in (1, 4)
    )
    policy, wanted = Adaptive(), (Target(JobId("job"), 4, HostId("b")),)
    plans = [policy.decide(seen).targets for seen in (one, four, one, four)]
    assert plans == [(), wanted, (), wanted]


def test_a_job_that_was_not_worth_growing_is_looked_at_again_when_its_type_learns() -> None:
    """Its own end stays, for it was measured at its size; what two GPUs bring is learned."""
    told = (Measured("V100", 1, 4.0, 9),)
    cluster = Cluster(hosts={"a": ("V100", 1), "b": ("V100", 2)}, overhead=COSTS)
    cluster.runs("job", 1, speed=FLAT, left=1000, measured=told)
    policy, before = Adaptive(), replace(kept(cluster.snapshot()), explain=False)
    assert policy.decide(before).targets == ()
    faster = Learned("type of job", speed=(Measured("V100", 1, 4.0), Measured("V100", 2, 1.0)))
    after = replace(before, profiles=before.profiles.with_learned(faster))
    assert policy.decide(after).targets == (Target(JobId("job"), 2, HostId("b")),)


@pytest.mark.parametrize("explained", [True, False])
@pytest.mark.parametrize("first", ["loses-nothing", "loses-much"])
def test_of_jobs_that_are_alike_each_counts_with_the_speeds_that_were_measured_of_it(
    first: str, explained: bool
) -> None:
    """One of them is as fast on one GPU as on two, whichever trains longer."""
    cluster = Cluster(hosts={"a": ("V100", 4)}, overhead=COSTS)
    for name, alone_s in (("loses-nothing", 1.0), ("loses-much", 20.0)):
        told = (Measured("V100", 2, 1.0, 9), Measured("V100", 1, alone_s, 9))
        left = 2000 if name == first else 2100
        cluster.runs(name, 2, speed={1: 2.0, 2: 1.0}, left=left, measured=told, kind="same")
    cluster.waits("newcomer", speed={1: 1.0}, left=100)
    snapshot = replace(cluster.snapshot(), explain=explained)
    assert Adaptive().decide(snapshot).targets == (
        Target(JobId("newcomer"), 1, HostId("a")),
        Target(JobId("loses-nothing"), 1, HostId("a")),
    )
