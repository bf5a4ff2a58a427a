"""Every kind of plan in a replay, by the policies of docs/policies.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from reshape_controller.core.model import Mechanism
from reshape_controller.replay.inputs import WorkJob
from reshape_controller.replay.shell import Result, replay
from tests.support.document_policies import starts_first
from tests.support.replay_bed import ROUND, job, scene

SPEEDS = {"linear": {1: 12.0, 2: 6.0, 3: 4.0, 4: 3.0}, "flat": dict.fromkeys((1, 2, 4), 6.0)}
MECHANISMS = pytest.mark.parametrize("mechanism", [Mechanism.SIDECAR, Mechanism.TERMINATE])


def replayed(
    policy: str,
    jobs: Sequence[WorkJob],
    mechanism: Mechanism = Mechanism.SIDECAR,
    cluster: str = "4xV100",
) -> Result:
    """Replay to the end of all jobs; a plan that is refused would end it with an error."""
    given = scene(jobs, cluster=cluster, costs=ROUND, speeds=SPEEDS)
    result = replay(given, starts_first(policy), mechanism, keep=True, check=True)
    assert all(each.state == "completed" for each in result.jobs)
    assert result.metrics.steps_lost == 0
    return result


def sizes_of(result: Result, code: str) -> list[dict[str, int]]:
    """The sizes that each plan with a reason code gives to jobs."""
    plans = [each.plan for each in result.decisions if each.plan.reason_code == code]
    return [{target.job: target.size for target in plan.targets} for plan in plans]


def first_at_s(result: Result, name: str, kind: str) -> float:
    return next(each.at_s for each in result.events if (each.job, each.kind) == (name, kind))


@MECHANISMS
def test_a_running_job_grows_on_gpus_that_another_running_job_gives_up(
    mechanism: Mechanism,
) -> None:
    jobs = [job("large", 0.0, 500, (2, 3)), job("small", 1.0, 500, (1, 2))]
    result = replayed("EvenShares", jobs, mechanism)
    assert sizes_of(result, "evens") == [{"small": 2, "large": 2}]
    assert [(each.job, each.size_after) for each in result.reshapes if each.down] == [("large", 2)]
    asked = {str(each.job): each.asked_at_s for each in result.reshapes}
    assert asked["small"] > asked["large"], "the donor shrinks first"


@MECHANISMS
def test_a_running_job_shrinks_for_no_other_and_two_queued_ones_share_what_it_gave(
    mechanism: Mechanism,
) -> None:
    jobs = [
        job("large", 0.0, 900, (2, 4)),
        job("one", 300.0, 100, (1,)),
        job("two", 301.0, 9, (1,)),
    ]
    result = replayed("MakeRoom", jobs, mechanism)
    assert sizes_of(result, "makes-room") == [{"large": 2}]
    waits = {str(each.job): each.wait_s for each in result.jobs}
    assert max(waits["one"], waits["two"]) < 300.0


@MECHANISMS
def test_a_queued_job_gets_the_gpus_of_several_running_ones(mechanism: Mechanism) -> None:
    jobs = [job(name, 0.0, 500, (1, 2)) for name in ("left", "right")]
    result = replayed("Collects", [*jobs, job("new", 300.0, 50, (2,))], mechanism)
    assert sizes_of(result, "collects") == [{"new": 2, "left": 1, "right": 1}]


@MECHANISMS
def test_a_running_job_moves_to_a_fuller_host(mechanism: Mechanism) -> None:
    jobs = [job("a", 0.0, 100, (3,)), job("b", 1.0, 900, (2,)), job("c", 2.0, 900, (1,))]
    result = replayed("Packs", jobs, mechanism, cluster="2*4xV100")
    moves = [each.plan for each in result.decisions if each.plan.reason_code == "packs"]
    assert [plan.targets[0].job for plan in moves] == ["c"]
    assert {each.job: each.moves for each in result.jobs} == {"a": 0, "b": 0, "c": 1}


def test_a_running_job_goes_back_to_the_queue_for_one_of_higher_priority() -> None:
    high = job("high", 500.0, 50, (4,))
    high = replace(high, spec=replace(high.spec, priority=1))
    result = replayed("StrictPriority", [job("low", 0.0, 500, (4,)), high])
    assert sizes_of(result, "preempts") == [{"high": 4, "low": 0}]
    assert first_at_s(result, "low", "preempted") < first_at_s(result, "high", "granted")


@MECHANISMS
def test_a_policy_that_remembers_takes_back_what_did_not_help(mechanism: Mechanism) -> None:
    jobs = [job("other", 0.0, 50, (3,)), job("flat", 1.0, 500, (1, 2), "flat")]
    result = replayed("TryAndKeep", jobs, mechanism)
    assert sizes_of(result, "tries") == [{"flat": 2}]
    assert sizes_of(result, "takes-back") == [{"flat": 1}]
    wrote = [(note.name, note.text) for each in result.decisions for note in each.plan.notes]
    assert wrote == [("tries-from", "1"), ("tries-from", ""), ("limit", "1")]
