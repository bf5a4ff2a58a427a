"""A job whose verdict is worse than its record asks for is reshaped for no other job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.model import GpuId, HostId, Job, JobId, JobState, ReshapeIf, Stage
from reshape_controller.core.plan import Plan
from reshape_controller.policies import make_policy
from reshape_controller.scheduling import legal_moves
from tests.support.world import HOST, World

A, B = JobId("a"), JobId("b")
POLICIES = ("adaptive", "paper", "optimus", "default")


def world(least: ReshapeIf, verdict: str | None, why: str | None = None, size: int = 4) -> World:
    """Four GPUs; job ``a`` trains on ``size`` of them with this verdict."""
    found = World().boot(4)
    found.running("a", size, 1, 2, 4, reshape_if=least)
    judge(found, verdict, why)
    return found


def judge(found: World, verdict: str | None, why: str | None = None) -> Job:
    c = found.container("a")
    c.trajectory, c.trajectory_reason = verdict, why
    found.train("a", 5)
    return found.job("a")


@pytest.mark.parametrize("verdict", ["exact", "steps-only", "unknown", None])
@pytest.mark.parametrize("least", list(ReshapeIf))
def test_the_order_of_verdicts_decides_whether_a_plan_may_shrink_a_job(
    least: ReshapeIf, verdict: str | None
) -> None:
    order = ["exact", "steps-only", "unknown"]
    worst = order.index(least.value) if least is not ReshapeIf.ANY else 2
    allowed = order.index(verdict or "unknown") <= worst
    found = world(least, verdict)
    found.submit("b", 2)
    if allowed:
        found.plan(("b", 2), ("a", 2))
        assert len(found.job("a").gpus) == 2
        return
    with pytest.raises(PlanRejected, match=f"a: its trajectory is .* reshape_if is {least.value}"):
        found.plan(("b", 2), ("a", 2))
    assert found.job("b").stage is Stage.NONE
    assert len(found.job("a").gpus) == 4


def test_a_job_of_a_bad_verdict_is_neither_grown_nor_moved() -> None:
    found = world(ReshapeIf.EXACT, "unknown", "the list L", size=2)
    found.event(
        ev.HostAdded(
            HostId("host-9"),
            "H100",
            (GpuId("GPU-9-0"), GpuId("GPU-9-1"), GpuId("GPU-9-2"), GpuId("GPU-9-3")),
        )
    )
    for size in (4, 1):
        with pytest.raises(PlanRejected, match="unknown \\(the list L\\), and reshape_if is exact"):
            found.plan(("a", size))
    view = found.engine.snapshot().running[0]
    assert (view.sizes, view.growable, view.only_host) == ((2,), False, HOST)
    assert (view.fixed_because, view.pinned) == (found.job("a").fixed_because, False)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("pinned", [None, 4])
def test_no_policy_names_such_a_job(name: str, pinned: int | None) -> None:
    found = world(ReshapeIf.EXACT, "steps-only", "dropout", size=2)
    found.submit("b", 2)
    found.plan(("b", 2))
    found.event(ev.PinRequested(A, pinned, "ann"))
    found.submit("c", 2)
    policy = make_policy(name)
    assert all(target.job != A for target in policy.decide(found.engine.snapshot()).targets)
    found.finish("b")
    for _ in range(4):
        plan = policy.decide(found.engine.snapshot())
        assert all(target.job != A for target in plan.targets)
        found.apply(plan)
    found.event(ev.CancelRequested(JobId("c"), "ann"))
    assert all(target.job != A for target in policy.decide(found.engine.snapshot()).targets)
    assert len(found.job("a").gpus) == 2


def test_the_first_good_verdict_is_a_reason_to_plan_again() -> None:
    found = world(ReshapeIf.STEPS_ONLY, None)
    assert "no verdict yet" in found.job("a").fixed_because
    found.engine.state.plan_wanted = False
    assert judge(found, "steps-only", "dropout").fixed_because == ""
    assert found.engine.state.plan_wanted
    assert found.engine.snapshot().running[0].sizes == (1, 2, 4)


def test_a_donor_that_turns_bad_before_it_is_asked_keeps_its_gpus() -> None:
    found = world(ReshapeIf.EXACT, "exact")
    found.submit("b", 2)
    found.new_containers[B] = {"slow_init": True}
    found.plan(("b", 2), ("a", 2))
    assert found.job("a").donation is not None
    judge(found, "unknown", "the list L")
    found.container("b").slow_init = False
    found.settle()
    a, b = found.job("a"), found.job("b")
    assert (a.donation, a.change, len(a.gpus)) == (None, None, 4)
    assert (b.hand_over, b.stage) == (None, Stage.READY)
    assert "a keeps its GPUs: its trajectory is unknown (the list L)" in b.reason


def test_a_donor_judged_after_a_crash_is_not_asked_either() -> None:
    found = world(ReshapeIf.EXACT, "exact")
    found.submit("b", 2)
    found.new_containers[B] = {"slow_init": True}
    found.plan(("b", 2), ("a", 2))
    found.container("a").trajectory = "unknown"
    found.auto = False
    found.crash("a")
    found.auto = True
    found.container("b").slow_init = False
    found.settle()
    assert (len(found.job("a").gpus), found.job("b").hand_over) == (4, None)


def test_requests_of_people_act_on_any_verdict() -> None:
    found = world(ReshapeIf.EXACT, "unknown")
    found.event(ev.HaltRequested(A, "ann"))
    assert found.job("a").state is JobState.HALTED
    found.event(ev.ResumeRequested(A, "ann"))
    found.plan(("a", 2))  # it has no process: this is a start and no reshape
    assert len(found.job("a").gpus) == 2
    found.event(ev.HostDrained(HOST, "ann"))
    assert found.job("a").gpus == ()
    found.event(ev.CancelRequested(A, "ann"))
    assert "a" not in found.engine.state.jobs or found.job("a").state.terminal


def test_the_explanation_names_the_job_and_the_reason() -> None:
    found = world(ReshapeIf.EXACT, "unknown", "the list L")
    plan = Plan((), "waits", "b waits", B)
    for said in ("b waits", "b waits."):
        told = replace(plan, text=said)
        text = legal_moves.with_fixed_jobs(told, found.engine.snapshot().running).text
        assert text == (
            "b waits; a is not reshaped: its trajectory is unknown (the list L), "
            "and reshape_if is exact"
        )
    judge(found, "exact")
    assert legal_moves.with_fixed_jobs(plan, found.engine.snapshot().running) == plan
