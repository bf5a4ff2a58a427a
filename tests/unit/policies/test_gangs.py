"""``adaptive`` and jobs over several hosts: when a gang gives and grows, and what the texts say.

Two hosts of four GPUs; what replays show of other policies is in ``tests/replay``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reshape_controller.core.model import HostId, JobId, Placement, Share, Spans
from reshape_controller.core.plan import Plan, Target
from reshape_controller.http.render import decision_view
from reshape_controller.policies import make_policy
from reshape_controller.scheduling.worker_rooms import Rooms, enough_on_several
from reshape_controller.store.protocol import Decision
from tests.support.clusters import COSTS, Cluster

GANG: dict[str, Any] = {"workers": 2, "span": Spans.ANY}
HOSTS = {"a": ("V100", 4), "b": ("V100", 4)}
BOTH = (Share(HostId("a"), 1), Share(HostId("b"), 1))
SPEED = {2: 4.0, 4: 2.0, 8: 1.0}


def with_gang(size: int = 8, **more: Any) -> Cluster:
    """A cluster on which a job of 4 or 8 GPUs trains on both hosts."""
    given: dict[str, Any] = {"left": 5000, "sizes": (4, 8), **GANG, **more}
    return Cluster(dict(HOSTS)).runs("gang", size, speed=SPEED, shares=BOTH, **given)


def decided(cluster: Cluster, policy: str = "adaptive") -> Plan:
    return make_policy(policy).decide(cluster.snapshot())


def both(job: str, size: int) -> Target:
    return Target(JobId(job), size, HostId("a"), BOTH)


def test_a_gang_gives_to_a_short_job_and_the_text_names_its_hosts() -> None:
    cluster = with_gang().waits("new", sizes=(4,), speed=SPEED, left=50, **GANG)
    plan = decided(cluster)
    assert plan.targets == (both("new", 4), both("gang", 4))
    assert plan.text.startswith("new starts on 4 GPUs of a and b; gang lends 4 of its 8 GPUs")


@pytest.mark.parametrize(
    ("more", "wakes_at_s"),
    [
        ({"reshaped_at_s": 9_990.0, "reshape_cost_s": 25.0}, 10_115.0),
        ({"no_shrink_before_s": 10_030.0}, 10_030.0),
    ],
)
def test_a_gang_that_cools_down_gives_nothing(more: dict[str, Any], wakes_at_s: float) -> None:
    cluster = with_gang(**more).waits("new", sizes=(4,), speed=SPEED, left=50, **GANG)
    plan = decided(cluster)
    assert plan.targets == ()
    assert plan.wake_at_s == wakes_at_s


def test_a_frozen_gang_neither_gives_nor_grows() -> None:
    cluster = with_gang(4, frozen=True).waits("new", sizes=(8,), speed=SPEED, left=50, **GANG)
    assert decided(cluster).targets == ()
    assert decided(with_gang(4, frozen=True)).targets == ()


def test_a_gang_grows_on_both_hosts_or_not_at_all() -> None:
    plan = decided(with_gang(4))
    assert plan.targets == (both("gang", 8),)
    assert plan.text.startswith("gang grows from 4 to 8 GPUs of a and b.")
    cluster = with_gang(4, sizes=(4, 8), placement=Placement.SPREAD)
    assert decided(cluster.runs("one", 1, on="b", sizes=(1,))).targets == ()


@pytest.mark.parametrize("span", [Spans.ANY, Spans.IF_NEEDED])
def test_a_gang_moves_to_one_host_once_that_pays_for_the_restart(span: Spans) -> None:
    """A step takes 1.25 s on two hosts, and 1 s on one."""
    given: dict[str, Any] = {"sizes": (8,), "speed": SPEED, "workers": 2, "span": span}
    hosts = {**HOSTS, "c": ("V100", 8)}
    cluster = Cluster(dict(hosts), COSTS).runs("gang", 8, left=5000, shares=BOTH, **given)
    plan = decided(cluster)
    assert plan.targets == (Target(JobId("gang"), 8, HostId("c")),)
    assert plan.reason_code == "moves"
    assert plan.text.startswith("gang moves from 8 GPUs of a and b to 8 of c.")
    soon = Cluster(dict(hosts), COSTS).runs("gang", 8, left=100, shares=BOTH, **given)
    assert decided(soon).targets == (), "the restart costs more than it saves"


def test_a_gang_that_shall_spread_stays_on_its_hosts() -> None:
    given: dict[str, Any] = {"sizes": (8,), "speed": SPEED, **GANG}
    cluster = Cluster({**HOSTS, "c": ("V100", 8)})
    cluster.runs("gang", 8, left=5000, shares=BOTH, placement=Placement.SPREAD, **given)
    assert decided(cluster).targets == ()


def test_a_gang_moves_to_fewer_hosts_of_its_own() -> None:
    """Two of its GPUs on host a are enough with the two that are idle there."""
    cluster = with_gang(4, sizes=(4,))
    plan = decided(cluster)
    assert plan.targets == (Target(JobId("gang"), 4, HostId("a")),)


def test_a_pinned_gang_gets_its_size() -> None:
    cluster = with_gang(4, sizes=(8,), pinned=True)
    plan = decided(cluster)
    assert (plan.targets, plan.reason_code) == ((both("gang", 8),), "grows-to-pin")


def test_a_gang_of_unknown_length_grows_once_it_has_had_its_size_for_a_while() -> None:
    plan = decided(with_gang(4, left=None))
    assert (plan.targets, plan.wake_at_s) == ((), 10_300.0)
    plan = decided(with_gang(4, left=None, started_at_s=9_000.0))
    assert (plan.targets, plan.reason_code) == ((both("gang", 8),), "grows-length-unknown")


def test_gpus_on_all_hosts_are_kept_for_an_overdue_gang() -> None:
    cluster = Cluster(dict(HOSTS))
    for host in HOSTS:
        cluster.runs(f"on-{host}", 2, on=host, sizes=(2,), speed=SPEED)
    cluster.waits("late", sizes=(8,), speed=SPEED, max_wait_s=0.0, **GANG)
    cluster.waits("new", sizes=(2,), speed=SPEED)
    plan = decided(cluster)
    assert (plan.targets, plan.reason_code) == ((), "holds-for-overdue")
    alone = replace(cluster, queued=cluster.queued[1:])
    assert [target.job for target in decided(alone).targets] == ["new"]


def test_a_job_that_may_span_if_needed_leaves_held_hosts_alone() -> None:
    """Host a has room for all of it, but is held: then it may not be on b and c."""
    cluster = Cluster({"a": ("V100", 4), "b": ("V100", 2), "c": ("V100", 2)})
    cluster.waits("late", sizes=(4,), speed=SPEED, max_wait_s=0.0, not_before_s=10_050.0)
    cluster.waits("new", sizes=(4,), speed=SPEED, workers=2, span=Spans.IF_NEEDED)
    plan = decided(cluster)
    assert all(not target.shares for target in plan.targets)


@pytest.mark.parametrize(("span", "moves"), [(Spans.ANY, True), (Spans.IF_NEEDED, False)])
def test_a_job_that_may_span_if_needed_stays_while_any_host_has_room(
    span: Spans, moves: bool
) -> None:
    """A slower host has room for all eight GPUs."""
    cluster = Cluster({**HOSTS, "slow": ("P100", 8)})
    slow = {size: 10.0 * seconds for size, seconds in SPEED.items()}
    speeds = {"V100": SPEED, "P100": slow}
    more: dict[str, Any] = {"sizes": (4, 8), "workers": 2, "span": span, "left": 5000}
    cluster.runs("job", 4, on="a", speeds=speeds, **more)
    assert decided(cluster).targets == ((both("job", 8),) if moves else ())


def test_the_view_of_a_decision_names_every_host_of_a_gang() -> None:
    plan = decided(with_gang(4))
    view = decision_view(Decision(7, 0, 9.0, "adaptive", plan), {}, {})
    (target,) = view.targets
    assert (target.gpus, target.host, target.hosts) == (8, "a", ("a", "b"))


def test_adaptive_v1_says_that_it_leaves_gangs_as_they_are() -> None:
    cluster = with_gang().waits("new", sizes=(4,), speed=SPEED, left=50, **GANG)
    plan = decided(cluster, "adaptive-v1")
    assert plan.targets == ()
    assert plan.text.endswith("gang on a and b keeps its GPUs: adaptive-v1 reshapes no gang")


def test_only_needed_donors_give_and_no_more_than_needed() -> None:
    """A room is two GPUs. The first job gives one, which makes none; the third is not needed."""
    cluster = Cluster(dict.fromkeys("abcd", ("V100", 4)))
    cluster.runs("first", 4, on="a", sizes=(3, 4), speed={3: 1.0, 4: 1.0})
    for name, host in (("second", "b"), ("third", "c"), ("fourth", "d")):
        cluster.runs(name, 4, on=host, sizes=(1, 2, 4), speed={1: 1.0, 2: 1.0, 4: 1.0})
    cluster.waits("new", sizes=(4,), speed=SPEED, **GANG)
    snapshot = cluster.snapshot()
    rooms = Rooms(snapshot.queued[0], 4, snapshot.hosts)
    found = enough_on_several(rooms, snapshot.running, preempts=False)
    assert [(job.id, keeps) for job, keeps in found] == [("second", 2), ("third", 2)]
    assert not rooms.are_enough, "the rooms are as before"
    found = enough_on_several(rooms, snapshot.running, preempts=True)
    assert [(job.id, keeps) for job, keeps in found] == [("first", 0)]
