"""Whose name a new record may have."""

from __future__ import annotations

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.model import JobId, JobSpec, Stage
from reshape_controller.live.admission import Admission, Refused
from tests.world import World


def test_a_name_is_had_until_the_container_ended_and_the_remedy_fits_the_state() -> None:
    world = World().boot()
    world.running("a", 4, 4)
    admission = Admission(lambda: world.engine.state)
    spec = JobSpec("a", ("python", "train.py"), (4,))
    with pytest.raises(Refused, match="cancel that job first"):
        admission.admit(spec)
    world.auto = False
    world.event(ev.CancelRequested(JobId("a"), "ann"))
    assert world.job("a").stage is Stage.ENDING
    with pytest.raises(Refused, match=r"\(a, cancelled\) \(submit it again in a moment"):
        admission.admit(spec)
    world.auto = True
    world.settle()
    admission.admit(spec)
