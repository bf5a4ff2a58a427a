"""A real daemon is told by real processes whether their first step after a restart agrees."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reshape_sidecar.init import processes
from reshape_sidecar.init.look import init_of
from tests.support.daemon_bed import Bed, eventually
from tests.support.daemon_bed import bed as make_bed

PROVES = """
import os, signal, time
from reshape_sidecar import session
from reshape_sidecar.proof.figures import StepFigures

job = session.start()
made = 0


class Measure:
    def __init__(self, done):
        self.done = done

    def batch(self, batch):
        pass

    def end(self):
        pass

    def step_ended(self):
        self.done(StepFigures(job.devices, samples=8, loss=0.5 + {lost} * made))


job.first_steps.measured_by(lambda steps: lambda done: Measure(done))
while True:
    time.sleep(0.02)
    made += 1
    if job.first_steps.leaving:
        {leaving}
    job.step_done(lambda folder: (folder / "state").write_text("all"))
"""
"""Its loss depends on ``lost`` times the steps that its own process has made. ``leaving``: what
happens in the step after its last save."""
RIGHT = PROVES.format(lost=0, leaving="pass")
WRONG = PROVES.format(lost=0.01, leaving="pass")
DIES = PROVES.format(lost=0, leaving="os.kill(os.getpid(), signal.SIGKILL)")
KINDS = ("proved", "differs", "no-proof")


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


def training(bed: Bed, script: str, **fields: object) -> str:
    """Submit a job, and wait until it has trained for some steps on four GPUs."""
    record: dict[str, Any] = {"optional_gpus": [1, 2, 4], "may_restart": False, "steps": None}
    job = bed.submit("proves", script, **(record | fields))
    bed.reaches(job, "running", size=4)
    eventually(lambda: bed.job(job)["step"] > 10, text=lambda: str(bed.job(job)))
    return job


def results(bed: Bed, job: str) -> list[tuple[str, str]]:
    return [(each["kind"], each["text"]) for each in bed.entries(job) if each["kind"] in KINDS]


def has_results(bed: Bed, job: str, count: int) -> list[tuple[str, str]]:
    eventually(lambda: len(results(bed, job)) >= count, text=lambda: str(bed.job(job)))
    return results(bed, job)


def agent(bed: Bed, job: str) -> int:
    """Return the pid of the agent of a job's first container."""
    init = init_of(bed.home / "jobs" / job / "attempt-1" / "run")
    assert init is not None
    children = processes.descendants(init.pid, processes.snapshot())
    (found,) = (
        child.pid
        for child in children
        if b"agent/__main__.py" in Path(f"/proc/{child.pid}/cmdline").read_bytes()
    )
    return found


def test_a_restart_that_agrees_is_counted_once_over_restarts_of_daemon_and_agent(bed: Bed) -> None:
    bed.up()
    job = training(bed, RIGHT)
    bed.json("pin", job, "2")
    ((kind, text),) = has_results(bed, job, 1)
    assert kind == "proved"
    assert text.startswith("4 → 2 GPUs at step ")
    assert text.endswith(": first step agrees (loss 0.5, 0e+00)")
    pid = bed.job(job)["pid"]
    bed.stop(signal.SIGKILL)
    bed.up()
    os.kill(agent(bed, job), signal.SIGKILL)
    step = bed.job(job)["step"]
    eventually(lambda: bed.job(job)["step"] > step + 100, text=lambda: str(bed.job(job)))
    shown = bed.job(job)
    assert (shown["pid"], shown["proofs_agreed"], len(results(bed, job))) == (pid, 1, 1)
    assert (shown["proof_result"], shown["steps_lost"], shown["failures"]) == (text, 0, 0)


def test_a_restart_that_differs_holds_and_no_plan_reshapes_the_job(bed: Bed) -> None:
    bed.up()
    job = training(bed, WRONG)
    bed.json("pin", job, "2")
    ((kind, text),) = has_results(bed, job, 1)
    assert (kind, "first step differs: loss 0.51 instead of" in text) == ("differs", True)
    bed.json("unpin", job)
    shown = bed.job(job)
    assert shown["trajectory"] == "unknown"
    assert shown["trajectory_reason"].startswith(f"{text}; the script saves its state itself")
    assert shown["fixed_because"].startswith("a first step after a restart differed")
    bed.json("pin", job, "4")
    other = bed.submit("other", RIGHT, optional_gpus=[1], steps=None, may_restart=False)
    bed.reaches(other, "running")
    assert bed.job(job)["size"] == 2
    bed.json("pause", job)
    bed.reaches(job, "halted")
    assert bed.job(job)["first_difference"] == text


def test_a_restart_that_differs_ends_before_its_second_step_if_the_record_says_so(bed: Bed) -> None:
    bed.up()
    job = training(bed, WRONG, on_difference="stop")
    bed.json("pin", job, "2")
    shown = bed.reaches(job, "halted")
    assert (shown["failures"], shown["struck"]) == (0, [])
    assert (shown["exception"], shown["first_difference"] is None) == ("ProofDiffers", False)
    assert "resume it on 4 GPUs (reshape pin proves 4, reshape resume proves)" in shown["reason"]
    saved = shown["checkpoint_step"]
    bed.json("pin", job, "4")
    bed.json("resume", job)
    eventually(lambda: bed.job(job)["step"] >= saved, text=lambda: str(bed.job(job)))


def test_a_program_that_dies_in_the_step_after_its_save_loses_nothing(bed: Bed) -> None:
    bed.up()
    job = training(bed, DIES)
    bed.json("pin", job, "2")
    shown = bed.reaches(job, "running", size=2)
    ((kind, text),) = has_results(bed, job, 1)
    assert kind == "no-proof"
    assert text.startswith("on 2 GPUs at step ")
    assert (shown["steps_lost"], shown["failures"]) == (0, 0)


def test_a_record_may_switch_the_proof_off(bed: Bed) -> None:
    bed.up()
    job = training(bed, WRONG, proof="off")
    bed.json("pin", job, "2")
    bed.reaches(job, "running", size=2)
    step = bed.job(job)["step"]
    eventually(lambda: bed.job(job)["step"] > step + 50, text=lambda: str(bed.job(job)))
    assert (results(bed, job), bed.job(job)["proof"]) == ([], "off")
