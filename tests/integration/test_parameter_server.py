"""The example of a parameter server as a job: other roles than equal workers, and no framework."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon_bed import Bed
from tests.support.daemon_bed import bed as make_bed

pytestmark = pytest.mark.timeout(300)
PROGRAM = Path(__file__).resolve().parents[2] / "examples" / "parameter_server" / "train.py"


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


def submit(bed: Bed, updates: int) -> str:
    command = ["python", "served.py", "--updates", str(updates)]
    return bed.submit("served", PROGRAM.read_text(), steps=updates, workers=2, command=command)


def server_log(bed: Bed, job: str) -> str:
    path = bed.home / "jobs" / job / "attempt-1" / "logs" / "training.log"
    return path.read_text() if path.exists() else ""


def test_a_parameter_server_and_its_worker_are_reshaped_and_lose_no_update(bed: Bed) -> None:
    bed.up("--preset", "paper")
    job = submit(bed, 10**6)
    bed.reaches(job, "running", size=4)
    newcomer = bed.submit("newcomer", steps=100_000, optional_gpus=[2], max_wait_s=1)
    bed.reaches(job, "running", size=2)
    bed.reshape("cancel", "newcomer")
    bed.reaches(newcomer, "cancelled")
    after = bed.reaches(job, "running", size=4)
    assert (after["reshape_downs"], after["reshape_ups"]) == (1, 1)
    assert (after["failures"], after["container_restarts"]) == (0, 0)
    log = server_log(bed, job)
    saved = [int(number) for number in re.findall(r"saves update (\d+)", log)]
    begun = [int(number) for number in re.findall(r"begins after update (\d+)", log)]
    assert begun == [0, *saved]
    assert 0 < saved[0] < saved[1]


def test_the_end_of_the_server_is_the_end_of_the_job(bed: Bed) -> None:
    bed.up()
    job = submit(bed, 600)
    ended = bed.reaches(job, "completed")
    assert (ended["failures"], ended["container_restarts"]) == (0, 0)
    assert "y = 3.00 x -2.00" in server_log(bed, job)
