"""Every kind of plan on a real daemon with real processes, by the policies of docs/policies.md.

Does: also kills the controller with SIGKILL between plan and end, and feeds each log to a fresh
engine, which has to command the same.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reshape_controller.core.record import LogRecord
from reshape_controller.store.sqlite.store import SqliteStore
from tests.support.daemon_bed import Bed, eventually
from tests.support.daemon_bed import bed as make_bed
from tests.support.fed_log import verify

COUNTS = """
import time
from reshape_sidecar import session
job = session.start()
while True:
    time.sleep(0.05)
    job.step_done(lambda folder: (folder / "state").write_text("0"))
"""
"""Steps that take as long on any number of GPUs."""

PROGRAM = "tests.support.document_policies"
LONG = 100_000
KILLS = pytest.mark.parametrize("kills", [False, True], ids=["undisturbed", "controller-killed"])


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    yield from make_bed(tmp_path)


def up(bed: Bed, policy: str) -> None:
    bed.up("--policy", policy, program=PROGRAM)


def kill_and_up(bed: Bed, policy: str) -> None:
    """kill -9 of the controller, and the next."""
    bed.stop(signal.SIGKILL)
    up(bed, policy)


def becomes(bed: Bed, job: str, state: str) -> None:
    eventually(lambda: bed.job(job)["state"] == state, text=f"{job} is {state}")


def history(bed: Bed, job: str) -> list[Any]:
    status, found = bed._ask(f"/v1/jobs/{job}/history")
    assert status == 200
    return list(found["events"])


def at_s(bed: Bed, job: str, kind: str) -> float:
    """Time of the newest entry of a kind in a job's history."""
    return float([event for event in history(bed, job) if event["kind"] == kind][-1]["at_s"])


def ends(bed: Bed) -> None:
    """Stop the daemon, and feed its log to a fresh engine."""

    async def records() -> list[LogRecord]:
        store = SqliteStore(bed.home / "store.sqlite")
        await store.open()
        try:
            return [record async for record in store.read(0)]
        finally:
            await store.close()

    bed.stop()
    verify(asyncio.run(records()))


@KILLS
def test_a_running_job_grows_on_gpus_that_another_running_job_gives_up(
    bed: Bed, *, kills: bool
) -> None:
    up(bed, "even-shares")
    large = bed.submit("large", steps=LONG, optional_gpus=[2, 3])
    bed.reaches(large, "running", size=3)
    small = bed.submit("small", steps=LONG, optional_gpus=[1, 2])
    if kills:
        becomes(bed, large, "adjusting")
        kill_and_up(bed, "even-shares")
    grown = bed.reaches(small, "running", size=2)
    shrunk = bed.reaches(large, "running", size=2)
    assert not set(grown["gpus"]) & set(shrunk["gpus"])
    assert (grown["attempt"], shrunk["attempt"]) == (1, 1)
    assert at_s(bed, small, "grow-asked") >= at_s(bed, large, "stopped")
    assert at_s(bed, small, "first-step") > at_s(bed, large, "shrink-asked")
    told = bed.reshape("explain", "small").stdout
    assert "small on 2 GPUs of local, large down to 2" in told
    ends(bed)


@KILLS
def test_a_running_job_shrinks_for_no_other_and_two_queued_ones_share_what_it_gave(
    bed: Bed, *, kills: bool
) -> None:
    up(bed, "make-room")
    large = bed.submit("large", steps=LONG, optional_gpus=[2, 4])
    bed.reaches(large, "running", size=4)
    one = bed.submit("one", steps=LONG, optional_gpus=[1])
    two = bed.submit("two", steps=LONG, optional_gpus=[1])
    if kills:
        becomes(bed, large, "adjusting")
        kill_and_up(bed, "make-room")
    jobs = [
        bed.reaches(job, "running", size=size) for job, size in ((large, 2), (one, 1), (two, 1))
    ]
    assert len({gpu for job in jobs for gpu in job["gpus"]}) == 4
    assert jobs[0]["attempt"] == 1
    assert min(at_s(bed, job, "planned") for job in (one, two)) >= at_s(bed, large, "stopped")
    ends(bed)


def test_a_queued_job_gets_the_gpus_of_several_running_ones(bed: Bed) -> None:
    up(bed, "collects")
    donors = [bed.submit(name, steps=LONG, optional_gpus=[1, 2]) for name in ("left", "right")]
    for donor in donors:
        bed.reaches(donor, "running", size=2)
    new = bed.submit("new", steps=LONG, optional_gpus=[2])
    bed.reaches(new, "running", size=2)
    for donor in donors:
        bed.reaches(donor, "running", size=1)
    assert "new on 2 GPUs of local, left down to 1, right down to 1" in (
        bed.reshape("explain", "new").stdout
    )
    ends(bed)


@KILLS
def test_a_running_job_goes_back_to_the_queue_for_one_of_higher_priority(
    bed: Bed, *, kills: bool
) -> None:
    up(bed, "strict-priority")
    low = bed.submit("low", COUNTS, steps=LONG, optional_gpus=[4], min_runtime_s=0)
    bed.reaches(low, "running", size=4)  # and perhaps starts still: the plan comes once it trains
    high = bed.submit("high", steps=20, optional_gpus=[4], priority=1)
    if kills:
        eventually(lambda: bed.job(low)["state"] != "running", text="low is asked to leave")
        kill_and_up(bed, "strict-priority")
    bed.reaches(high, "completed")
    back = bed.reaches(low, "running", size=4)
    assert (back["preempted_by"], back["preemptions"], back["attempt"]) == (high, 1, 2)
    assert back["steps_lost"] == back["failures"] == 0
    ends(bed)


def test_a_policy_remembers_over_a_killed_controller_what_it_tried(bed: Bed) -> None:
    up(bed, "try-and-keep")
    filler = bed.submit("filler", steps=LONG, optional_gpus=[2])
    other = bed.submit("other", steps=LONG, optional_gpus=[1])
    for name in (filler, other):
        bed.reaches(name, "running")
    job = bed.submit("job", COUNTS, steps=LONG, optional_gpus=[1, 2])
    assert bed.job(job)["notes"] == []
    assert bed.reshape("cancel", "filler").returncode == 0
    bed.reaches(job, "running", size=2)
    tries = [{"job": job, "name": "tries-from", "text": "1"}]
    limits = [{**tries[0], "name": "limit"}]
    assert bed.job(job)["notes"] == tries
    kill_and_up(bed, "try-and-keep")
    assert bed.job(job)["notes"] in (tries, limits), "it may have taken the try back already"
    eventually(lambda: bed.job(job)["notes"] == limits, text="takes back")
    bed.reaches(job, "running", size=1)
    assert bed.job(other)["notes"] == []
    assert "note limit" in bed.reshape("describe", "job").stdout
    told = bed.reshape("explain", "job").stdout
    assert "note on job: limit: 1" in told
    assert "note on job: tries-from: removed" in told
    ends(bed)
