"""Where a gang starts: packed or spread, on hosts of one GPU type, whole or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.core.model import HostId, Placement, Share, Spans
from reshape_controller.core.plan import JobView, Snapshot
from reshape_controller.scheduling import gang_start
from tests.support.clusters import Cluster

HOSTS = {"a": 4, "b": 4, "c": 4}


def waiting(
    used: dict[str, int], workers: int, size: int, span: Spans = Spans.ANY, kinds: str = "VVV"
) -> tuple[Snapshot, JobView]:
    """A job that waits before three hosts of four GPUs, of which some are used."""
    types = {"V": "V100", "P": "P100"}
    named = zip(HOSTS.items(), kinds, strict=True)
    cluster = Cluster({name: (types[kind], gpus) for (name, gpus), kind in named})
    for host, count in used.items():
        cluster.runs(f"on-{host}", count, on=host, sizes=(count,), speed={count: 1.0})
    cluster.waits("new", sizes=(size,), speed={size: 1.0})
    (job,) = cluster.queued
    spec = replace(job.spec, workers=workers, span=span)
    return cluster.snapshot(), replace(job, spec=spec)


def placed(snapshot: Snapshot, job: JobView, placement: Placement) -> dict[str, int]:
    hosts = gang_start.hosts_for(snapshot, job)
    shares = gang_start.place(job, job.sizes[0], hosts, placement)
    return {share.host: share.workers for share in shares}


@pytest.mark.parametrize(
    ("used", "workers", "size", "packed", "spread"),
    [
        ({}, 2, 2, {"a": 2}, {"a": 1, "b": 1}),
        ({"b": 2}, 2, 2, {"b": 2}, {"a": 1, "c": 1}),
        ({"a": 3, "b": 1, "c": 2}, 4, 4, {"b": 3, "a": 1}, {"b": 2, "c": 1, "a": 1}),
        ({"a": 2}, 2, 8, {"b": 1, "c": 1}, {"b": 1, "c": 1}),
        ({"a": 1, "b": 1, "c": 1}, 2, 8, {}, {}),
        ({"a": 1}, 3, 12, {}, {}),
    ],
)
def test_workers_are_packed_onto_the_fewest_hosts_or_spread_over_the_most(
    used: dict[str, int], workers: int, size: int, packed: dict[str, int], spread: dict[str, int]
) -> None:
    snapshot, job = waiting(used, workers, size)
    assert placed(snapshot, job, Placement.PACK) == packed
    assert placed(snapshot, job, Placement.SPREAD) == spread


def test_a_gang_has_gpus_of_one_type() -> None:
    snapshot, job = waiting({"a": 2}, 2, 6, kinds="VPV")
    assert placed(snapshot, job, Placement.PACK) == {}
    snapshot, job = waiting({"b": 2}, 2, 6, kinds="VPV")
    assert placed(snapshot, job, Placement.PACK) == {"a": 1, "c": 1}


def test_without_a_span_a_job_is_on_one_host() -> None:
    snapshot, job = waiting({"a": 3, "b": 1, "c": 3}, 2, 4, Spans.NEVER)
    assert placed(snapshot, job, Placement.PACK) == {}
    assert gang_start.can_ever_hold(snapshot, job, 4)
    assert not gang_start.can_ever_hold(snapshot, job, 8)


def test_a_job_spans_if_needed_only_while_no_host_has_enough_idle_gpus() -> None:
    snapshot, job = waiting({"a": 2, "b": 2, "c": 2}, 2, 4, Spans.IF_NEEDED)
    assert placed(snapshot, job, Placement.PACK) == {"a": 1, "b": 1}
    snapshot, job = waiting({"a": 2, "b": 2}, 2, 4, Spans.IF_NEEDED)
    assert placed(snapshot, job, Placement.PACK) == {"c": 2}
    assert placed(snapshot, job, Placement.SPREAD) == {"c": 2}
    snapshot, job = waiting({}, 2, 8, Spans.IF_NEEDED)
    assert placed(snapshot, job, Placement.PACK) == {"a": 1, "b": 1}


def test_an_initialised_gang_starts_on_its_own_hosts_alone() -> None:
    snapshot, job = waiting({"a": 2}, 2, 4)
    shares = (Share(HostId("a"), 1), Share(HostId("c"), 1))
    job = replace(job, initialized=True, host=HostId("a"), shares=shares)
    assert placed(snapshot, job, Placement.PACK) == {"a": 1, "c": 1}
    snapshot, _ = waiting({"a": 3}, 2, 4)
    assert placed(snapshot, job, Placement.PACK) == {}
