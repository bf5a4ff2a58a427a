"""What a replay changes in its process, and that it is as before afterwards."""

from __future__ import annotations

import gc

import pytest

from reshape_controller.core.model import Mechanism
from reshape_controller.core.plan import Plan, Snapshot
from reshape_controller.replay.inputs import PolicyError
from reshape_controller.replay.rare_collections import COLLECT_AFTER
from reshape_controller.replay.shell import replay
from tests.support.replay_bed import job, scene


@pytest.mark.parametrize("usual", [0, 700, 3 * COLLECT_AFTER])
def test_cycles_are_looked_for_seldom_while_a_replay_runs_however_it_ends(usual: int) -> None:
    """0: not at all, which is then left so."""
    during: list[int] = []

    class Failing:
        name = "failing"

        def decide(self, snapshot: Snapshot) -> Plan:
            during.append(gc.get_threshold()[0])
            raise RuntimeError("a bug")

    before = gc.get_threshold()
    gc.set_threshold(usual)
    try:
        with pytest.raises(PolicyError):
            replay(scene([job("a", 0.0, 100)]), Failing(), Mechanism.SIDECAR)
        assert gc.get_threshold()[0] == usual
    finally:
        gc.set_threshold(*before)
    assert during == [max(usual, COLLECT_AFTER) if usual else 0]
