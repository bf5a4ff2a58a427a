"""A daemon whose server is cut off, restarted, or has lost records: training never notices."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest

from tests.support.daemon_bed import Bed, bed, eventually, start_of
from tests.support.mongo_proxy import Proxy
from tests.support.mongo_server import server, stop

pytestmark = [pytest.mark.mongo, pytest.mark.timeout(400)]
CUT_S = 60.0
"""As long as the worst network trouble that a daemon has to sit out without being touched."""
CONTROL = ("insert", "update", "delete", "find")


@pytest.fixture(name="bed")
def _bed(tmp_path: Path) -> Iterator[Bed]:
    yield from bed(tmp_path)


def training(bed: Bed) -> tuple[str, int, int | None]:
    """A job that trains for long: its id, the pid of its training, and when that started."""
    job = bed.submit("long", steps=100_000)
    pid = bed.pid(job, size=4)
    return job, pid, start_of(pid)


def untouched(bed: Bed, job: str, pid: int, started: int | None) -> None:
    """It is the same process, in the same container, that was started once."""
    assert started is not None
    assert start_of(pid) == started
    now = bed.job(job)
    assert (now["attempt"], now["pid"], now["container_restarts"]) == (1, pid, 0)
    assert bed.reshape("logs", job, "-n", "1000").stdout.count("begins at step") == 1


def ready(bed: Bed) -> bool:
    """Whether the daemon says that it takes requests; if it does not, it says why."""
    url = json.loads((bed.home / "address.json").read_text())["url"]
    token = (bed.home / "token").read_text().strip()
    asked = urllib.request.Request(f"{url}/readyz", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        with error:
            code, why = error.code, error.read().decode()
    assert (code, "does not answer" in why) == (503, True), why
    return False


def refused(bed: Bed, name: str) -> str:
    """Return the daemon's answer to a record that it cannot store now; empty once it can."""
    done = bed.reshape("submit", str(bed.record(name, optional_gpus=[1])))
    if done.returncode == 0:
        return ""
    assert done.returncode == 4, done.stdout + done.stderr
    return done.stderr


def test_a_cut_of_a_minute_makes_the_daemon_not_ready_and_touches_no_training(
    bed: Bed, tmp_path: Path
) -> None:
    with server(tmp_path) as running, Proxy(running.port) as proxy:
        bed.up("--store", f"mongodb://127.0.0.1:{proxy.port}/cut")
        job, pid, started = training(bed)
        with pymongo.MongoClient[dict[str, Any]](running.uri) as client:
            log = client["cut"].log
            with proxy.down():
                begin_s = time.monotonic()
                eventually(lambda: not ready(bed), text="the daemon is not ready")
                kept = log.count_documents({})
                while time.monotonic() < begin_s + CUT_S:
                    assert "nothing was accepted" in refused(bed, "meanwhile")
                    assert bed.daemon is not None
                    assert bed.daemon.poll() is None
                assert log.count_documents({}) == kept
            eventually(lambda: ready(bed), text="the daemon is ready again")
            assert refused(bed, "after") == ""
        names = {each["name"] for each in bed.json("get")["jobs"]}
        assert "meanwhile" not in names, "what was refused was not accepted behind our back"
        assert {"long", "after"} <= names
        untouched(bed, job, pid, started)
        assert bed.reshape("pause", job).returncode == 0
        bed.reaches(job, "halted")


def test_a_server_that_takes_everything_and_answers_nothing_is_waited_for(
    bed: Bed, tmp_path: Path
) -> None:
    with server(tmp_path) as running, Proxy(running.port) as proxy:
        uri = f"mongodb://127.0.0.1:{proxy.port}/silent"
        bed.up("--store", uri)
        job, pid, started = training(bed)
        with proxy.silent():
            eventually(lambda: not ready(bed), text="the daemon is not ready")
            assert "nothing was accepted" in refused(bed, "meanwhile")
        eventually(lambda: ready(bed), text="the daemon is ready again")
        assert refused(bed, "after") == ""
        assert {each["name"] for each in bed.json("get")["jobs"]} == {"long", "after"}
        untouched(bed, job, pid, started)
        with proxy.silent():
            eventually(lambda: not ready(bed), text="the daemon is not ready")
            assert bed.stop() == 0
        assert start_of(pid) == started
        said = bed.log.read_text()
        assert "Traceback" not in said
        assert "Topology" not in said, "the driver's own picture of its servers"
        checked = bed.json("db", "check", "--no-repair", "--store", uri)
        assert (checked["problems"], checked["extra"]) == ([], [])


def test_a_server_that_is_restarted_is_used_again_and_training_goes_on(
    bed: Bed, tmp_path: Path
) -> None:
    file = tmp_path / "data.h2"
    with server(tmp_path, file=file) as first:
        port = first.port
        bed.up("--store", f"mongodb://127.0.0.1:{port}/restarted")
        job, pid, started = training(bed)
        assert first.process is not None
        first.process.terminate()
        first.process.wait(60)
        eventually(lambda: not ready(bed), text="the daemon is not ready")
        stop(first.process)
    with server(tmp_path, port=port, file=file):
        eventually(lambda: ready(bed), text="the daemon is ready again")
        assert refused(bed, "after") == ""
        untouched(bed, job, pid, started)
        assert bed.reshape("cancel", job).returncode == 0
        bed.reaches(job, "cancelled")
        bed.reaches("after", "completed")
        bed.stop()
        checked = bed.json("db", "check", "--store", f"mongodb://127.0.0.1:{port}/restarted")
        assert (checked["problems"], checked["extra"]) == ([], [])


def test_a_server_that_lost_acknowledged_records_stops_the_daemon_and_not_the_training(
    bed: Bed, tmp_path: Path
) -> None:
    with (
        server(tmp_path) as running,
        pymongo.MongoClient[dict[str, Any]](running.uri) as client,
    ):
        bed.up("--store", f"{running.uri}lost")
        _, pid, started = training(bed)
        log = client["lost"].log
        newest = max(document["_id"] for document in log.find({}, {"_id": 1}))
        log.delete_many({"_id": {"$gt": newest - 2}})  # what kill -9 without sync leaves
        bed.reshape("drain", "local")
        assert bed.daemon is not None
        assert bed.daemon.wait(90) == 1
        said = bed.log.read_text()
        assert f"ends at seq {newest - 2}" in said
        assert "was acknowledged" in said
        assert "restore the right store" in said
        assert started is not None
        assert start_of(pid) == started, "training goes on without a daemon"
        assert log.count_documents({}) == newest - 2


def test_a_server_that_was_killed_and_came_back_without_its_records_is_refused(
    bed: Bed, tmp_path: Path
) -> None:
    with server(tmp_path) as first:
        bed.up("--store", f"{first.uri}killed")
        _, pid, started = training(bed)
        with pymongo.MongoClient[dict[str, Any]](first.uri) as client:
            newest = max(each["_id"] for each in client["killed"].log.find({}, {"_id": 1}))
        assert first.process is not None
        first.process.kill()
        first.process.wait()
        port = first.port
        eventually(lambda: not ready(bed), text="the daemon is not ready")
    with server(tmp_path, port=port) as second:
        # The first thing that the daemon wants to keep shows what is missing: this, or its own.
        assert refused(bed, "meanwhile") != ""
        assert bed.daemon is not None
        assert bed.daemon.wait(90) == 1
        said = bed.log.read_text()
        assert "ends at seq 0, but seq " in said
        acknowledged = int(said.rpartition("ends at seq 0, but seq ")[2].split()[0])
        assert acknowledged >= newest, "the last that the daemon had acknowledged"
        assert started is not None
        assert start_of(pid) == started, "training goes on without a daemon"
        with pymongo.MongoClient[dict[str, Any]](second.uri) as client:
            assert client["killed"].log.count_documents({}) == 0, "no other truth was begun there"


def test_a_job_runs_to_its_end_while_replies_of_every_kind_are_lost(
    bed: Bed, tmp_path: Path
) -> None:
    with server(tmp_path) as running, Proxy(running.port) as proxy:
        bed.up("--store", f"mongodb://127.0.0.1:{proxy.port}/replies")
        with pymongo.MongoClient[dict[str, Any]](running.uri) as client:
            db = client["replies"]
            record = json.loads(bed.record("bumpy", steps=100).read_text())
            for command in CONTROL:
                proxy.cut_next(command)
            mine = db.jobs.insert_one(record | {"code": str(bed.code)}).inserted_id
            for number in range(40):
                if db.jobs.find_one({"_id": mine, "state": "completed"}):
                    break
                proxy.cut_next(CONTROL[number % len(CONTROL)])
                time.sleep(0.3)
            proxy.cut_next(count=0)
            eventually(lambda: db.jobs.find_one({"_id": mine, "state": "completed"}))
            assert proxy.cuts > 3
            assert db.jobs.count_documents({}) == 1
            seqs = [document["_id"] for document in db.log.find({}, {"_id": 1}).sort("_id", 1)]
            assert seqs == list(range(1, len(seqs) + 1))
        assert bed.reshape("logs", "bumpy", "-n", "1000").stdout.count("begins at step 0") == 1
        bed.stop()
        uri = f"mongodb://127.0.0.1:{proxy.port}/replies"
        checked = bed.json("db", "check", "--no-repair", "--store", uri)
        assert (checked["wrong"], checked["extra"]) == ([], [])
