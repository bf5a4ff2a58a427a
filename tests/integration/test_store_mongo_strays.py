"""Documents that somebody put beside ours: no reason to fail, and named by ``db check``."""

from __future__ import annotations

from typing import Any

import pytest
from bson import ObjectId

from reshape_controller.core.model import JobState
from reshape_controller.live.admission import job_id
from reshape_controller.live.audit import audit
from reshape_controller.records import RecordInvalid, from_json
from reshape_controller.store.mongo import audit as mongo_audit
from reshape_controller.store.mongo import log, projections
from reshape_controller.store.mongo.store import MongoStore
from reshape_controller.store.protocol import Changes
from tests.support.mongo_bed import Database, row_of, run
from tests.support.store_values import changes, job_row, records

pytestmark = pytest.mark.mongo
PROJECTIONS = (
    *("gpus", "hosts", "history", "decisions"),
    *("speed_profiles", "accuracy_profiles", "overhead_profiles"),
)
STRAYS: tuple[dict[str, Any], ...] = ({}, {"_id": "mine"}, {"_id": 7, "seq": "x"}, {"seq": None})


def test_strays_in_any_collection_are_not_read_and_stop_nobody(
    address: str, user: Database
) -> None:
    made = records(3)

    async def work(store: MongoStore) -> None:
        await store.append(made[0])
        await store.project(changes(1, job_row(1, 1)))
        wanted = changes(1, job_row(1, 1))
        for name in (*PROJECTIONS, "snapshots", "meta"):
            user[name].insert_many([dict(stray) for stray in STRAYS])
        user.log.insert_many([{}, {"_id": "mine"}, {"_id": {"a": 1}}])
        assert await store.gpus() == wanted.gpus
        assert await store.hosts() == wanted.hosts
        assert await store.history(None) == wanted.history
        assert await store.decisions(None) == wanted.decisions
        assert await store.profiles() == wanted.profiles
        assert await store.latest_snapshot() is None
        assert await store.last_seq() == 1
        await store.append(made[1])
        await store.project(changes(2, job_row(1, 2)))
        assert await store.projected_seq() == 2

    run(address, work)

    async def again(store: MongoStore) -> None:
        assert [each async for each in store.read(0)] == list(made[:2])
        await store.write_snapshot(2, ("a",))
        assert await store.latest_snapshot() == (2, ("a",))

    run(address, again)


def test_a_check_names_strays_and_takes_them_away(address: str, user: Database) -> None:
    async def work(store: MongoStore) -> None:
        for name in PROJECTIONS:
            user[name].insert_many([dict(stray) for stray in STRAYS])
        found = await audit(store, repair=True)
        assert found.extra_count == len(PROJECTIONS) * len(STRAYS)
        assert "gpus/mine" in found.extra
        assert any(name.startswith('gpus/_id {"$oid"') for name in found.extra)
        assert (await audit(store, repair=False)).sound
        assert [user[name].count_documents({}) for name in PROJECTIONS] == [0] * len(PROJECTIONS)

    run(address, work)


@pytest.mark.parametrize("inserted", [True, False], ids=["of an insert", "of a submitted job"])
def test_a_copy_of_a_jobs_document_takes_nothing_from_it_and_is_handed_in_by_a_check(
    address: str, user: Database, inserted: bool
) -> None:
    async def work(store: MongoStore) -> None:
        job = "resnet-1"
        if inserted:
            user.jobs.insert_one({"name": "resnet", "command": ["a"], "optional_gpus": [1]})
            (item,) = await store.requests(10)
            job = job_id("resnet", item.id)
        await store.project(changes(1, row_of(job, JobState.RUNNING, 1)))
        if inserted:
            await store.acknowledge((item.id,))
        original = user.jobs.find_one({"reshape.id": job})
        assert original is not None
        for _ in range(3):  # before and behind it, whatever order a server has
            user.jobs.insert_one({**original, "_id": ObjectId()})
        user.jobs.insert_one({**original, "_id": 0})
        await store.project(changes(2, row_of(job, JobState.COMPLETED, 2)))
        shown = user.jobs.find_one({"_id": original["_id"]})
        assert shown is not None
        assert (shown["state"], shown["reshape"]["seq"]) == ("completed", 2)
        assert await store.requests(10) == ()
        await store.forget(tuple([n async for n in store.row_names() if n.startswith("copies")]))
        handed_in = await store.requests(10)
        assert len(handed_in) == 4, "now they are inserts like any other"
        with pytest.raises(RecordInvalid, match="state: is filled in by Reshape"):
            from_json(handed_in[0].body)
        await store.project(Changes(3, 3.0))
        assert user.jobs.count_documents({"reshape.id": job}) == 1

    run(address, work)


HALF: tuple[Any, ...] = (
    {"order": "0"},
    {"order": "z", "body": "{}"},
    {"order": "z", "body": 7, "id": "resnet-1", "seq": 1},
    {"order": "z", "name": "resnet", "seq": 9},
    {"id": "resnet-1"},
    [{"order": "z", "id": "resnet-1", "name": "resnet", "seq": 1}],
)


@pytest.mark.parametrize("half", HALF, ids=str)
def test_a_document_that_looks_half_like_a_jobs_hides_no_job_and_is_handed_in_by_a_check(
    address: str, user: Database, half: Any
) -> None:
    async def work(store: MongoStore) -> None:
        await store.project(changes(1, row_of("resnet-1", JobState.RUNNING, 1)))
        user.jobs.insert_one({"_id": 0, "name": "mine", "reshape": half})
        user.jobs.insert_one({"_id": "z", "name": "mine", "reshape": half})
        for limit in (1, 10):
            page = await store.jobs(limit=limit)
            assert [row.id for row in page.rows] == ["resnet-1"]
            assert page.next_after is None
        assert (await store.jobs(limit=10, after="resnet-1")).rows == ()
        for key in ("resnet-1", "resnet"):
            found = await store.job(key)
            assert found is not None
            assert found.id == "resnet-1"
        await store.project(changes(2, row_of("resnet-1", JobState.COMPLETED, 2)))
        shown = await store.job("resnet-1")
        assert shown is not None
        assert shown.state is JobState.COMPLETED
        await store.forget(tuple([n async for n in store.row_names() if n.startswith("copies")]))
        assert len(await store.requests(10)) == 2, "now they are inserts like any other"

    run(address, work)


def test_a_row_that_a_daemon_writes_while_it_is_compared_is_not_named(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = records(2)

    async def work(store: MongoStore) -> None:
        wanted = changes(1, job_row(1, 1))
        await store.append(made[0])
        await store.project(wanted)

        async def and_goes_on(database: Any) -> int:
            seq = await log.last_seq(database)
            if seq == 1:
                await store.append(made[1])
                await store.project(changes(2, job_row(1, 2)))
            return seq

        monkeypatch.setattr(mongo_audit, "last_seq", and_goes_on)
        assert await store.differing((wanted,), 1) == ()

    run(address, work)


def test_a_row_that_a_daemon_writes_before_it_is_repaired_stays_as_the_daemon_wrote_it(
    address: str, user: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = records(2)
    write = projections.write_all

    async def work(store: MongoStore) -> None:
        older, newer = changes(1, job_row(1, 1)), changes(2, job_row(1, 2))
        await store.append(made[0])
        await store.project(older)
        for name in ("jobs", "gpus", "hosts"):
            user[name].update_many({}, {"$set": {"body": "spoilt", "reshape.body": "spoilt"}})

        async def after_the_daemon(*arguments: Any, **more: Any) -> Any:
            monkeypatch.setattr(projections, "write_all", write)
            await store.append(made[1])
            await store.project(newer)
            return await write(*arguments, **more)

        monkeypatch.setattr(projections, "write_all", after_the_daemon)
        await store.rewrite((older,), 1)
        assert await store.last_seq() == 2
        assert (await store.jobs()).rows == newer.jobs
        assert await store.differing((newer,), 2) == ()

    run(address, work)
