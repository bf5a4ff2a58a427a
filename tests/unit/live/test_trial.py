"""What would happen to a record, if its workers would be on several hosts."""

from __future__ import annotations

from dataclasses import replace

from reshape_controller.cli.jobs.submit import trial_text
from reshape_controller.core.model import JobSpec, Length, LengthUnit, Spans
from reshape_controller.live.trial import trial
from reshape_controller.policies import make_policy
from tests.support.world import World

RECORD = JobSpec("a", ("python", "train.py"), (8,), Length(LengthUnit.EPOCHS, 1.0), workers=2)


def test_all_hosts_of_a_job_that_would_be_on_several_are_named() -> None:
    state = World().boot(hosts=2).engine.state
    found = trial(state.dump(), make_policy("ffdl"), replace(RECORD, span=Spans.ANY), 1.0)
    assert (found.starts, found.host, found.hosts) == (True, "host-0", ("host-0", "host-1"))
    assert "on 8 GPUs of host-0 and host-1" in trial_text(found, 1.0)
    on_one = replace(RECORD, optional_gpus=(4,))
    found = trial(state.dump(), make_policy("ffdl"), on_one, 1.0)
    assert (found.host, found.hosts) == ("host-0", ())
    assert "on 4 GPUs of host-0:" in trial_text(found, 1.0)
