"""A daemon on a MongoDB server: a record is inserted with a plain client, and it runs."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest

from tests.daemon_bed import Bed, bed, eventually
from tests.mongo_server import any_server, fresh_database

pytestmark = pytest.mark.mongo
Database = pymongo.database.Database[dict[str, Any]]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with any_server(tmp_path_factory.mktemp("mongo")) as running:
        yield running.uri


@pytest.fixture
def address(uri: str) -> Iterator[str]:
    with fresh_database(uri) as found:
        yield found


@pytest.fixture
def db(address: str) -> Iterator[Database]:
    """What a user has: a client of their own, and no Reshape in their program."""
    with pymongo.MongoClient[dict[str, Any]](address, serverSelectionTimeoutMS=5000) as client:
        yield client.get_default_database()


@pytest.fixture(name="bed")
def _bed(tmp_path: Path) -> Iterator[Bed]:
    yield from bed(tmp_path)


def document(db: Database, **where: Any) -> dict[str, Any]:
    found = db.jobs.find_one(where)
    assert found is not None, where
    return found


def ended(db: Database, mine: Any, state: str) -> dict[str, Any]:
    """The document of a job once it is in a state that is final."""
    final = ("completed", "failed", "cancelled", "rejected")
    found = eventually(
        lambda: db.jobs.find_one({"_id": mine, "state": {"$in": list(final)}}),
        text=f"{mine} has ended: {db.jobs.find_one({'_id': mine})}",
    )
    assert found["state"] == state, found
    return dict(found)


def test_the_smallest_record_that_is_inserted_runs_to_completion(
    bed: Bed, db: Database, address: str
) -> None:
    bed.up("--store", address)
    (bed.code / "hello.py").write_text("print('hello from', __file__)")
    smallest = {
        "name": "hello",
        "command": ["python", str(bed.code / "hello.py")],
        "optional_gpus": [1, 2, 4],
    }
    mine = db.jobs.insert_one(smallest).inserted_id
    found = ended(db, mine, "completed")
    assert found["command"] == smallest["command"], "what was inserted stays as it was"
    assert db.jobs.count_documents({}) == 1
    assert "hello from" in bed.reshape("logs", "hello").stdout


def test_inserted_jobs_hand_gpus_over_and_their_documents_show_it(
    bed: Bed, db: Database, address: str
) -> None:
    bed.up("--store", address)
    big = json.loads(bed.record("big", steps=100_000).read_text()) | {"code": str(bed.code)}
    small = json.loads(bed.record("small", steps=20, optional_gpus=[2], max_wait_s=1).read_text())
    mine = db.jobs.insert_one(big).inserted_id
    eventually(lambda: db.jobs.find_one({"_id": mine, "number_of_gpus": 4, "state": "running"}))
    other = db.jobs.insert_one(small | {"code": str(bed.code)}).inserted_id
    eventually(lambda: db.jobs.find_one({"_id": mine, "number_of_gpus": 2}))
    assert len(document(db, _id=mine)["gpu_ids"]) == 2
    ended(db, other, "completed")
    eventually(lambda: db.jobs.find_one({"_id": mine, "number_of_gpus": 4, "state": "running"}))
    assert bed.reshape("cancel", "big").returncode == 0
    ended(db, mine, "cancelled")
    assert db.decisions.count_documents({"jobs": document(db, _id=mine)["reshape"]["id"]}) > 1
    eventually(lambda: db.gpus.count_documents({"state": "idle"}) == 4)


def test_a_daemon_that_is_killed_goes_on_from_the_server(
    bed: Bed, db: Database, address: str
) -> None:
    bed.up("--store", address)
    record = json.loads(bed.record("long", steps=60).read_text()) | {"code": str(bed.code)}
    mine = db.jobs.insert_one(record).inserted_id
    eventually(lambda: db.jobs.find_one({"_id": mine, "state": "running"}))
    attempts = document(db, _id=mine)["reshape"]["id"]
    bed.stop(signal.SIGKILL)
    bed.up("--store", address)
    ended(db, mine, "completed")
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


def test_jobs_and_hosts_are_controlled_by_a_field_of_their_documents(
    bed: Bed, db: Database, address: str
) -> None:
    bed.up("--store", address)
    record = json.loads(bed.record("long", steps=100_000).read_text()) | {"code": str(bed.code)}
    mine = db.jobs.insert_one(record).inserted_id
    eventually(lambda: db.jobs.find_one({"_id": mine, "state": "running"}))
    db.jobs.update_one({"_id": mine}, {"$set": {"request": "resume"}})
    refused = eventually(lambda: db.jobs.find_one({"_id": mine, "request_error": {"$ne": None}}))
    assert "not halted" in refused["request_error"]["message"]
    db.jobs.update_one({"_id": mine}, {"$set": {"request": "halt"}})
    halted = eventually(lambda: db.jobs.find_one({"_id": mine, "state": "halted"}))
    assert not {"request", "request_error"} & set(halted)
    db.hosts.update_one({"_id": "local"}, {"$set": {"request": "drain", "request_user": "ada"}})
    eventually(lambda: db.hosts.find_one({"_id": "local", "drained": True, "request": None}))
    assert "ada" in db.history.find_one({"kind": "host-drained"}, {"text": 1})["text"]  # type: ignore[index]
    db.hosts.update_one({"_id": "local"}, {"$set": {"request": "undrain"}})
    db.jobs.update_one({"_id": mine}, {"$set": {"request": "resume"}})
    eventually(lambda: db.jobs.find_one({"_id": mine, "state": "running"}))
    db.jobs.update_one({"_id": mine}, {"$set": {"request": "cancel"}})
    ended(db, mine, "cancelled")
