"""A plan's reason to preempt is computed again outside the policy; the log has those figures."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.model import GpuId, JobId, Length, LengthUnit
from reshape_controller.core.plan import Plan, Preemption, Snapshot, Target
from reshape_controller.core.states import PreemptionReason
from reshape_controller.scheduling.planner import Decision, FailureKind, Planner
from tests.support.world import HOST, World

PRIORITY, OVERDUE, RATIO = PreemptionReason


@dataclass
class Preempts:
    """Preempts job ``a`` for job ``b``, with a reason and figures of its own."""

    reason: PreemptionReason
    may_preempt: bool = True
    others: tuple[str, ...] = ()
    name: str = "preempts"

    def decide(self, snapshot: Snapshot) -> Plan:
        size = min(next(job for job in snapshot.queued if job.id == "b").sizes)
        targets = [Target(JobId("b"), size, HOST)]
        targets += [Target(JobId(job), 0, HOST) for job in ("a", *self.others)]
        return Plan(tuple(targets), "preempts", preemption=Preemption(self.reason, 1e9, 1e-9))


def slow(world: World, name: str, step: int) -> None:
    """The job has come to ``step`` of its 1,000 steps, at 10 s a step."""
    world.container(name).seconds_per_step = 10.0
    world.train(name, step)


def waiting(
    wait_s: float, *, steps_left: int = 900, steps: float = 100.0, **newcomer: object
) -> World:
    """``a`` trains on the two GPUs since 4,000 s; ``b`` has waited for ``wait_s`` of them."""
    world = World().boot(2)
    world.running("a", 2, 2)
    world.wait(4000.0 - wait_s)
    slow(world, "a", 1000 - steps_left)
    world.submit("b", 2, length=Length(LengthUnit.STEPS, steps), **newcomer)
    world.wait(wait_s)
    world.event(ev.DeadlinesDue())
    return world


def decide(world: World, policy: Preempts) -> Decision:
    return Planner(policy).decide(world.engine, world.now_s)


def refusal(world: World, policy: Preempts) -> str:
    decision = decide(world, policy)
    assert decision.failure is not None
    assert decision.failure.kind is FailureKind.PLAN_REJECTED
    assert not decision.plan.targets
    return decision.plan.text


def test_a_policy_preempts_only_if_it_says_so() -> None:
    text = refusal(waiting(10.0, priority=1), Preempts(PRIORITY, may_preempt=False))
    assert text == "policy preempts may not preempt: it has no may_preempt"


@pytest.mark.parametrize(
    ("reason", "wait_s", "priority"),
    [(PRIORITY, 10.0, 1), (OVERDUE, 3600.0, 0), (RATIO, 3599.0, 0)],
)
def test_the_log_has_the_figures_of_the_round(
    reason: PreemptionReason, wait_s: float, priority: int
) -> None:
    decision = decide(waiting(wait_s, priority=priority), Preempts(reason))
    assert decision.failure is None, decision.plan.text
    found = decision.plan.preemption
    assert found is not None
    assert (found.reason, found.wait_s) == (reason, wait_s)
    assert 0.0 < found.best_s < 1799.0


def test_the_wait_of_a_preempted_newcomer_counts_from_its_preemption() -> None:
    world = waiting(3600.0)
    state = world.engine.state
    state.put_job(replace(state.jobs[JobId("b")], preempted_at_s=1000.0))
    assert "waited 3000 s of 3600 s" in refusal(world, Preempts(OVERDUE))


@pytest.mark.parametrize(
    ("world", "reason", "text"),
    [
        (lambda: waiting(3599.0), OVERDUE, "b: the reason overdue does not hold: waited 3599 s of"),
        (lambda: waiting(3600.0, steps=1e5), OVERDUE, "waited 3600 s of "),
        (lambda: waiting(3600.0, max_wait_s=3700.0), OVERDUE, "waited 3600 s of 3700 s"),
        (lambda: waiting(10.0), RATIO, "and 3 is the least"),
        (lambda: waiting(3599.0, steps_left=365), RATIO, "a has .* to go, and .* is the least"),
    ],
)
def test_a_reason_that_does_not_hold_is_refused_with_its_figure(
    world: Callable[[], World], reason: PreemptionReason, text: str
) -> None:
    found = refusal(world(), Preempts(reason))
    assert re.search(text, found), found


def test_a_ratio_preempts_one_job_at_its_smallest_size() -> None:
    world = World().boot(4)
    world.running("a", 2, 1, 2)
    world.running("c", 2, 2)
    for name in ("a", "c"):
        slow(world, name, 1)
    world.submit("b", 4, length=Length(LengthUnit.STEPS, 100.0))
    world.wait(3599.0)
    world.event(ev.DeadlinesDue())
    assert "preempts one job at most" in refusal(world, Preempts(RATIO, others=("c",)))
    assert "a does not run at its smallest size" in refusal(world, Preempts(RATIO))


def test_a_ratio_preempts_no_job_while_idle_gpus_would_do() -> None:
    world = waiting(3599.0)
    host = world.engine.state.hosts[HOST]
    world.event(ev.HostAdded(HOST, host.gpu_type, (*host.gpus, GpuId("more-0"), GpuId("more-1"))))
    assert "2 idle GPUs would do" in refusal(world, Preempts(RATIO))
