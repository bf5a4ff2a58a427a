"""What a forecast keeps for the next one: for whom that is, until when it holds, and how much.

That it never differs from what is made from nothing is ``tests/property/test_incremental.py``.
"""

from __future__ import annotations

from dataclasses import replace

from reshape_controller.core.model import JobId
from reshape_controller.core.plan import Kept, Snapshot
from reshape_controller.core.prediction.forecast import Forecast
from reshape_controller.core.prediction.predictor import Predictor
from reshape_controller.core.prediction.profiles import Measured
from reshape_controller.core.prediction.waits import Waits, is_overdue
from tests.clusters import COSTS, Cluster

TAIL_MS = 10_000
"""The end of a job by COSTS: checkpoint, process stop and job stop."""


def kept(snapshot: Snapshot) -> Snapshot:
    """As a state gives it."""
    memory = Kept()
    memory.show(snapshot.queued, snapshot.running)
    return replace(snapshot, kept=memory, kept_places=snapshot.places)


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
    memory = Kept()
    memory.running[view.id] = view
    memory.show((), (view,))
    assert not memory.running
    memory.standing = object()
    for number in range(5000):
        memory.running[JobId(f"job {number}")] = None
    memory.show((), (view,))
    assert [memory.standing, memory.running] == [None, {}]


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
    waits, now_s = Waits(), snapshot.now_s
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
