"""Which decisions of a policy cost most, seen from the end.

Does: replays the workload again without one of its reshapes at a time: at that decision nothing is
done, then the policy goes on as it likes. What the makespan loses against that is the decision's
cost. Never: changes the policy. State: none beyond a replay.

What follows a decision depends on it, so the figures do not add up, and chance is in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reshape_controller.core.model import Mechanism
from reshape_controller.core.plan import Plan, Policy, Snapshot
from reshape_controller.replay.shell import Decided, Result, Scene, replay


@dataclass(frozen=True, slots=True)
class Judged:
    """A reshape, and what it cost (positive) or saved."""

    number: int
    decided: Decided
    makespan_s: float
    mean_jct_s: float


class Watched:
    """A policy whose reshapes are noted, and one of which may be left out; for one replay."""

    def __init__(self, policy: Policy, without: int | None = None) -> None:
        self.reshapes: list[Decided] = []
        self._policy, self._without = policy, without

    @property
    def name(self) -> str:
        """That of the policy."""
        return self._policy.name

    def decide(self, snapshot: Snapshot) -> Plan:
        """As the policy decides, once apart."""
        plan = self._policy.decide(snapshot)
        running = {job.id for job in snapshot.running}
        if any(target.job in running for target in plan.targets):
            self.reshapes.append(Decided(snapshot.now_s, plan))
            if len(self.reshapes) - 1 == self._without:
                return Plan(reason_code="left-out", text="left out, to see what it was worth")
        return plan


def judge(
    scene: Scene,
    policy: Policy,
    mechanism: Mechanism,
    seed: int,
    done: Callable[[int], None] = lambda count: None,
) -> tuple[Result, list[Judged]]:
    """The replay, and its reshapes by what they cost, the dearest first. ``done`` is told how many
    there are, before each. Raises ReplayError."""
    watched = Watched(policy)
    whole = replay(scene, watched, mechanism, seed=seed)
    judged = []
    for number, decided in enumerate(watched.reshapes):
        done(len(watched.reshapes))
        other = replay(scene, Watched(policy, number), mechanism, seed=seed).metrics
        judged.append(
            Judged(
                number,
                decided,
                whole.metrics.makespan_s - other.makespan_s,
                whole.metrics.mean_jct_s - other.mean_jct_s,
            )
        )
    return whole, sorted(judged, key=lambda one: (-one.makespan_s, one.number))
