"""``reshape up --hosts 2``: this machine plays two hosts, each with its own GPUs and folder."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.daemon_bed import Bed, eventually
from tests.support.daemon_bed import bed as make_bed

pytestmark = pytest.mark.timeout(300)

FIRST, SECOND = "local", "local-1"
HOSTS = ("--hosts", "2", "--simulated-gpus", "2")
IMPATIENT = "tests.support.impatient_daemon"


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


def pair(bed: Bed) -> dict[str, str]:
    """Run a job of two GPUs on each host; their ids by host."""
    ids = [bed.submit(name, steps=100_000, optional_gpus=[2]) for name in ("one", "two")]
    return {bed.reaches(job, "running", size=2)["host"]: job for job in ids}


def test_each_host_runs_a_job_in_its_own_folder_and_shows_its_own_gpus(bed: Bed) -> None:
    bed.up(*HOSTS)
    jobs = pair(bed)
    assert sorted(jobs) == [FIRST, SECOND]
    gpus = {gpu["id"]: (gpu["host"], gpu["owner"]) for gpu in bed.json("gpus")["gpus"]}
    assert gpus == {
        "sim-0": (FIRST, jobs[FIRST]),
        "sim-1": (FIRST, jobs[FIRST]),
        "sim-local-1-0": (SECOND, jobs[SECOND]),
        "sim-local-1-1": (SECOND, jobs[SECOND]),
    }
    there = bed.home / "hosts" / SECOND / jobs[SECOND] / "attempt-1"
    assert bed.job(jobs[SECOND])["log_folder"] == str(there / "logs")
    assert "begins at step 0 on sim-local-1-0,sim-local-1-1" in bed.reshape("logs", "two").stdout
    here = bed.home / "jobs" / jobs[SECOND]
    assert sorted(path.name for path in here.iterdir()) == ["checkpoints"], "its own files"
    bed.reshape("cancel", jobs[SECOND])
    bed.reaches(jobs[SECOND], "cancelled")
    assert bed.job(jobs[FIRST])["state"] == "running"


def test_a_daemon_that_starts_again_finds_the_jobs_of_both_hosts_and_takes_no_fewer_hosts(
    bed: Bed,
) -> None:
    bed.up(*HOSTS)
    jobs = pair(bed)
    pids = {host: bed.pid(job) for host, job in jobs.items()}
    bed.stop(signal.SIGKILL)
    refused = bed.reshape("up", "--simulated-gpus", "2", "--port", "0")
    assert refused.returncode == 1
    assert "this home was used with --hosts 2" in refused.stderr
    assert "start with --hosts 2 as before" in refused.stderr
    bed.up("--hosts", "3", "--simulated-gpus", "2")
    assert {host: bed.pid(job) for host, job in jobs.items()} == pids
    assert {bed.job(job)["attempt"] for job in jobs.values()} == {1}
    assert {gpu["host"] for gpu in bed.json("gpus")["gpus"]} == {FIRST, SECOND, "local-2"}


def test_a_job_of_a_silent_host_goes_on_elsewhere_and_the_host_comes_back(bed: Bed) -> None:
    bed.up(*HOSTS, program=IMPATIENT)
    job = pair(bed)[SECOND]
    other = next(each["id"] for each in bed.json("get")["jobs"] if each["id"] != job)
    pid = bed.pid(job)
    silent = bed.home / "hosts" / SECOND / "silent"
    silent.touch()
    eventually(
        lambda: {g["state"] for g in bed.json("gpus")["gpus"] if g["host"] == SECOND} == {"lost"},
        text="its GPUs are lost",
    )
    bed.reshape("cancel", other)
    again = eventually(
        lambda: (found := bed.job(job))["attempt"] == 2 and found["state"] == "running" and found,
        text="it runs on the other host",
    )
    assert (again["host"], again["failures"]) == (FIRST, 0)
    silent.unlink()
    eventually(
        lambda: {gpu["state"] for gpu in bed.json("gpus")["gpus"]} == {"in use", "idle"},
        text="the host is clean",
    )
    assert not os.path.exists(f"/proc/{pid}"), "what ran on there has ended"
