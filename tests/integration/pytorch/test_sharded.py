"""A fully sharded job: two devices load what four have saved together, and the other way round."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.daemon_bed import ROOT, Bed
from tests.support.pytorch_bed import EXAMPLES, PYTHON, PYTORCH_S, PyTorchBed, near, straight

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(600)]


def test_it_is_reshaped_and_makes_every_step_once_as_on_one_device(bed: Bed) -> None:
    job = PyTorchBed(bed, "train_sharded.py", code=EXAMPLES)
    assert job.reshaped() == near(straight()), "whole on each device, or in parts"


def test_an_optimizer_with_empty_state_before_its_first_step_is_restored_whole(
    tmp_path: Path,
) -> None:
    """PyTorch asks an optimizer for its state to know what to load, and takes an empty one for it:
    the averages of schedulefree were lost, and the first loss was right all the same."""
    script = Path(__file__).parent / "scripts" / "sharded_state.py"
    done = subprocess.run(
        [PYTHON, script, EXAMPLES, tmp_path / "saved"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "sidecar")},
        capture_output=True,
        text=True,
        timeout=PYTORCH_S,
        check=True,
    )
    assert done.stdout == "the same losses: True\n", done.stderr
