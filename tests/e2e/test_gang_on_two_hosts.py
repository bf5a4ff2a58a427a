"""A job of eight GPUs trains on two hosts of four, under a daemon that plays both.

The program needs no framework; tests/integration/tensorflow/test_gang_on_two_hosts.py and
tests/integration/pytorch/test_gang_on_two_hosts.py do the same with real ones.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape_sidecar.init.look import init_of
from tests.support import local_gangs as gangs
from tests.support.daemon_bed import Bed, eventually
from tests.support.daemon_bed import bed as make_bed

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


def starts(bed: Bed, job: str, worker: int, attempt: int = 1) -> list[tuple[int, list[str]]]:
    """Return the step and the GPUs of each start of a worker."""
    found = re.findall(
        r"begins after step (\d+) on (\S+) at", gangs.output(bed, job, worker, attempt)
    )
    return [(int(step), devices.split(",")) for step, devices in found]


def test_a_job_of_eight_gpus_on_two_hosts_gives_four_in_place_and_gets_them_back(bed: Bed) -> None:
    gangs.up(bed)
    job = gangs.submit(bed, "large")
    assert gangs.trains(bed, job, 8)["hosts"] == [gangs.FIRST, gangs.SECOND]
    before = gangs.inits(bed, job)
    assert len(before) == 2
    newcomer = gangs.give(bed, job)
    bed.stop(signal.SIGKILL)
    gangs.up(bed)
    gangs.get_back(bed, job, newcomer)
    assert gangs.inits(bed, job) == before, "its containers lived on"
    here, there = (starts(bed, job, worker) for worker in (0, 1))
    assert [len(devices) for _, devices in here] == [len(devices) for _, devices in there]
    assert [len(devices) for _, devices in here] == [4, 2, 4]
    assert {gpu for _, devices in here for gpu in devices} == {f"sim-{k}" for k in range(4)}
    assert {gpu for _, devices in there for gpu in devices} == {
        f"sim-local-1-{k}" for k in range(4)
    }
    assert [step for step, _ in here] == [step for step, _ in there], "both save the same step"
    saved = [int(s) for s in re.findall(r"saves step (\d+)", gangs.output(bed, job, 0))]
    assert [step for step, _ in here] == [0, *saved]
    bed.reshape("cancel", "large")
    bed.reaches(job, "cancelled")
    eventually(lambda: gangs.inits(bed, job) == [], text="nothing is left on either host")


def test_a_host_that_is_lost_ends_the_whole_attempt_and_the_job_goes_on_on_the_other(
    bed: Bed,
) -> None:
    gangs.up(bed)
    job = gangs.submit(bed, "large", command=["python", "large.py", str(gangs.STEPS), "0.08", "10"])
    gangs.trains(bed, job, 8)
    eventually(lambda: "saves step 20" in gangs.output(bed, job, 0), text="a checkpoint")
    init = init_of(gangs.folder(bed, job, 1).run)
    assert init is not None
    (bed.home / "hosts" / gangs.SECOND / "silent").touch()
    os.kill(init.pid, signal.SIGKILL)
    eventually(lambda: bed.job(job)["attempt"] == 2, text="another attempt")
    again = gangs.trains(bed, job, 4)
    assert (again["attempt"], again["failures"], again["host"]) == (2, 0, gangs.FIRST)
    assert again["hosts"] == [], "it is on one host now"
    (step, devices), *_ = eventually(
        lambda: starts(bed, job, 0, attempt=2), text="a process that has printed where it begins"
    )
    assert step >= 10
    assert set(devices) <= {f"sim-{k}" for k in range(4)}
    assert init_of(gangs.folder(bed, job, 0).run) is None, "the attempt ended on the first host too"
    states = {(gpu["host"], gpu["state"]) for gpu in bed.json("gpus")["gpus"]}
    assert states == {(gangs.FIRST, "in use"), (gangs.SECOND, "lost")}
