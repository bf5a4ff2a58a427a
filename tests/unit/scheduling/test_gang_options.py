"""When the GPUs are free that a job on several hosts releases for a newcomer.

A gang of two workers trains on two hosts of four GPUs: a step takes 1.25 s on all of them, and
2.25 s on half. The newcomer needs 22.5 s on two GPUs of each host, or 20 s on two of one.
"""

from __future__ import annotations

from typing import Any

import pytest

from reshape_controller.core.model import HostId, JobId, Share, Spans
from reshape_controller.core.plan import Target
from reshape_controller.scheduling import gang_options
from reshape_controller.scheduling.candidates import Candidate
from reshape_controller.scheduling.forecast import Forecast
from reshape_controller.scheduling.predictor import Predictor
from reshape_controller.scheduling.rules import Rules
from tests.support.clusters import Cluster

GANG: dict[str, Any] = {"workers": 2, "span": Spans.ANY}
BOTH = (Share(HostId("a"), 1), Share(HostId("b"), 1))
NEW = JobId("new")
ON_BOTH, ON_ONE = Target(NEW, 4, HostId("a"), BOTH), Target(NEW, 2, HostId("a"))
LENDS = Rules(lends=True)
STEPS = 100
LENT_END_S = 135.0
"""When the gang ends that gets its GPUs back: 100 steps of 1.25 s, and 10 s lost by the stay."""


def forecast(rules: Rules = LENDS, *, steps: int = STEPS, then: int = 0) -> Forecast:
    """The gang with so many steps, the newcomer, and behind it a job of ``then`` seconds."""
    cluster = Cluster({"a": ("V100", 4), "b": ("V100", 4)})
    cluster.runs("gang", 8, speed={4: 2.0, 8: 1.0}, left=steps, shares=BOTH, **GANG)
    cluster.waits("new", speed={2: 2.0, 4: 2.0}, left=10, **GANG)
    if then:
        cluster.waits("then", speed={2: 1.0}, left=then)
    snapshot = cluster.snapshot()
    return Forecast(snapshot, Predictor(snapshot), rules)


def started(found: Forecast, target: Target) -> Candidate:
    """The start of the newcomer for which the gang keeps four of its eight GPUs."""
    newcomer, donor = found.snapshot.queued[0], found.running(JobId("gang"))
    return gang_options.start(found, newcomer, target, ((donor, 4),))


def free_at_s(option: Candidate) -> list[list[float]]:
    """When the GPUs of each host are free with the option."""
    return [sorted(time / 1000 for time in added) for _, _, added in option.changes]


def test_gpus_that_a_gang_lends_are_free_when_it_ends_and_not_when_the_newcomer_does() -> None:
    assert free_at_s(started(forecast(), ON_BOTH)) == [[LENT_END_S] * 4] * 2


@pytest.mark.parametrize(
    ("rules", "steps"), [(Rules(), STEPS), (LENDS, 5)], ids=["never lends", "ends before it"]
)
def test_gpus_that_a_gang_does_not_get_back_are_free_when_the_newcomer_ends(
    rules: Rules, steps: int
) -> None:
    option = started(forecast(rules, steps=steps), ON_BOTH)
    assert free_at_s(option) == [sorted([22.5, 22.5, steps * 2.25, steps * 2.25])] * 2


def test_gpus_that_the_newcomer_does_not_take_are_free_at_once() -> None:
    option = started(forecast(), ON_ONE)
    gang_s = {job.id: end / 1000 for job, end in option.ends}[JobId("gang")]
    assert gang_s > STEPS * 1.25
    assert free_at_s(option) == [[gang_s] * 4, [0.0, 0.0, gang_s, gang_s]]


def test_a_job_behind_the_newcomer_starts_only_when_the_gang_that_lends_has_ended() -> None:
    found = forecast(then=7)
    option = started(found, ON_BOTH)
    makespan_ms, _ = found.outlook(found.snapshot.queued[0]).evaluate(option.ends, option.changes)
    assert makespan_ms == (LENT_END_S + 7.0) * 1000
