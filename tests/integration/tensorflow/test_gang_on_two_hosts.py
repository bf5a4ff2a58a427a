"""MultiWorkerMirroredStrategy on two hosts of four GPUs: four are lent in place and come back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import local_gangs as gangs
from tests.support.daemon_bed import Bed, eventually
from tests.support.daemon_bed import bed as make_bed
from tests.support.multi_worker import ROUNDING, SCRIPT, alone, losses

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(900)]

TENSORFLOW_S = 400.0
"""Seconds for several starts of TensorFlow, two at a time, on a slow machine."""
STEPS = 300
TRUTH = '{"seconds_per_step": {"linear": {"4": 0.1, "8": 0.1}}}'


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


def test_every_step_is_made_once_with_the_losses_of_a_run_without_a_reshape(bed: Bed) -> None:
    truth = bed.folder / "truth.json"
    truth.write_text(TRUTH)
    gangs.up(bed, "--device-truth", str(truth))
    command = ["python", "large.py", "--steps", str(STEPS)]
    fields = {"command": command, "framework": "tensorflow", "job_type": "linear"}
    job = gangs.submit(bed, "large", SCRIPT.read_text(), steps=STEPS, **fields)
    gangs.trains(bed, job, 8, TENSORFLOW_S)
    newcomer = gangs.give(bed, job, TENSORFLOW_S)
    gangs.get_back(bed, job, newcomer, TENSORFLOW_S)
    done = eventually(
        lambda: (found := bed.job(job))["state"] == "completed" and found,
        least_s=TENSORFLOW_S,
        text="completes",
    )
    assert (done["step"], done["failures"], done["attempt"]) == (STEPS, 0, 1)
    here, there = (losses(gangs.output(bed, job, worker)) for worker in (0, 1))
    assert here == there, "both see the loss over all samples of each step"
    wanted = alone(bed, STEPS)
    assert [step for step, _ in wanted] == list(range(1, STEPS + 1))
    assert [step for step, _ in here] == [step for step, _ in wanted]
    assert [loss for _, loss in here] == pytest.approx([loss for _, loss in wanted], abs=ROUNDING)
