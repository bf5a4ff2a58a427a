"""Two workers under MultiWorkerMirroredStrategy on a real daemon, reshaped down and up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon_bed import ROOT, Bed, eventually
from tests.support.daemon_bed import bed as make_bed

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(900)]

SCRIPT = (ROOT / "examples" / "multi_worker" / "train.py").read_text()
TENSORFLOW_S = 400.0
"""Seconds for several starts of TensorFlow, two at a time, on a slow machine."""
STEPS = 300
TRUTH = '{"seconds_per_step": {"linear": {"2": 0.1, "4": 0.1}}}'


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


@pytest.mark.gate
def test_two_workers_are_reshaped_down_and_up_and_every_step_is_made_once(bed: Bed) -> None:
    truth = bed.folder / "truth.json"
    truth.write_text(TRUTH)
    bed.up("--device-truth", str(truth), "--preset", "paper")
    command = ["python", "gang.py", "--steps", str(STEPS)]
    path = bed.record(
        "gang",
        SCRIPT,
        steps=STEPS,
        workers=2,
        command=command,
        framework="tensorflow",
        job_type="linear",
    )
    gang = str(bed.json("submit", str(path))["id"])

    def trains(size: int) -> bool:
        job = bed.job(gang)
        assert job["state"] not in ("failed", "completed"), job
        return bool(job["state"] == "running" and job["size"] == size)

    eventually(lambda: trains(4), least_s=TENSORFLOW_S, text="trains on 4")
    newcomer = bed.submit("newcomer", steps=100_000, optional_gpus=[2], max_wait_s=1)
    eventually(lambda: trains(2), least_s=TENSORFLOW_S, text="trains on 2")
    bed.reshape("cancel", "newcomer")
    bed.reaches(newcomer, "cancelled")
    eventually(lambda: trains(4), least_s=TENSORFLOW_S, text="trains on 4 again")
    done = eventually(
        lambda: (job := bed.job(gang))["state"] == "completed" and job,
        least_s=TENSORFLOW_S,
        text="completes",
    )
    assert (done["reshape_downs"], done["reshape_ups"], done["steps_lost"]) == (1, 1, 0)
    assert (done["attempt"], done["failures"], done["step"]) == (1, 0, STEPS)
    logs = bed.home / "jobs" / gang / "attempt-1"
    losses = [
        re.findall(r"^step (\d+) loss (\S+)$", (folder / "logs" / "training.log").read_text(), re.M)
        for folder in (logs, logs / "worker-1")
    ]
    assert [int(step) for step, _ in losses[0]] == list(range(1, STEPS + 1))
    assert losses[0] == losses[1], "both see the loss over all samples of each step"
    assert float(losses[0][-1][1]) < float(losses[0][0][1]) / 2, "it learns"
