"""A daemon that keeps the logs of ended jobs for no day, and those of the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon_bed import SAVES, Bed, eventually
from tests.support.daemon_bed import bed as make_bed


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


def test_logs_of_an_ended_job_go_and_its_record_and_checkpoint_stay(bed: Bed) -> None:
    bed.up()
    done = bed.submit("done", SAVES, steps=3)
    bed.reaches(done, "completed")
    trains = bed.submit("trains", SAVES, steps=100_000)
    pid = bed.pid(trains)
    jobs = bed.home / "jobs"
    saved = sorted(path for path in (jobs / done).rglob("*") if "attempt-" not in str(path))
    bed.stop()
    assert (jobs / done / "attempt-1" / "logs" / "training.log").exists(), "no setting, no removal"

    bed.up("--keep-logs-days", "0")
    eventually(lambda: not (jobs / done / "attempt-1").exists())
    assert all(path.exists() for path in saved)
    assert bed.job(done)["state"] == "completed"
    refused = bed.reshape("logs", done)
    assert refused.returncode != 0
    assert "keep_logs_days" in refused.stderr
    assert (jobs / trains / "attempt-1" / "logs" / "training.log").exists()
    assert bed.pid(trains) == pid
