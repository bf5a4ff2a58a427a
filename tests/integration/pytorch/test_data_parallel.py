"""The PyTorch example as a job: real processes under DistributedDataParallel, one a device."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from reshape_sidecar.init import processes
from tests.support.daemon_bed import Bed
from tests.support.pytorch_bed import STEPS, PyTorchBed, losses, near, straight

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(600)]


@pytest.mark.gate
def test_it_is_reshaped_and_makes_every_step_once_as_on_one_device(bed: Bed) -> None:
    assert PyTorchBed(bed, "train.py").reshaped() == near(straight("train.py"))


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
