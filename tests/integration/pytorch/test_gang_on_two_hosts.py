"""DistributedDataParallel on two hosts of four GPUs: four are lent in place and come back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import local_gangs as gangs
from tests.support.daemon_bed import Bed, eventually
from tests.support.pytorch_bed import (
    EXAMPLES,
    OWN_PROCESSES,
    PYTHON,
    PYTORCH_S,
    STEPS,
    losses,
    near,
    straight,
)

pytestmark = [pytest.mark.pytorch, pytest.mark.timeout(600)]

STEP_S = 0.1
"""Long enough for a newcomer to come and go."""


@pytest.mark.parametrize(
    ("code", "arguments"),
    [(EXAMPLES, ("--epochs", "10")), (OWN_PROCESSES, ("--steps", str(STEPS)))],
    ids=["job.batches", "of the version before"],
)
def test_every_step_is_made_once_with_the_losses_of_one_device(
    bed: Bed, code: Path, arguments: tuple[str, ...]
) -> None:
    assert PYTHON.exists(), "there is no PyTorch: make test-pytorch installs it for these tests"
    truth = bed.folder / "truth.json"
    truth.write_text(json.dumps({"seconds_per_step": {"linear": {"4": STEP_S, "8": STEP_S}}}))
    gangs.up(bed, "--device-truth", str(truth))
    command = [str(PYTHON), "train_workers.py", *arguments]
    program = {"code": str(code), "framework": "pytorch", "job_type": "linear"}
    job = gangs.submit(bed, "large", steps=STEPS, command=command, **program)
    gangs.trains(bed, job, 8, PYTORCH_S)
    newcomer = gangs.give(bed, job, PYTORCH_S)
    gangs.get_back(bed, job, newcomer, PYTORCH_S)
    done = eventually(
        lambda: (found := bed.job(job))["state"] == "completed" and found,
        least_s=PYTORCH_S,
        text="completes",
    )
    assert (done["step"], done["failures"], done["attempt"]) == (STEPS, 0, 1)
    wanted = straight(code / "train.py", arguments)[:STEPS]
    assert losses(gangs.output(bed, job, 0)) == near(wanted)
