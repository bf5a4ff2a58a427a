"""A fully sharded job: two devices load what four have saved together, and the other way round."""

from __future__ import annotations

import pytest

from tests.support.daemon_bed import Bed
from tests.support.pytorch_bed import EXAMPLES, PyTorchBed, near, straight

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(600)]


def test_it_is_reshaped_and_makes_every_step_once_as_on_one_device(bed: Bed) -> None:
    job = PyTorchBed(bed, "train_sharded.py", code=EXAMPLES)
    assert job.reshaped() == near(straight()), "whole on each device, or in parts"
