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


@pytest.mark.parametrize("other", ["/data//run/", "//data/run", "/data/./x/../run", "///data/run"])
def test_two_jobs_that_live_have_no_checkpoint_folder_in_common(other: str) -> None:
    world = World().boot()
    admission = Admission(lambda: world.engine.state)
    first = JobSpec("a", ("python", "train.py"), (4,), checkpoints="/data/run")
    second = replace(first, name="b", checkpoints=other)
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


OWN = JobSpec("train", ("python", "train.py"), (4,), checkpoints="/home/ada/run", user="ada", uid=1)
THEIRS = replace(OWN, user="bob", uid=2)


def admission_with(spec: JobSpec, writers: set[int | None]) -> Admission:
    """An admission beside a queued job; ``writers``: uids that may write in every folder."""
    world = World().boot()
    world.event(ev.JobSubmitted(JobId("theirs-1a2b3c4d"), spec))
    return Admission(lambda: world.engine.state, may_write=lambda folder, uid: uid in writers)


def test_a_folder_is_its_owners_whoever_named_it_before() -> None:
    admission = admission_with(THEIRS, set())
    admission.admit(OWN)
    with pytest.raises(Refused, match="a job that has not ended"):
        admission.admit(replace(OWN, name="another"))


def test_who_may_write_in_a_folder_has_it_for_itself_and_is_not_shown_to_others() -> None:
    for entering in (False, True):
        admission = admission_with(replace(THEIRS, name="x" if entering else "train"), {1, 2})
        if entering:
            admission.admit(replace(THEIRS, name="enters", checkpoints="/elsewhere"))
        with pytest.raises(Refused, match="another user's job") as refused:
            admission.admit(OWN)
        (error,) = refused.value.errors
        assert error.path == "checkpoints"
        assert "theirs-1a2b3c4d" not in str(error)


def test_a_name_is_the_users_own() -> None:
    admission = admission_with(replace(THEIRS, checkpoints=None), set())
    named = replace(OWN, checkpoints=None)
    admission.admit(named)
    with pytest.raises(Refused, match="'train' is the name of a job that has not ended"):
        admission.admit(named)
    with pytest.raises(Refused, match="'train' is the name of a job that has not ended"):
        admission.admit(replace(THEIRS, checkpoints=None))
    admission.entered(named)
    admission.admit(named)
