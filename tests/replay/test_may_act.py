"""A policy that is not asked, by its own word ``may_act``, would have returned the empty plan."""

from __future__ import annotations

import pytest

from reshape_controller.cli.replays.inputs import ReplayRequest, setup_of
from reshape_controller.core.model import Mechanism
from reshape_controller.core.plan import Plan
from reshape_controller.core.state import State
from reshape_controller.policies import BUILT_IN, make_policy
from reshape_controller.replay.shell import replay
from reshape_controller.scheduling.planner import Planner


class AsksAllTheSame(Planner):
    """Asks the policy also where it says that it cannot act, and compares."""

    not_asked = 0

    def _may_act(self, state: State) -> bool:
        seen = state.snapshot()
        assert state.any_queued == bool(seen.queued)
        if super()._may_act(state):
            return True
        assert self.policy.decide(seen) == Plan()
        self.not_asked += 1
        return False


@pytest.mark.parametrize("mechanism", [Mechanism.SIDECAR, Mechanism.TERMINATE])
@pytest.mark.parametrize("name", BUILT_IN)
def test_a_policy_that_is_not_asked_would_have_changed_nothing(
    name: str, mechanism: Mechanism
) -> None:
    policy = make_policy(name)
    planner = AsksAllTheSame(policy)
    replay(setup_of(ReplayRequest("one")).scene(7), policy, mechanism, keep=True, planner=planner)
    assert planner.not_asked
