"""A daemon on a MongoDB server: a record is inserted with a plain client, and it runs."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon_bed import Bed, bed, eventually
from tests.support.mongo_bed import Database

pytestmark = pytest.mark.mongo


@pytest.fixture(name="bed")
def _bed(tmp_path: Path) -> Iterator[Bed]:
    yield from bed(tmp_path)


def document(user: Database, **where: Any) -> dict[str, Any]:
    found = user.jobs.find_one(where)
    assert found is not None, where
    return found


def noted(user: Database, kind: str) -> str:
    """What the history says of the first thing of this kind."""
    found = user.history.find_one({"kind": kind}, {"text": 1})
    assert found is not None, kind
    return str(found["text"])


def ended(user: Database, mine: Any, state: str) -> dict[str, Any]:
    """The document of a job once it is in a state that is final."""
    final = ("completed", "failed", "cancelled", "rejected")
    found = eventually(
        lambda: user.jobs.find_one({"_id": mine, "state": {"$in": list(final)}}),
        text=lambda: f"{mine} has ended: {user.jobs.find_one({'_id': mine})}",
    )
    assert found["state"] == state, found
    return dict(found)


def test_the_smallest_record_that_is_inserted_runs_to_completion(
    bed: Bed, user: Database, address: str
) -> None:
    bed.up("--store", address)
    (bed.code / "hello.py").write_text("print('hello from', __file__)")
    smallest = {
        "name": "hello",
        "command": ["python", str(bed.code / "hello.py")],
        "optional_gpus": [1, 2, 4],
    }
    mine = user.jobs.insert_one(smallest).inserted_id
    found = ended(user, mine, "completed")
    assert found["command"] == smallest["command"], "what was inserted stays as it was"
    assert user.jobs.count_documents({}) == 1
    in_the_papers_words = {
        "name": "spelled",
        "command": smallest["command"],
        "Optional number of GPUs": [1, 2],
        "# of epochs": 1,
        "Job type": "resnet",
    }
    found = ended(user, user.jobs.insert_one(in_the_papers_words).inserted_id, "completed")
    assert (found["job_type"], found["optional_gpus"]) == ("resnet", [1, 2])
    assert "hello from" in bed.reshape("logs", "hello").stdout


def test_inserted_jobs_hand_gpus_over_and_their_documents_show_it(
    bed: Bed, user: Database, address: str
) -> None:
    bed.up("--store", address)
    big = json.loads(bed.record("big", steps=100_000).read_text()) | {"code": str(bed.code)}
    small = json.loads(bed.record("small", steps=20, optional_gpus=[2], max_wait_s=1).read_text())
    mine = user.jobs.insert_one(big).inserted_id
    eventually(lambda: user.jobs.find_one({"_id": mine, "number_of_gpus": 4, "state": "running"}))
    other = user.jobs.insert_one(small | {"code": str(bed.code)}).inserted_id
    eventually(lambda: user.jobs.find_one({"_id": mine, "number_of_gpus": 2}))
    assert len(document(user, _id=mine)["gpu_ids"]) == 2
    ended(user, other, "completed")
    eventually(lambda: user.jobs.find_one({"_id": mine, "number_of_gpus": 4, "state": "running"}))
    assert bed.reshape("cancel", "big").returncode == 0
    ended(user, mine, "cancelled")
    assert user.decisions.count_documents({"jobs": document(user, _id=mine)["reshape"]["id"]}) > 1
    eventually(lambda: user.gpus.count_documents({"state": "idle"}) == 4)


def test_a_daemon_that_is_killed_goes_on_from_the_server(
    bed: Bed, user: Database, address: str
) -> None:
    bed.up("--store", address)
    record = json.loads(bed.record("long", steps=60).read_text()) | {"code": str(bed.code)}
    mine = user.jobs.insert_one(record).inserted_id
    eventually(lambda: user.jobs.find_one({"_id": mine, "state": "running"}))
    attempts = document(user, _id=mine)["reshape"]["id"]
    bed.stop(signal.SIGKILL)
    bed.up("--store", address)
    ended(user, mine, "completed")
    job = bed.job(attempts)
    assert job["attempt"] == 1, "training was not touched"
    assert "begins at step 0" in bed.reshape("logs", "long", "-n", "1000").stdout
    assert bed.reshape("logs", "long", "-n", "1000").stdout.count("begins at step") == 1


def test_a_second_daemon_on_the_same_server_ends_the_first_and_both_say_why(
    tmp_path: Path, address: str
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first, second = Bed(tmp_path / "one"), Bed(tmp_path / "two")
    try:
        first.up("--store", address)
        second.up("--store", address)
        assert first.daemon is not None
        # Whatever it does next is an append, and that is where it sees the other one.
        first.reshape("drain", "local")
        assert first.daemon.wait(90) == 1
        assert "another controller took over" in first.log.read_text()
        assert second.reshape("gpus").returncode == 0
    finally:
        first.close()
        second.close()


def test_a_daemon_of_another_home_starts_no_job_a_second_time(tmp_path: Path, address: str) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first, second = Bed(tmp_path / "one"), Bed(tmp_path / "two")
    try:
        first.up("--store", address)
        job = first.submit("long", steps=100_000)
        pid = first.pid(job)
        refused = second.launch("--store", address)
        assert refused.wait(90) == 1
        assert "has a container of another home" in second.log.read_text()
        assert first.job(job)["pid"] == pid
        first.submit("other")  # the first one goes on
        first.stop(signal.SIGKILL)
        first.close()
        (second.home / "jobs" / job).mkdir(parents=True)  # as the refusal says
        second.up("--store", address)
        second.reaches(job, "running")
    finally:
        first.close()
        second.close()


def test_jobs_and_hosts_are_controlled_by_a_field_of_their_documents(
    bed: Bed, user: Database, address: str
) -> None:
    bed.up("--store", address)
    record = json.loads(bed.record("long", steps=100_000).read_text()) | {"code": str(bed.code)}
    mine = user.jobs.insert_one(record).inserted_id
    eventually(lambda: user.jobs.find_one({"_id": mine, "state": "running"}))
    user.jobs.update_one({"_id": mine}, {"$set": {"request": "resume"}})
    refused = eventually(lambda: user.jobs.find_one({"_id": mine, "request_error": {"$ne": None}}))
    assert "not paused" in refused["request_error"]["message"]
    pin = {"request": "pin", "request_size": 2, "request_user": "ada"}
    user.jobs.update_one({"_id": mine}, {"$set": pin})
    eventually(lambda: bed.job("long")["pinned"] == 2)
    assert "by ada" in noted(user, "pinned")
    user.jobs.update_one({"_id": mine}, {"$set": {**pin, "request_size": 3}})
    wrong = {"_id": mine, "request_error.request": "pin"}
    assert "3" in eventually(lambda: user.jobs.find_one(wrong))["request_error"]["message"]
    user.jobs.update_one({"_id": mine}, {"$set": {"request": "unpin"}})
    eventually(lambda: bed.job("long")["pinned"] is None)
    user.gpus.update_one({}, {"$set": {"request": "clear"}})
    refused = eventually(lambda: user.gpus.find_one({"request_error": {"$ne": None}}))
    assert "not quarantined" in refused["request_error"]["message"]
    user.jobs.update_one({"_id": mine}, {"$set": {"request": "halt"}})
    halted = eventually(lambda: user.jobs.find_one({"_id": mine, "state": "halted"}))
    assert not {"request", "request_error"} & set(halted)
    user.hosts.update_one({"_id": "local"}, {"$set": {"request": "drain", "request_user": "ada"}})
    eventually(lambda: user.hosts.find_one({"_id": "local", "drained": True, "request": None}))
    assert "ada" in noted(user, "host-drained")
    user.hosts.update_one({"_id": "local"}, {"$set": {"request": "undrain"}})
    user.jobs.update_one({"_id": mine}, {"$set": {"request": "resume"}})
    eventually(lambda: user.jobs.find_one({"_id": mine, "state": "running"}))
    user.jobs.update_one({"_id": mine}, {"$set": {"request": "cancel"}})
    ended(user, mine, "cancelled")
