"""The approaches of the experiment on weighted DRAGON, and a replay of each."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from reshape_controller.core.model import Mechanism
from reshape_controller.core.plan import JobView, Policy
from reshape_controller.policies.dragon import Dragon
from reshape_controller.policies.fixed import Default
from reshape_controller.policies.weighted import Weighted
from reshape_controller.replay.dragon import Scenario, initial_sizes, scene
from reshape_controller.replay.inputs import Costs
from reshape_controller.replay.shell import Result, replay


class Approach(StrEnum):
    FIXED = "fixed"
    """Each job keeps its initial size: the default of Kubernetes."""
    DRAGON = "dragon"
    UNWEIGHTED = "unweighted"
    """The weighted scheduler without its weights: DRAGON's queue, and growth at once."""
    WEIGHTED = "weighted"


def run(
    scenario: Scenario,
    approach: Approach,
    costs: Costs,
    *,
    cluster: str | None = None,
    seed: int | None = None,
) -> Result:
    """Replay a scenario; ``cluster`` and ``seed`` as in ``replay.dragon.scene``. Raises
    ReplayError."""
    fixed = approach is Approach.FIXED
    given = scene(scenario, costs, cluster=cluster, seed=seed, is_fixed=fixed)
    policy = policy_of(approach, initial_sizes(scenario))
    return replay(given, policy, Mechanism.NONE if fixed else Mechanism.TERMINATE)


def policy_of(approach: Approach, initial: Mapping[str, int]) -> Policy:
    """Return an approach's policy; ``initial``: the size at which each job starts, by its name."""
    match approach:
        case Approach.FIXED:
            return Default(sizes="largest")
        case Approach.DRAGON:
            return _DragonAtInitial(initial)
        case Approach.UNWEIGHTED:
            return _DragonAtInitial(initial, down_after_s="inf", up_after_s=0.0)
        case Approach.WEIGHTED:
            return _WeightedAtInitial(initial)


class _DragonAtInitial(Dragon):
    """``dragon`` that starts each job at its initial size, by its name."""

    def __init__(self, initial: Mapping[str, int], **settings: float | str) -> None:
        super().__init__(**settings)
        self._initial = initial

    def start_size(self, job: JobView) -> int:
        return self._initial[job.spec.name]


class _WeightedAtInitial(Weighted):
    """``weighted`` that starts each job at its initial size, by its name."""

    def __init__(self, initial: Mapping[str, int]) -> None:
        super().__init__(utility="printed")
        self._initial = initial

    def start_size(self, job: JobView) -> int:
        return self._initial[job.spec.name]
