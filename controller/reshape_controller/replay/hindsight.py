"""The cost of each reshape of a policy, in hindsight.

Does: replay the workload again without one of its reshapes at a time: the policy's plan is dropped
at that decision and used from then on. The cost of the reshape is the difference of the makespans.

Later decisions depend on earlier ones, so the costs do not add up and contain chance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reshape_controller.core.model import Mechanism
from reshape_controller.core.plan import Plan, Policy, Snapshot
from reshape_controller.replay.shell import PolicyDecision, Result, Scene, replay


@dataclass(frozen=True, slots=True)
class JudgedReshape:
    """A reshape and its cost; a negative cost is a gain."""

    number: int
    decided: PolicyDecision
    makespan_s: float
    mean_jct_s: float


class RecordingPolicy:
    """A policy for one replay that records its reshapes and may omit one of them."""

    def __init__(self, policy: Policy, without: int | None = None) -> None:
        self.reshapes: list[PolicyDecision] = []
        self._policy, self._without = policy, without

    @property
    def name(self) -> str:
        """Name of the policy."""
        return self._policy.name

    def decide(self, snapshot: Snapshot) -> Plan:
        """Return the policy's plan, or an empty plan for the omitted reshape."""
        plan = self._policy.decide(snapshot)
        running = {job.id for job in snapshot.running}
        if any(target.job in running for target in plan.targets):
            self.reshapes.append(PolicyDecision(snapshot.now_s, plan))
            if len(self.reshapes) - 1 == self._without:
                return Plan(reason_code="left-out", text="left out, to see what it was worth")
        return plan


def judge(
    scene: Scene,
    policy: Policy,
    mechanism: Mechanism,
    seed: int,
    done: Callable[[int], None] = lambda count: None,
) -> tuple[Result, list[JudgedReshape]]:
    """Return the replay and its reshapes, the most expensive first.

    ``done`` is called with the number of reshapes before each is judged. Raises ReplayError.
    """
    watched = RecordingPolicy(policy)
    whole = replay(scene, watched, mechanism, seed=seed)
    judged = []
    for number, decided in enumerate(watched.reshapes):
        done(len(watched.reshapes))
        other = replay(scene, RecordingPolicy(policy, number), mechanism, seed=seed).metrics
        judged.append(
            JudgedReshape(
                number,
                decided,
                whole.metrics.makespan_s - other.makespan_s,
                whole.metrics.mean_jct_s - other.mean_jct_s,
            )
        )
    return whole, sorted(judged, key=lambda one: (-one.makespan_s, one.number))
