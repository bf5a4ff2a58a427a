"""``reshape db init`` and ``reshape db check``, on a file and on a server."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pymongo
import pytest

from reshape_profiles import loader
from tests.support.daemon_bed import Bed, bed
from tests.support.mongo_server import fresh_database


@pytest.fixture(name="bed")
def _bed(tmp_path: Path) -> Iterator[Bed]:
    yield from bed(tmp_path)


def spoil(bed: Bed, words: tuple[str, ...]) -> None:
    """Change rows of the store without the daemon."""
    if words:
        with pymongo.MongoClient[dict[str, Any]](words[1]) as client:
            db = client.get_default_database()
            db.jobs.update_one({"name": "first"}, {"$set": {"state": "running"}})
            db.gpus.delete_one({"_id": "sim-1"})
            return
    with closing(sqlite3.connect(bed.home / "store.sqlite")) as user, user:
        user.execute("UPDATE jobs SET state = 'running' WHERE name = 'first'")
        user.execute("DELETE FROM gpus WHERE id = 'sim-1'")


def test_init_seeds_the_bundled_profiles_once_and_a_daemon_goes_on_from_there(
    bed: Bed, words: tuple[str, ...]
) -> None:
    first = bed.json("db", "init", *words)
    bundled = [profile.job_type for profile in loader.bundled().profiles]
    assert first["seeded"] == bundled
    assert first["job_types"] == sorted(bundled)
    again = bed.json("db", "init", *words)
    assert again["seeded"] == []
    assert (again["job_types"], again["last_seq"]) == (first["job_types"], first["last_seq"])
    bed.up(*words)
    bed.reaches(bed.submit("first", steps=3), "completed")
    bed.stop()
    found = bed.json("db", "check", *words)
    assert (found["problems"], found["wrong"], found["extra"]) == ([], [], [])
    assert found["compared"]
    assert found["rows"] > len(bundled)
    assert found["requests"] == (None if words else 0), "the inbox of a server is not read"


def test_check_names_what_was_changed_and_repairs_it(bed: Bed, words: tuple[str, ...]) -> None:
    bed.up(*words)
    bed.reaches(bed.submit("first", steps=3), "completed")
    bed.stop()
    spoil(bed, words)
    looked = bed.reshape("db", "check", *words, "--no-repair", "-o", "json")
    assert looked.returncode == 1
    wrong = json.loads(looked.stdout)["wrong"]
    assert [name.partition("-")[0] for name in sorted(wrong)] == ["gpus/sim", "jobs/first"]
    assert "2 rows differ from the log" in looked.stderr
    assert "remedy" in looked.stderr
    repaired = bed.reshape("db", "check", *words)
    assert repaired.returncode == 0, repaired.stderr
    assert "repaired" in repaired.stdout
    assert "gpus/sim-1" in repaired.stdout
    assert bed.json("db", "check", *words)["wrong"] == []
    bed.up(*words)
    assert bed.job("first")["state"] == "completed"
    assert len(bed.json("gpus")["gpus"]) == 4


def test_a_store_that_a_daemon_has_open_is_checked_and_left_to_it(bed: Bed) -> None:
    bed.up()
    found = bed.json("db", "check")
    assert not found["compared"]
    assert "a daemon has the store open" in found["why_not"]
    refused = bed.reshape("db", "init")
    assert refused.returncode == 1
    assert "another controller has it open" in refused.stderr


@pytest.mark.mongo
def test_a_server_may_be_checked_while_its_daemon_runs(bed: Bed, mongo_uri: str) -> None:
    with fresh_database(mongo_uri) as address:
        bed.up("--store", address)
        bed.submit("long", steps=100_000)
        bed.reaches("long", "running")
        for _ in range(3):
            found = bed.json("db", "check", "--store", address)
            assert (found["wrong"], found["extra"], found["compared"]) == ([], [], True)
        assert bed.reshape("cancel", "long").returncode == 0
        bed.reaches("long", "cancelled")


@pytest.mark.mongo
def test_a_damaged_log_on_a_server_is_named_with_its_last_good_record(
    bed: Bed, mongo_uri: str
) -> None:
    with fresh_database(mongo_uri) as address:
        bed.json("db", "init", "--store", address)
        with pymongo.MongoClient[dict[str, Any]](address) as client:
            client.get_default_database().log.update_one({"_id": 1}, {"$set": {"body": "{}"}})
        for command in (("db", "check"), ("db", "init"), ("up", "--simulated-gpus", "1")):
            refused = bed.reshape(*command, "--store", address)
            assert refused.returncode == 1
            assert "record 1 of the log does not match its checksum" in refused.stderr
            assert "mongorestore" in refused.stderr


@pytest.mark.mongo
@pytest.mark.parametrize("command", [("db", "init"), ("db", "check"), ("up",)], ids=" ".join)
def test_a_server_that_is_not_there_is_an_error_with_its_address(
    bed: Bed, command: tuple[str, ...]
) -> None:
    words = (*command, *(("--simulated-gpus", "1") if command == ("up",) else ()))
    refused = bed.reshape(*words, RESHAPE_STORE="mongodb://ada:s3same@127.0.0.1:9/mine")
    assert refused.returncode == 1, refused.stdout + refused.stderr
    assert refused.stderr.partition("error: ")[2].splitlines()[:3] == [
        "does not answer (127.0.0.1:9: [Errno 111] Connect call failed ('127.0.0.1', 9))",
        "  where:  mongodb://127.0.0.1:9/mine",
        "  remedy: check that it runs and can be reached",
    ], "one line each, without the driver's own picture of its servers"
    assert "s3same" not in refused.stdout + refused.stderr


@pytest.mark.mongo
@pytest.mark.skipif("MONGODB_URI" not in os.environ, reason="needs a genuine server")
def test_a_genuine_server_refuses_what_the_validators_forbid(bed: Bed, mongo_uri: str) -> None:
    with fresh_database(mongo_uri) as address:
        made = bed.json("db", "init", "--store", address)
        assert "log" in made["validators"]
        with pymongo.MongoClient[dict[str, Any]](address) as client:
            db = client.get_default_database()
            insert: Callable[[], object] = lambda: db.log.insert_one({"_id": "x"})  # noqa: E731
            with pytest.raises(pymongo.errors.WriteError, match="validation"):
                insert()
