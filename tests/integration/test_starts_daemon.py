"""Real programs that fail, die or cannot save, under a real daemon."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon_bed import Bed, eventually
from tests.support.daemon_bed import bed as make_bed

FAILS = "raise SystemExit(3)\n"
UNSAVED = """
import time
for step in range(10**6):
    time.sleep(0.1)
"""
DIES_TWICE = """
import os, pathlib, signal, sys, time
count = pathlib.Path("starts-" + os.environ["RESHAPE_JOB_NAME"])
starts = int(count.read_text()) if count.exists() else 0
count.write_text(str(starts + 1))
if starts < 2:
    os.kill(os.getpid(), signal.SIGKILL)
while True:
    time.sleep(0.1)
"""
WAITS_FOR_EVER = """
import time
time.sleep(10**6)  # for what never comes; reshape_sidecar would report its steps
"""
SAVING_LOOP = """
import pathlib, time
from reshape_sidecar import session
job = session.start()
flags = pathlib.Path({flags!r})
if (flags / f"fails-on-{{job.devices}}").exists():
    raise RuntimeError("no room")
begin = job.step
while True:
    time.sleep(0.05)
    job.step_done(lambda folder: (folder / "state").write_text("all"))
    if (flags / "fails-in-training").exists() and job.step > begin + 3:
        raise ArithmeticError("not a number")
"""
"""Fails as the files in a folder say: at its start on a number of GPUs, or while it trains."""

HANGS = """
import time
from reshape_sidecar import session
job = session.start()
while True:
    time.sleep(0.05 if job.step < 40 else 10**6)
    job.step_done(lambda folder: (folder / "state").write_text("all"))
"""


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


def test_a_program_that_ends_with_a_code_runs_once_without_retries(bed: Bed) -> None:
    bed.up()
    job = bed.submit("fails", FAILS, optional_gpus=[1, 2, 4], retries=0)
    failed = bed.reaches(job, "failed")
    assert (failed["failures"], failed["process_restarts"], failed["attempt"]) == (1, 0, 1)
    assert (failed["exit_code"], failed["signal"], failed["exception"]) == (3, None, None)


def test_a_start_that_is_silent_for_too_long_fails_and_names_its_bound(bed: Bed) -> None:
    bed.up()
    job = bed.submit("waits", WAITS_FOR_EVER, retries=0, start_timeout_s=5)
    failed = bed.reaches(job, "failed")
    assert "no sign of work for 5 s" in failed["reason"]
    assert "start_timeout_s" in failed["reason"]
    assert (failed["failures"], failed["struck"], failed["start_timeout_s"]) == (1, [], 5)


def test_a_program_that_raises_is_ended_at_its_second_gpu_count(bed: Bed) -> None:
    bed.up()
    script = "raise LookupError('no such layer')\n"
    job = bed.submit("raises", script, optional_gpus=[1, 2, 4], retries=50)
    failed = bed.reaches(job, "failed")
    assert failed["reason"].startswith("the same failure (LookupError) on ")
    assert (failed["failures"], failed["exit_code"]) == (3, 1)
    assert (failed["exception"], failed["exception_message"]) == ("LookupError", "no such layer")


def test_a_program_that_a_signal_kills_twice_starts_again_and_trains(bed: Bed) -> None:
    bed.up()
    job = bed.submit("dies", DIES_TWICE, retries=100)
    eventually(lambda: bed.job(job)["failures"] == 2, text="two deaths")
    bed.reaches(job, "running")
    trains = eventually(
        lambda: found if (found := bed.job(job))["phase"] == "running" else None, text="it trains"
    )
    assert (trains["failures"], trains["signal"], trains["struck"]) == (2, "SIGKILL", [])


def test_a_program_that_cannot_save_keeps_its_gpus_and_says_so(bed: Bed) -> None:
    bed.up()
    job = bed.submit("unsaved", UNSAVED, may_restart=False)
    eventually(lambda: bed.job(job)["program"], text="what the program can do")
    waits = bed.submit("waits", steps=20, optional_gpus=[2], max_wait_s=1)
    eventually(
        lambda: "unsaved is not reshaped" in " ".join(bed.reshape("explain", waits).stdout.split()),
        text=lambda: bed.reshape("explain", waits).stdout,
    )
    here = bed.job(job)
    assert (here["size"], here["program"]) == (4, "cannot save")
    assert here["fixed_because"] == "it cannot save its steps, and may_restart is false"
    assert "not reshaped: it cannot save" in bed.reshape("get").stdout
    assert bed.job(waits)["state"] == "submitted"
    bed.reshape("pause", job)
    paused = eventually(
        lambda: found if (found := bed.job(job))["deadline"] == "unsaved_wait" else None,
        text="the stated wait",
    )
    assert paused["state"] == "running"
    assert paused["reason"].startswith("stops in 60 s (paused by ")
    os.kill(paused["pid"], 0)
    bed.reshape("resume", job)
    assert bed.job(job)["deadline"] is None
    bed.reshape("cancel", job)
    bed.reaches(job, "cancelled")
    bed.reaches(waits, "completed")


def test_with_may_restart_it_gives_gpus_to_a_newcomer(bed: Bed) -> None:
    bed.up("--preset", "paper")
    job = bed.submit("unsaved", UNSAVED)
    eventually(lambda: bed.job(job)["program"], text="what the program can do")
    waits = bed.submit("newcomer", steps=20, optional_gpus=[2], max_wait_s=1)
    bed.reaches(waits, "completed")
    after = bed.job(job)
    assert (after["program"], after["failures"]) == ("may restart", 0)
    assert after["reshape_downs"] == 1
    assert "it cannot save, so an unknown number of steps" in bed.reshape("describe", job).stdout


def test_a_size_at_which_a_job_does_not_start_is_struck_and_the_job_trains_on(bed: Bed) -> None:
    bed.up()
    (bed.folder / "fails-on-4").touch()
    other = bed.submit("other", steps=100_000, optional_gpus=[2])
    bed.reaches(other, "running", size=2)
    loop = SAVING_LOOP.format(flags=str(bed.folder))
    job = bed.submit("grows", loop, steps=100_000, retries=0, may_restart=False)
    bed.reaches(job, "running", size=2)
    eventually(lambda: bed.job(job)["step"], text="its first step")
    bed.reshape("cancel", other)
    eventually(lambda: bed.job(job)["struck"] == [4], text=lambda: str(bed.job(job)))
    back = bed.reaches(job, "running", size=2)
    assert (back["failures"], back["steps_lost"]) == (0, 0)
    assert "failed to start twice on 4 GPUs" in bed.reshape("describe", job).stdout


def test_a_job_that_crashes_without_a_retry_left_is_paused_with_its_checkpoint(bed: Bed) -> None:
    bed.up()
    loop = SAVING_LOOP.format(flags=str(bed.folder))
    path = bed.record("crashes", loop, steps=100_000, retries=1, may_restart=False)
    waits = bed.start("submit", "--wait", str(path))
    eventually(lambda: bed.json("get")["jobs"], text="it is submitted")
    bed.reaches("crashes", "running")
    eventually(lambda: bed.job("crashes")["step"], text="its first step")
    bed.reshape("pause", "crashes")
    saved = bed.reaches("crashes", "halted")["checkpoint_step"]
    assert saved > 0
    (bed.folder / "fails-in-training").touch()
    assert waits.poll() is None, "the pause of a person may end"
    bed.reshape("resume", "crashes")
    eventually(lambda: bed.job("crashes")["failures"] == 2, text=lambda: str(bed.job("crashes")))
    paused = bed.reaches("crashes", "halted")
    assert paused["reason"].startswith("paused, checkpoint kept: failure 2, no retries left")
    assert (paused["exception"], paused["exit_code"]) == ("ArithmeticError", 1)
    out, err = waits.communicate(timeout=60)
    assert waits.returncode == 1, (out, err)
    assert b"reshape resume" in err
    (bed.folder / "fails-in-training").unlink()
    bed.reshape("resume", "crashes")
    again = bed.reaches("crashes", "running")
    assert (again["failures"], again["checkpoint_step"]) == (0, saved)


def test_a_job_is_saved_and_paused_once_its_longest_run_is_over(bed: Bed) -> None:
    bed.up()
    loop = SAVING_LOOP.format(flags=str(bed.folder))
    job = bed.submit("runs", loop, steps=100_000, max_run_s=5)
    eventually(
        lambda: any(
            each["phase"] == "training" and each["gpu_s"] > 1.0 for each in bed.job(job)["served"]
        ),
        text="its GPU time in training, while nothing but training happens",
    )
    paused = bed.reaches(job, "halted")
    assert paused["reason"] == "paused: it has had GPUs for its max_run_s of 5 s"
    assert paused["steps_lost"] == 0
    assert paused["checkpoint_step"] == paused["step"] > 0


def test_a_job_that_hangs_in_training_has_failed_after_its_progress_timeout(bed: Bed) -> None:
    bed.up()
    job = bed.submit("hangs", HANGS, steps=60, retries=1, optional_gpus=[1], progress_timeout_s=30)
    failed = eventually(
        lambda: found if (found := bed.job(job))["failures"] == 1 else None,
        text=lambda: str(bed.job(job)),
        least_s=40.0,
    )
    assert failed["struck"] == [], "that a program hangs says nothing of its GPU count"
    assert failed["reason"] == (
        "queued again: no further training step within its progress_timeout_s of 30 s"
    )
    assert failed["step"] >= 1
