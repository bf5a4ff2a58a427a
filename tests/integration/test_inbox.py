"""The daemon goes on after any insert, reports the faulty records, and accepts the good ones."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import bson
import pytest

from reshape_controller.core.model import JobSpec, JobState
from reshape_controller.live import inbox
from reshape_controller.live.admission import Admission
from reshape_controller.live.audit import audit
from reshape_controller.live.clock import WallClock
from reshape_controller.live.control import Control
from reshape_controller.live.journal import Fenced
from reshape_controller.live.loop import Loop, Settings
from reshape_controller.store.mongo.store import MongoStore
from reshape_controller.store.protocol import InboxItem, Store
from reshape_controller.store.sqlite.store import SqliteStore
from tests.support.live_fakes import ONE_PERSON, Nothing
from tests.support.mongo_bed import Database
from tests.support.strange_documents import LENIENT, STRANGE, fresh

WAIT_S = 60.0
GOOD = {"name": "good", "command": ["python", "x.py"], "optional_gpus": [1], "epochs": 1}
NONSENSE = (
    "",
    "no json",
    "[" * 100_000,
    '{"a":' * 100_000,
    "null",
    "7",
    "[]",
    '{"name": NaN}',
    '{"name": "\\ud800", "command": ["x"], "optional_gpus": [1]}',
    '{"\\ud800": 1}',
    '{"name": "a/b\\n\\u0000c", "user": "\\ud800"}',
    '{"name": {"$ne": null}}',
    '{"name": "' + "x" * 100_000 + '"}',
    json.dumps({f"f{n}": n for n in range(1000)}),
)


async def taken_in(store: Store, insert: Callable[[], None], jobs: int) -> None:
    """A daemon's loop and inbox on the store, until that many jobs are there; then checked."""
    await store.open()
    nothing = Nothing()
    loop = Loop(store, Settings(nothing), WallClock())
    admission = admission_of(loop)
    control = Control(loop, admission, lambda job: None, lambda job: None, lambda job: "")
    await loop.start(nothing)
    work = asyncio.create_task(loop.run())
    watch = asyncio.create_task(inbox.watch(loop, admission, control, ONE_PERSON))
    try:
        insert()
        end_s = time.monotonic() + WAIT_S
        while (await store.jobs()).total < jobs or await store.requests(1):
            for task in (work, watch):
                assert not task.done(), task.exception()
            assert time.monotonic() < end_s, await store.requests(3)
            await asyncio.sleep(0.02)
        rows = (await store.jobs(limit=1000)).rows
        assert len(rows) == jobs
        good = [row for row in rows if row.name == "good"]
        assert [row.state for row in good] == [JobState.SUBMITTED]
        for row in rows:
            assert all(c.isprintable() and c not in "/?#" for c in row.id), row.id
            assert len(row.id) <= 100
            if row not in good:
                assert row.state is JobState.REJECTED
                assert row.errors, row.id
        assert not work.done()
        assert not watch.done()
    finally:
        watch.cancel()
        loop.stop()
        await asyncio.gather(work, watch, return_exceptions=True)
        await store.close()


async def audited(address: str) -> bool:
    """Whether the projections show what the log says."""
    store = MongoStore(address)
    await store.open()
    try:
        return (await audit(store, repair=False)).sound
    finally:
        await store.close()


@pytest.fixture(autouse=True)
def _polled_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "POLL_S", 0.02)


def test_nonsense_inserted_into_sqlite_is_rejected_and_the_good_record_beside_it_runs(
    tmp_path: Path,
) -> None:
    path = tmp_path / "reshape.db"

    def insert() -> None:
        bodies = [*NONSENSE, json.dumps(GOOD)]
        with closing(sqlite3.connect(path)) as user, user:
            user.executemany(
                "INSERT INTO inbox (kind, body) VALUES ('submit', ?)", [(b,) for b in bodies]
            )
            for kind in ("cancel", "halt", "resume", "drain", "undrain", "dance", ""):
                user.executemany(
                    "INSERT INTO inbox (kind, body) VALUES (?, ?)", [(kind, b) for b in NONSENSE]
                )
            user.execute("INSERT INTO inbox (kind, body) VALUES ('submit', CAST(x'ff' AS TEXT))")

    asyncio.run(taken_in(SqliteStore(path), insert, len(NONSENSE) + 2))


@pytest.mark.mongo
def test_a_plain_insert_into_mongodb_becomes_a_job_and_nonsense_is_rejected_in_place(
    address: str, user: Database
) -> None:
    lenient = user.jobs.with_options(codec_options=LENIENT)

    def insert() -> None:
        for name in STRANGE:
            user.jobs.insert_one(fresh(name))
        user.jobs.insert_one(dict(GOOD))

    asyncio.run(taken_in(MongoStore(address), insert, len(STRANGE) + 1))
    assert asyncio.run(audited(address)), "db check reads such documents, too"
    found = user.jobs.find_one({"name": "good"})
    assert found is not None
    assert (found["state"], found["command"]) == ("submitted", GOOD["command"])
    rejected = list(lenient.find({"state": "rejected"}))
    assert len(rejected) == len(STRANGE)
    for document in rejected:
        assert set(document["errors"][0]) == {"path", "message", "hint"}


@pytest.mark.mongo
def test_whatever_is_inserted_as_a_request_is_answered_and_stays_nowhere(
    address: str, user: Database
) -> None:
    # The largest is left out: beside "kind" there is no room for it in a document.
    bodies = [name for name in STRANGE if len(bson.encode(fresh(name))) < 15_000_000]

    def insert() -> None:
        for name in bodies:
            for kind in ("submit", "pin", "profile", "dance", {"$ne": 1}):
                user.inbox.insert_one({"kind": kind, "body": fresh(name)})
        user.jobs.insert_one(dict(GOOD))

    asyncio.run(taken_in(MongoStore(address), insert, len(bodies) + 1))
    left = list(user.inbox.with_options(codec_options=LENIENT).find({}))
    assert all(isinstance(document["error"], str) for document in left)
    danced = {document["error"] for document in left if document["kind"] == "dance"}
    assert len(danced) == 1
    assert danced.pop().startswith("unknown request 'dance'; use one of: submit, cancel, ")
    assert len(left) <= 4 * len(bodies), "what became a rejected job is gone"


def admission_of(loop: Loop) -> Admission:
    return Admission(lambda: loop.engine.state)


def test_a_controller_that_was_taken_over_refuses_nothing(tmp_path: Path) -> None:
    """Where another one leads, what is no job to this one may be one of the other's."""

    async def scenario() -> None:
        store, nothing = SqliteStore(tmp_path / "store.db"), Nothing()
        await store.open()
        stale, leader = (Loop(store, Settings(nothing), WallClock()) for _ in range(2))
        admissions = [admission_of(stale), admission_of(leader)]
        desks = [
            Control(loop, admission, lambda job: None, lambda job: None, lambda job: "")
            for loop, admission in zip((stale, leader), admissions, strict=True)
        ]
        await stale.start(nothing)
        await leader.start(nothing)
        work = asyncio.create_task(leader.run())
        job = await desks[1].submit(JobSpec("theirs", ("x",), (1,)))
        await store.put_request(InboxItem("r1", "cancel", json.dumps({"job": job})))
        with pytest.raises(Fenced, match="another controller took over"):
            await asyncio.wait_for(inbox.watch(stale, admissions[0], desks[0], ONE_PERSON), WAIT_S)
        assert [item.id for item in await store.requests(10)] == ["r1"]
        watch = asyncio.create_task(inbox.watch(leader, admissions[1], desks[1], ONE_PERSON))
        while (found := await store.job(job)) is None or found.state is not JobState.CANCELLED:
            await asyncio.sleep(0.02)
        watch.cancel()
        leader.stop()
        await asyncio.gather(work, watch, return_exceptions=True)
        await store.close()

    asyncio.run(asyncio.wait_for(scenario(), 60.0))


@pytest.mark.parametrize(
    ("user", "told"),
    [
        ("ada", "ada"),
        ("\x1b[31mada\nb", "[31madab"),
        ("a" * 100_000, "a" * 63),
        ({"$ne": 1}, "unknown"),
    ],
    ids=["a name", "a terminal's colours", "a long text", "no text"],
)
def test_who_asks_is_told_as_every_table_can_show_it(
    tmp_path: Path, user: object, told: str
) -> None:
    async def scenario() -> None:
        store, nothing = SqliteStore(tmp_path / "store.db"), Nothing()
        await store.open()
        loop = Loop(store, Settings(nothing), WallClock())
        admission = admission_of(loop)
        control = Control(loop, admission, lambda job: None, lambda job: None, lambda job: "")
        await loop.start(nothing)
        work = asyncio.create_task(loop.run())
        job = await control.submit(JobSpec("mine", ("x",), (1,)))
        await store.put_request(InboxItem("r1", "halt", json.dumps({"job": job, "user": user})))
        watch = asyncio.create_task(inbox.watch(loop, admission, control, ONE_PERSON))
        while (row := await store.job(job)) is None or row.state is not JobState.HALTED:
            await asyncio.sleep(0.02)
        assert row.job is not None
        assert row.job.reason == f"paused by {told}"
        watch.cancel()
        loop.stop()
        await asyncio.gather(work, watch, return_exceptions=True)
        await store.close()

    asyncio.run(asyncio.wait_for(scenario(), WAIT_S))
