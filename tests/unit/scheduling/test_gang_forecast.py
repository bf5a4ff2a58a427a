"""Jobs on several hosts in the forecast: whole worker slots, steps that hosts make longer."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from reshape_controller.core.model import HostId, Share, Spans
from reshape_controller.core.plan import HostView, largest_of
from reshape_controller.scheduling.forecast import Forecast
from reshape_controller.scheduling.gang_room import GangRoom
from reshape_controller.scheduling.list_schedule import Schedule
from reshape_controller.scheduling.predictor import Predictor
from tests.support.clusters import HOST_S, Cluster

HOSTS = {"a": ("V100", 4), "b": ("V100", 4)}
GANG: dict[str, Any] = {"workers": 2, "span": Spans.ANY, "speed": {8: 1.0}, "left": 100}
"""100 steps on eight GPUs, each of which takes 1 s and ``HOST_S`` on two hosts."""
ON_TWO_S = 100 * (1.0 + HOST_S)


def forecast(cluster: Cluster) -> Forecast:
    snapshot = cluster.snapshot()
    return Forecast(snapshot, Predictor(snapshot))


def queue(cluster: Cluster) -> Schedule:
    return forecast(cluster).queue[1]


def test_a_job_larger_than_any_host_is_scheduled_on_several_at_its_speed_there() -> None:
    schedule = queue(Cluster(HOSTS).waits("gang", **GANG))
    assert schedule.ends_ms == [ON_TWO_S * 1000]
    assert schedule.hosts == frozenset({0, 1})
    assert schedule.busy_ms == 8 * ON_TWO_S * 1000


@pytest.mark.parametrize(
    "more",
    [{"span": Spans.NEVER}, {"only_host": HostId("a")}, {"workers": 1}],
    ids=["never", "one host", "one worker"],
)
def test_a_job_that_may_not_be_on_several_hosts_never_starts(more: dict[str, object]) -> None:
    assert queue(Cluster(HOSTS).waits("job", **{**GANG, **more})).ends_ms == []


def test_a_worker_needs_all_its_gpus_on_one_host() -> None:
    hosts = {"a": ("V100", 3), "b": ("V100", 5)}
    assert queue(Cluster(hosts).waits("gang", **GANG)).ends_ms == []
    thin = {**GANG, "workers": 8}
    assert len(queue(Cluster(hosts).waits("gang", **thin)).ends_ms) == 1


def test_gpus_of_different_types_are_never_in_one_gang() -> None:
    hosts = {"a": ("V100", 4), "b": ("P100", 4)}
    assert queue(Cluster(hosts).waits("gang", **GANG)).ends_ms == []


def test_each_worker_takes_the_slot_that_is_free_first() -> None:
    cluster = Cluster({**HOSTS, "c": ("V100", 4)})
    for host, left in (("a", 30), ("b", 50), ("c", 90)):
        cluster.runs(f"on {host}", 1, on=host, speed={1: 1.0}, left=left)
    schedule = queue(cluster.waits("gang", **GANG))
    assert schedule.ends_ms == [(50 + ON_TWO_S) * 1000]
    assert schedule.hosts == frozenset({0, 1})


def test_a_job_that_fits_on_one_host_spans_only_if_it_ends_sooner_there() -> None:
    small = {**GANG, "speed": {4: 1.0}}
    for left, end_s in ((10, 110.0), (90, ON_TWO_S)):
        cluster = Cluster(HOSTS)
        for host in HOSTS:
            cluster.runs(f"on {host}", 2, on=host, speed={2: 1.0}, left=left)
        assert queue(cluster.waits("gang", **small)).ends_ms == [end_s * 1000]


def test_the_gpus_of_a_running_gang_are_free_on_each_of_its_hosts_when_it_ends() -> None:
    shares = (Share(HostId("a"), 1), Share(HostId("b"), 1))
    cluster = Cluster(HOSTS).runs("gang", 8, on="a", shares=shares, **GANG)
    cluster.waits("new", speed={2: 1.0}, left=10)
    seen = forecast(cluster)
    assert [seen.free.of_host(host) for host in (0, 1)] == [[ON_TWO_S * 1000] * 4] * 2
    assert seen.queue[1].ends_ms == [(ON_TWO_S + 10) * 1000]


def test_of_a_gang_with_a_host_that_is_gone_the_gpus_of_the_others_count() -> None:
    shares = (Share(HostId("a"), 1), Share(HostId("b"), 1))
    cluster = Cluster(HOSTS).runs("gang", 8, on="a", shares=shares, **GANG)
    snapshot = replace(cluster.snapshot(), hosts=cluster.snapshot().hosts[1:])
    seen = Forecast(snapshot, Predictor(snapshot))
    assert seen.gpus == 4
    assert seen.free_sum_ms == 4 * ON_TWO_S * 1000 == sum(seen.free.of_host(0))


def test_a_slot_that_an_option_frees_is_within_the_reach_of_a_gang() -> None:
    """Two GPUs of c are free sooner: too few for the job on one host, and enough for a worker."""
    hosts = dict.fromkeys("abc", ("V100", 4))
    cluster = Cluster(hosts)
    for host in "abc":
        cluster.runs(f"on {host}", 3, on=host, speed={3: 1.0}, left=60 if host != "c" else 70)
    small = {**GANG, "speed": {4: 1.0}}
    outlook = forecast(cluster.waits("gang", **small)).outlook()
    assert outlook.if_waiting.hosts is not None
    change = (2, (70_000,) * 3, (10_000, 70_000, 70_000))
    assert not outlook.keeps_schedule((change,))


def test_a_gang_needs_alone_what_it_takes_on_the_fewest_hosts_that_hold_it() -> None:
    cluster = Cluster(dict.fromkeys("abc", ("V100", 4))).waits("gang", **GANG)
    snapshot = cluster.snapshot()
    (job,), largest = snapshot.queued, largest_of(snapshot.hosts)
    predictor, room = Predictor(snapshot), GangRoom.of(snapshot.hosts)
    assert predictor.best_s(job, largest) == inf
    assert predictor.best_s(job, largest, room) == ON_TWO_S


def test_the_room_counts_whole_workers_of_the_largest_hosts_first() -> None:
    hosts = [HostView(HostId(str(n)), "V100", 0, 8, usable) for n, usable in enumerate((3, 8, 4))]
    room = GangRoom.of(hosts)
    assert [room.fewest_hosts(0, workers, 2) for workers in (4, 6, 7, 8)] == [1, 2, 3, 0]
