"""A job of the version before, whose first process starts one for each other device."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from reshape_sidecar.init import processes
from tests.support.daemon_bed import Bed, eventually
from tests.support.pytorch_bed import (
    OWN_PROCESSES,
    PYTHON,
    PYTORCH_S,
    STEPS,
    PyTorchBed,
    losses,
    near,
    straight,
)

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(600)]


@pytest.mark.gate
def test_it_is_reshaped_and_makes_every_step_once_as_on_one_device(bed: Bed) -> None:
    assert PyTorchBed(bed, "train.py").reshaped() == near(straight())


def test_the_end_of_one_device_is_an_end_of_all_and_the_job_goes_on(bed: Bed) -> None:
    job = PyTorchBed(bed, "train.py", step_s=0.03)
    job.prints("step 20 loss")
    others = [
        found.pid
        for found in processes.descendants(job.pid(), processes.snapshot())
        if b"spawn_main" in Path(f"/proc/{found.pid}/cmdline").read_bytes()
    ]
    assert len(others) == 3
    os.kill(others[1], signal.SIGKILL)
    done = job.completed()
    assert (done["failures"], done["container_restarts"]) == (1, 0)
    assert {step for step, _ in losses(job.log)} == {*range(1, STEPS + 1)}


def test_all_devices_end_at_the_target_accuracy_that_the_first_one_judges(bed: Bed) -> None:
    bed.up()
    command = [str(PYTHON), "train.py", "--steps", str(STEPS), "--evaluate-every", "25"]
    job = bed.submit(
        "learner",
        steps=None,
        command=command,
        code=str(OWN_PROCESSES),
        framework="pytorch",
        target_accuracy=0.85,
    )
    eventually(lambda: bed.job(job)["state"] == "completed", least_s=PYTORCH_S, text="its end")
    done = bed.job(job)
    assert (done["step"], done["total_steps"], done["failures"]) == (25, 25, 0)
    assert done["reason"].startswith("reached its target accuracy 0.85: accuracy is 0.8")
    assert done["reason"].endswith("at step 25")
