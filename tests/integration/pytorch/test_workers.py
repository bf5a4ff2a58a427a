"""Two workers of a PyTorch job: each finds the process group by the variables that it is given."""

from __future__ import annotations

import pytest

from tests.support.daemon_bed import Bed
from tests.support.pytorch_bed import EXAMPLES, STEPS, PyTorchBed, near, straight

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(600)]


EPOCHS = ("--epochs", "10")


@pytest.mark.gate
def test_a_loop_by_job_batches_over_two_workers_makes_every_step_once_as_one_device(
    bed: Bed,
) -> None:
    job = PyTorchBed(bed, "train_workers.py", arguments=EPOCHS, code=EXAMPLES, workers=2)
    assert job.reshaped() == near(straight(EXAMPLES / "train.py", EPOCHS)[:STEPS])


def test_two_workers_of_the_version_before_make_every_step_once_as_one_device(bed: Bed) -> None:
    job = PyTorchBed(bed, "train_workers.py", workers=2)
    assert job.reshaped() == near(straight())
