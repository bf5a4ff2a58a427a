"""Two workers of a PyTorch job: each finds the process group by the variables that it is given."""

from __future__ import annotations

import pytest

from tests.support.daemon_bed import Bed
from tests.support.pytorch_bed import PyTorchBed, near, straight

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(600)]


@pytest.mark.gate
def test_two_workers_are_reshaped_and_make_every_step_once_as_one_device(bed: Bed) -> None:
    job = PyTorchBed(bed, "train_workers.py", workers=2)
    assert job.reshaped() == near(straight("train.py"))
