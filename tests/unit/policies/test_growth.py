"""The work of a decision grows in proportion to the cluster, whatever the policy.

Counts executed lines, which no busy machine changes.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from math import log
from types import FrameType
from typing import Any

import pytest

from reshape_controller.core.plan import Policy, Snapshot
from reshape_controller.policies import BUILT_IN, make_policy
from tests.support.clusters import LINEAR, Cluster

SMALL, LARGE = 20, 80
"""Hosts of the clusters that are compared: two running jobs for each, and two queued ones."""
EXPONENT_MAX = 1.35
"""In proportion, and a part for the sorting; a look at all hosts for each job is near 2."""


SPEED = {size: LINEAR[1] / size for size in range(1, 9)}


def cluster(hosts: int, *, idle: int, queue: bool) -> Snapshot:
    """Hosts of eight, each with two running jobs and ``idle`` GPUs; with a ``queue`` also jobs that
    have waited long and do not fit."""
    made = Cluster({f"host-{number:03}": ("V100", 8) for number in range(hosts)})
    for number in range(2 * hosts):
        size = (8 - idle) // 2 + (number % 2 and (8 - idle) % 2)
        sizes = (size, 8) if number % 3 else (max(1, size - 1), size, 8)
        on = f"host-{number // 2:03}"
        made.runs(f"job-{number:03}", size, on=on, sizes=sizes, speed=SPEED, left=100 * number)
    for number in range(2 * hosts if queue else 0):
        sizes = (4, 8) if number % 2 else (5, 8)
        made.waits(f"new-{number:03}", sizes=sizes, speed=SPEED, submitted_at_s=100.0)
    return made.snapshot()


def lines_of(policy: Policy, snapshot: Snapshot) -> int:
    """Count the lines that a decision executes."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        policy.decide(snapshot)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(("idle", "queue"), [(0, True), (1, True), (1, False)])
@pytest.mark.parametrize("name", BUILT_IN)
def test_four_times_the_cluster_is_about_four_times_the_work(
    name: str, idle: int, queue: bool
) -> None:
    small, large = (
        lines_of(make_policy(name), replace(cluster(hosts, idle=idle, queue=queue), explain=False))
        for hosts in (SMALL, LARGE)
    )
    assert log(large / small) / log(LARGE / SMALL) <= EXPONENT_MAX, (small, large)
