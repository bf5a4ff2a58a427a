"""A log whose time went ahead at a start with a wrong clock is set back, and nothing else changes.

Real stores, loops and servers, in three runs: right, with a clock 10 days ahead, and right again.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymongo
import pytest
from typer.testing import CliRunner

from reshape_controller.cli.db.commands import db_app
from reshape_controller.cli.exits import CliError
from reshape_controller.core import events as ev
from reshape_controller.core.engine import Engine
from reshape_controller.core.model import HostId, Mechanism
from reshape_controller.core.plan import Plan
from reshape_controller.core.record import LogRecord
from reshape_controller.live import recovery, time_repair
from reshape_controller.live.audit import audit
from reshape_controller.live.clock import WallClock
from reshape_controller.live.time_repair import CannotSetBack
from reshape_controller.scheduling import rounds
from reshape_controller.store.mongo.store import MongoStore
from reshape_controller.store.protocol import InboxItem
from reshape_controller.store.sqlite import recover
from tests.support import http_bed
from tests.support.http_bed import RECORD, api

DAY_S = 86_400.0
AHEAD_S = 10 * DAY_S


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: float, job: str) -> list[Any]:
    """A controller runs with a clock so far ahead, and takes a job that completes; all jobs."""
    monkeypatch.setattr(http_bed, "WallClock", lambda: WallClock(lambda: time.time() + ahead_s))

    async def inside() -> list[Any]:
        async with api(folder) as it:
            assert (await it.post("/v1/jobs", RECORD | {"name": job})).code == 201
            await it.reaches(job, "running")
            await it.post(f"/v1/jobs/{job}/cancel")
            while (await it.reaches(job, "cancelled"))["stage"] != "none":
                await asyncio.sleep(0.05)
            found: list[Any] = (await it.get("/v1/jobs")).json["jobs"]
            return found

    return asyncio.run(inside())


def set_time_back(folder: Path, *words: str) -> str:
    words = ("set-time-back", "--home", str(folder), *words)
    return CliRunner().invoke(db_app, words, catch_exceptions=False).output


def without_times(jobs: list[Any]) -> list[Any]:
    return [{k: v for k, v in job.items() if not k.endswith("_s")} for job in jobs]


def test_times_are_set_back_from_the_wrong_start_on_and_nothing_else_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, monkeypatch, 0.0, "before")
    wrong = run(tmp_path, monkeypatch, AHEAD_S, "wrong")
    store = tmp_path / "store.sqlite"
    old = list(recover.records(store))
    (first,) = [r.seq for r in old if r.at_s > time.time() + DAY_S][:1]

    said = set_time_back(tmp_path)
    assert "10 days, 0:00:0" in said
    assert f"since record {first} of {len(old)}" in said
    assert list(recover.records(store)) == old, "without --apply nothing changes"

    said = set_time_back(tmp_path, "--apply")
    new = list(recover.records(store))
    for before, after in zip(old, new, strict=True):
        assert replace(after, at_s=before.at_s, digest="", plans=()) == replace(
            before, digest="", plans=()
        )
        moved_s = before.at_s - after.at_s
        assert moved_s == 0 if before.seq < first else abs(moved_s - AHEAD_S) < 60
    assert sorted(each.at_s for each in new) == [each.at_s for each in new]
    assert abs(new[-1].at_s - time.time()) < 30

    right = run(tmp_path, monkeypatch, 0.0, "after")
    for one, other in zip(without_times(right[:2]), without_times(wrong), strict=True):
        used, charged = (
            {part["phase"]: round(part["gpu_s"], 3) for part in job.pop("served")}
            for job in (one, other)
        )
        assert used["training"] == charged["training"]
        assert {key: value for key, value in one.items() if value != other[key]} == {}
    assert all(job["submitted_at_s"] <= time.time() for job in right)
    checked = CliRunner().invoke(db_app, ["check", "--home", str(tmp_path)], catch_exceptions=False)
    assert checked.exit_code == 0, checked.output


@pytest.mark.mongo
def test_a_log_on_a_server_is_set_back_with_its_rows_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    run(tmp_path, monkeypatch, 0.0, "before")
    run(tmp_path, monkeypatch, AHEAD_S, "wrong")
    old = list(recover.records(tmp_path / "store.sqlite"))
    (first,) = [r.seq for r in old if r.at_s > time.time() + DAY_S][:1]

    async def fill() -> None:
        store = MongoStore(address)
        await store.open()
        for each in old:
            await store.append(each)
        engine = (await recovery.recover(store)).engine
        await store.write_snapshot(len(old), engine.state.dump())
        await store.put_request(InboxItem("waits", "cancel", "{}"))
        await store.close()

    async def seen() -> tuple[list[LogRecord], list[float], Any, int, int]:
        store = MongoStore(address)
        await store.open()
        records = [each async for each in store.read(0)]
        times = [row.submitted_at_s for row in (await store.jobs()).rows]
        snapshot, waiting = await store.latest_snapshot(), len(await store.requests(10))
        wrong = (await audit(store, repair=False)).wrong_count
        await store.close()
        return records, times, snapshot, waiting, wrong

    asyncio.run(fill())
    words = ("--store", address)
    assert f"since record {first} of {len(old)}" in set_time_back(tmp_path, *words)
    assert asyncio.run(seen())[0] == old, "without --apply nothing changes"
    said = set_time_back(tmp_path, *words, "--apply")
    assert f"log_before_{len(old)}" in said
    records, times, snapshot, waiting, wrong = asyncio.run(seen())
    assert (snapshot, waiting, wrong) == (None, 1, 0)
    for before, after in zip(old, records, strict=True):
        moved_s = before.at_s - after.at_s
        assert moved_s == 0 if before.seq < first else abs(moved_s - AHEAD_S) < 60
        assert (before.events, before.commands) == (after.events, after.commands)
    assert all(submitted_s <= time.time() for submitted_s in times)
    with pymongo.MongoClient[dict[str, Any]](address) as client:
        kept = client.get_default_database()[f"log_before_{len(old)}"]
        assert [each["digest"] for each in kept.find().sort("_id")] == [r.digest for r in old]
        names = client.get_default_database().list_collection_names()
        assert "log_rewritten" not in names
    note = json.loads((tmp_path / "repairs.jsonl").read_text())
    assert (note["from_seq"], note["replaced"]) == (first, f"the collection log_before_{len(old)}")
    with pytest.raises(CliError, match="the log is not ahead of this machine's clock"):
        set_time_back(tmp_path, *words, "--apply")


def test_who_set_the_time_back_is_noted_and_the_store_of_before_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, monkeypatch, AHEAD_S, "wrong")
    old = list(recover.records(tmp_path / "store.sqlite"))
    (tmp_path / "clock").write_text("this boot and a wrong time\n")
    set_time_back(tmp_path, "--apply")
    (line,) = (tmp_path / "repairs.jsonl").read_text().splitlines()
    note = json.loads(line)
    assert (note["command"], note["from_seq"], note["applied"]) == ("db set-time-back", 1, True)
    assert note["by"]
    assert abs(note["by_s"] - AHEAD_S) < 30
    assert stat.S_IMODE((tmp_path / "repairs.jsonl").stat().st_mode) == 0o600
    assert list(recover.records(Path(note["replaced"]))) == old
    assert abs(float((tmp_path / "clock").read_text().split()[2]) - time.time()) < 30
    with pytest.raises(CliError, match="the log is not ahead of this machine's clock"):
        set_time_back(tmp_path, "--apply")


def test_a_note_that_cannot_be_written_is_told_with_what_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, monkeypatch, AHEAD_S, "wrong")
    os.mkfifo(tmp_path / "repairs.jsonl")
    with pytest.raises(CliError, match="the times are set back, but this could not be noted"):
        set_time_back(tmp_path, "--apply")
    assert abs(list(recover.records(tmp_path / "store.sqlite"))[-1].at_s - time.time()) < 30


def record(seq: int, at_s: float, *events: ev.Event) -> LogRecord:
    return LogRecord(seq, 1, "w", "p", at_s, events, (), (), "")


def test_only_a_start_that_jumped_by_as_much_is_set_back() -> None:
    start = ev.ControllerStarted(1, "p", Mechanism.NONE)
    note = ev.HostOpened(HostId("a"))
    with pytest.raises(CannotSetBack, match="is not ahead"):
        time_repair.find([record(1, 100.0, start)], 90.0)
    drifted = [record(1, 100.0, start), record(2, 5000.0, note)]
    found = time_repair.find(drifted, 100.0)
    assert found.seq == 1, "the first start of a log has nothing before it"
    late = [record(1, 100.0, start), record(2, 5000.0, note), record(3, 5001.0, start)]
    assert time_repair.find(late, 200.0).seq == 1
    again = [record(1, 0.0, start), record(2, 9000.0, start), record(3, 9010.0, start)]
    found = time_repair.find([*again, record(4, 9020.0, note)], 20.0)
    assert (found.seq, found.by_s, found.last_seq) == (2, 9000.0, 4)
    recovered = [record(2, 0.0, note), record(3, 500.0, note)]
    with pytest.raises(CannotSetBack, match="no start jumped by so much"):
        time_repair.find(recovered, 100.0)


def test_a_log_that_would_have_gone_another_way_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, monkeypatch, 0.0, "before")
    run(tmp_path, monkeypatch, AHEAD_S, "wrong")
    store, calls = tmp_path / "store.sqlite", []
    old = list(recover.records(store))

    def differs(engine: Engine, made: LogRecord) -> Any:
        calls.append(made.seq)
        done = rounds.redo(engine, made)
        is_after = calls.count(made.seq) == 2 and done.commands
        return type(done)([], []) if is_after else done

    monkeypatch.setattr(time_repair, "redo", differs)
    with pytest.raises(CliError, match="would command something else with the right times"):
        set_time_back(tmp_path, "--apply")
    assert list(recover.records(store)) == old
    left = {each.name for each in tmp_path.iterdir() if "set-back" in each.name}
    assert left == set()


def test_the_time_at_which_a_policy_wants_to_be_asked_is_set_back_too() -> None:
    start = ev.ControllerStarted(1, "p", Mechanism.NONE)
    wrong = replace(record(1, 9000.0, start), plans=(Plan(wake_at_s=9500.0),))
    ahead = time_repair.find([wrong], 100.0)
    (made,) = time_repair.set_back([wrong], ahead)
    assert (made.at_s, made.plans[0].wake_at_s) == (100.0, 600.0)
    assert made.digest
