"""Whose name and whose checkpoint folder a new record may have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.model import JobId, JobSpec, Stage
from reshape_controller.live.admission import Admission, Refused
from tests.support.world import World


def test_a_name_is_free_once_its_job_has_ended_and_a_folder_once_its_container_has() -> None:
    world = World().boot()
    world.running("a", 4, 4, checkpoints="/data/run")
    admission = Admission(lambda: world.engine.state)
    spec = JobSpec("a", ("python", "train.py"), (4,), checkpoints="/data/run")
    with pytest.raises(Refused, match="cancel that job first"):
        admission.admit(spec)
    world.auto = False
    world.event(ev.CancelRequested(JobId("a"), "ann"))
    assert world.job("a").stage is Stage.ENDING
    elsewhere = replace(spec, checkpoints=None)
    admission.admit(elsewhere)
    admission.entered(elsewhere)
    with pytest.raises(Refused, match=r"\(a, cancelled\) \(submit it again in a moment") as refused:
        admission.admit(spec)
    assert [error.path for error in refused.value.errors] == ["checkpoints"]
    world.auto = True
    world.settle()
    admission.admit(spec)


def test_two_jobs_that_live_have_no_checkpoint_folder_in_common() -> None:
    world = World().boot()
    admission = Admission(lambda: world.engine.state)
    first = JobSpec("a", ("python", "train.py"), (4,), checkpoints="/data/run")
    second = replace(first, name="b", checkpoints="/data//run/")
    admission.admit(first)
    with pytest.raises(Refused, match="'/data/run' is the checkpoint folder of a job") as refused:
        admission.admit(second)
    (error,) = refused.value.errors
    assert error.path == "checkpoints"
    assert error.hint == "choose another checkpoint folder, or cancel that job first"
    admission.admit(replace(first, name="c", checkpoints="/data/run/c"))
    admission.admit(replace(first, name="d", checkpoints=None))
    admission.entered(first)
    admission.admit(second)
