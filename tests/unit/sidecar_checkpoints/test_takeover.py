"""A job that takes over the checkpoint folder of an earlier job resumes from its checkpoint."""

from __future__ import annotations

import builtins
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reshape_sidecar import checkpoints
from reshape_sidecar.claims import StaleAttempt
from reshape_sidecar.takeover import take_over
from tests.support.gate import examples
from tests.unit.sidecar_checkpoints.test_crash import OPERATIONS, Crash, Fuse


def writes(content: bytes) -> Callable[[Path], None]:
    def into(folder: Path) -> None:
        (folder / "part").mkdir()
        (folder / "part" / "state").write_bytes(content)
        (folder / "newest").symlink_to("part/state")

    return into


def publish(folder: Path, step: int, attempt: int, complete: bool = False, job: str = "") -> None:
    content = writes(b"%d/%d" % (step, attempt))
    checkpoints.publish(
        folder,
        step=step,
        epoch=0,
        attempt=attempt,
        generation=2,
        write=content,
        complete=complete,
        job=job,
    )


def state(folder: Path) -> bytes | None:
    found = checkpoints.newest(folder)
    return None if found is None else (found.path / "newest").read_bytes()


def begin(folder: Path, job: str, attempt: int = 1) -> str:
    """What the agent does before training starts."""
    said = take_over(folder, job)
    checkpoints.claim(folder, attempt, job)
    return said


def left_by(folder: Path, job: str, attempts: int = 2) -> None:
    """A job that saved step 10 in its first attempt, 20 in the second and so on."""
    for attempt in range(1, attempts + 1):
        begin(folder, job, attempt)
        publish(folder, 10 * attempt, attempt)


def test_a_job_goes_on_where_a_former_one_with_more_attempts_was(tmp_path: Path) -> None:
    left_by(tmp_path, "old", attempts=3)
    said = begin(tmp_path, "new")
    assert said == f"{tmp_path} was the checkpoint folder of old, which left step 30 there"
    assert state(tmp_path) == b"30/3"
    for step in (31, 32, 33):
        publish(tmp_path, step, 1)
        assert state(tmp_path) == b"%d/1" % step
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"claim.json", "step-0000000032-a1", "step-0000000033-a1"}


def test_what_a_former_job_saved_in_an_attempt_of_the_same_number_is_not_this_one_s(
    tmp_path: Path,
) -> None:
    left_by(tmp_path, "old", attempts=1)
    begin(tmp_path, "new")
    publish(tmp_path, 5, 1)
    assert state(tmp_path) == b"5/1"


@pytest.mark.parametrize("attempt", [1, 2, 3])
def test_a_process_of_the_former_job_that_lives_on_writes_nothing_more(
    tmp_path: Path, attempt: int
) -> None:
    left_by(tmp_path, "old")
    begin(tmp_path, "new", 2)
    publish(tmp_path, 21, 2, job="new")
    with pytest.raises(StaleAttempt, match=f"by job new; attempt {attempt} is an old copy of old"):
        publish(tmp_path, 25, attempt, job="old")
    with pytest.raises(StaleAttempt, match="claimed by job new"):
        checkpoints.claim(tmp_path, attempt, "old")
    assert state(tmp_path) == b"21/2"


def test_the_next_attempts_of_a_job_take_nothing_over(tmp_path: Path) -> None:
    left_by(tmp_path, "old")
    begin(tmp_path, "new")
    publish(tmp_path, 21, 1)
    assert begin(tmp_path, "new", 2) == ""
    assert state(tmp_path) == b"21/1"
    with pytest.raises(StaleAttempt, match="claimed by attempt 2"):
        begin(tmp_path, "new", 1)


def test_a_job_that_saved_nothing_hands_on_what_it_had(tmp_path: Path) -> None:
    left_by(tmp_path, "first")
    begin(tmp_path, "second")
    begin(tmp_path, "third")
    assert state(tmp_path) == b"20/2"


def test_that_the_former_job_had_finished_is_handed_on(tmp_path: Path) -> None:
    left_by(tmp_path, "old")
    publish(tmp_path, 30, 2, complete=True)
    begin(tmp_path, "new")
    found = checkpoints.newest(tmp_path)
    assert found is not None
    assert found.manifest.complete


def test_a_folder_without_checkpoints_and_one_without_a_claim_are_taken(tmp_path: Path) -> None:
    assert begin(tmp_path / "none", "job") == ""
    begin(tmp_path, "old", 2)
    (tmp_path / "own-state").write_text("of a program that saves by itself")
    assert begin(tmp_path, "new").endswith("of old, which left no checkpoint there")
    assert (tmp_path / "own-state").exists()


def test_files_are_copied_where_they_cannot_have_a_second_name(tmp_path: Path) -> None:
    left_by(tmp_path, "old")
    with mock.patch.object(os, "link", side_effect=OSError("not supported")):
        begin(tmp_path, "new")
    assert state(tmp_path) == b"20/2"


@settings(max_examples=examples(100), deadline=None)
@given(operations=st.integers(min_value=0, max_value=80))
def test_a_crash_while_a_folder_is_taken_over_loses_nothing(operations: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        left_by(folder, "old")
        fuse = Fuse(operations)
        guarded: dict[str, Any] = {name: fuse.guard(getattr(os, name)) for name in OPERATIONS}
        with (
            mock.patch.multiple(os, **guarded),
            mock.patch.object(os, "link", fuse.guard(os.link)),
            mock.patch.object(builtins, "open", fuse.guard(open)),
            mock.patch.object(shutil, "rmtree", fuse.guard(shutil.rmtree)),
            contextlib.suppress(Crash),
        ):
            take_over(folder, "new")
        begin(folder, "new")
        assert state(folder) == b"20/2"
        publish(folder, 5, 1)
        assert state(folder) == b"5/1"
