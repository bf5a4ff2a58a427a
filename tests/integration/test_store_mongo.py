"""What is particular to the MongoDB store: what people insert, cut connections, lost records."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest
from bson import Decimal128, Int64, ObjectId

from reshape_controller.core.model import JobId, JobState
from reshape_controller.live.admission import job_id
from reshape_controller.records import RecordInvalid, from_insert
from reshape_controller.store.mongo import MongoStore
from reshape_controller.store.protocol import (
    InboxItem,
    SeqTaken,
    StoreBehind,
    StoreCorrupt,
    StoreError,
)
from tests.mongo_proxy import Proxy
from tests.mongo_server import any_server, fresh_database, server
from tests.store_values import changes, job_row, record, records

pytestmark = pytest.mark.mongo
Client = pymongo.MongoClient[dict[str, Any]]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with any_server(tmp_path_factory.mktemp("mongo")) as running:
        yield running.uri


@pytest.fixture
def address(uri: str) -> Iterator[str]:
    """A database of the test's own."""
    with fresh_database(uri) as found:
        yield found


@pytest.fixture
def user(address: str) -> Iterator[pymongo.database.Database[dict[str, Any]]]:
    """Somebody with a client of their own on the same database."""
    with Client(address, serverSelectionTimeoutMS=5000) as client:
        yield client.get_default_database()


def run(address: str, work: Callable[[MongoStore], Awaitable[None]]) -> None:
    async def main() -> None:
        store = MongoStore(address)
        await store.open()
        try:
            await work(store)
        finally:
            await store.close()

    asyncio.run(main())


async def fill(store: MongoStore, count: int) -> None:
    for each in records(count):
        await store.append(each)


# --- what people insert


def test_an_inserted_record_is_handed_out_and_its_document_becomes_the_jobs(
    address: str, user: pymongo.database.Database[dict[str, Any]]
) -> None:
    async def work(store: MongoStore) -> None:
        fields = {"name": "resnet", "command": ["a"], "optional_gpus": [1, 2], "epochs": 1}
        mine = user.jobs.insert_one(dict(fields)).inserted_id
        (item,) = await store.requests(10)
        assert item.kind == "submit"
        assert json.loads(item.body) == fields
        assert from_insert(item.body).name == "resnet"
        job = job_id("resnet", item.id)
        await store.project(changes(1, _named(job, JobState.RUNNING, 1)))
        await store.acknowledge((item.id,))
        assert await store.requests(10) == ()
        document = user.jobs.find_one({"_id": mine})
        assert document is not None
        assert (document["state"], document["command"]) == ("running", ["a"])
        assert user.jobs.count_documents({}) == 1
        await store.project(changes(2, _named(job, JobState.COMPLETED, 2)))
        await store.project(changes(1, _named(job, JobState.RUNNING, 1)))
        document = user.jobs.find_one({"_id": mine})
        assert document is not None
        assert document["state"] == "completed"
        found = await store.job("resnet")
        assert found is not None
        assert (found.id, found.seq) == (job, 2)

    run(address, work)


def _named(job: str, state: JobState, seq: int) -> Any:
    from dataclasses import replace

    row = job_row(1, seq, state=state, name="resnet")
    if row.job is None:
        return replace(row, id=JobId(job))
    return replace(row, id=JobId(job), job=replace(row.job, id=JobId(job)))


def test_a_request_that_is_acknowledged_before_its_projection_is_not_handed_out_again(
    address: str, user: pymongo.database.Database[dict[str, Any]]
) -> None:
    async def work(store: MongoStore) -> None:
        mine = user.jobs.insert_one({"name": "resnet"}).inserted_id
        (item,) = await store.requests(10)
        assert await store.requests(10) == (item,), "it is the same until it is acknowledged"
        await store.acknowledge((item.id,))
        await store.acknowledge((item.id,))
        assert await store.requests(10) == ()
        await store.project(changes(1, _named(job_id("resnet", item.id), JobState.REJECTED, 1)))
        document = user.jobs.find_one({"_id": mine})
        assert document is not None
        assert document["state"] == "rejected"
        assert document["errors"] == [
            {"path": "sizes", "message": "none given", "hint": "give one"}
        ]

    run(address, work)


def _deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


STRANGE: dict[str, dict[str, Any]] = {
    "nothing": {},
    "operators as values": {"name": {"$ne": None}, "command": {"$where": "1"}},
    "dotted keys": {"a.b": 1, "name": "x"},
    "wrong types": {"name": 1, "command": 2, "optional_gpus": "3"},
    "not a number": {"name": "x", "target_accuracy": float("nan"), "epochs": float("inf")},
    "types of its own": {
        "name": ObjectId(),
        "epochs": Int64(2**40),
        "seed": Decimal128("1.5"),
        "at": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
        "raw": b"\xff\x00",
    },
    "deep nesting": {"name": "x", "deep": _deep(90)},
    "our own field as something else": {"name": "x", "reshape": 5},
    "our own field with a seq": {"name": "x", "reshape": {"seq": 5}},
    "our own field from the future": {"name": "x", "reshape": {"seq": 10**9, "id": "y"}},
    "operators as keys": {"$set": {"name": "x"}},
    "as much as there can be": {"name": "x", "rest": "y" * (16 * 1024 * 1024 - 100)},
    "our own field": {"name": "x", "reshape": {"key": "zzz"}},
    "an id that is text": {"_id": "jobs:1", "name": "x"},
    "an id that is a document": {"_id": {"a": 1}, "name": "x"},
    "an id that is a number": {"_id": 7.5, "name": "x"},
    "much": {"name": "x" * 3_000_000},
}


@pytest.mark.parametrize("name", sorted(STRANGE))
def test_no_document_whatever_stops_the_inbox_or_stays_in_it(
    address: str, user: pymongo.database.Database[dict[str, Any]], name: str
) -> None:
    async def work(store: MongoStore) -> None:
        user.jobs.insert_one(dict(STRANGE[name]))
        user.jobs.insert_one({"name": "good", "command": ["a"], "optional_gpus": [1]})
        items: list[InboxItem] = []
        while found := await store.requests(10):
            for item in found:
                if '"good"' not in item.body:
                    with pytest.raises(RecordInvalid):
                        from_insert(item.body)
                rejected = _named(job_id("any", item.id), JobState.REJECTED, 1)
                await store.project(changes(1, rejected))
                await store.acknowledge((item.id,))
            items += found
            assert len(items) <= 2, "what was acknowledged is not handed out again"
        assert len(items) == 2
        shown = [document["reshape"]["state"] for document in user.jobs.find({})]
        assert shown == ["rejected", "rejected"]

    run(address, work)


def test_a_request_may_be_inserted_by_hand_with_a_document_as_body(
    address: str, user: pymongo.database.Database[dict[str, Any]]
) -> None:
    async def work(store: MongoStore) -> None:
        user.inbox.insert_one({"kind": "cancel", "body": {"job": "resnet-1"}})
        user.inbox.insert_one({"_id": {"odd": 1}, "kind": 7})
        await store.put_request(InboxItem("api", "cancel", "{}"))
        items = await store.requests(10)
        by_hand = next(item for item in items if "resnet-1" in item.body)
        assert (by_hand.kind, json.loads(by_hand.body)) == ("cancel", {"job": "resnet-1"})
        assert len(items) == 3
        await store.acknowledge(tuple(item.id for item in items))
        assert await store.requests(10) == ()
        assert user.inbox.count_documents({}) == 0
        with pytest.raises(StoreError, match="cannot have the id"):
            await store.put_request(InboxItem("jobs:1", "cancel", "{}"))

    run(address, work)


def _shown(job: str, name: str, state: JobState = JobState.RUNNING) -> Any:
    from dataclasses import replace

    return replace(_named(job, state, 1), name=name)


def test_a_request_is_written_as_a_field_and_is_gone_when_it_is_done(
    address: str, user: pymongo.database.Database[dict[str, Any]]
) -> None:
    async def work(store: MongoStore) -> None:
        await store.project(changes(1, _shown("resnet-1", "resnet"), _shown("vgg-2", "vgg")))
        user.jobs.update_one(
            {"name": "resnet"}, {"$set": {"request": "cancel", "request_user": "ada"}}
        )
        user.hosts.update_one({}, {"$set": {"request": "drain"}})
        items = await store.requests(10)
        assert {(item.kind, item.body) for item in items} == {
            ("cancel", '{"job": "resnet-1", "user": "ada"}'),
            ("drain", '{"host": "host", "user": ""}'),
        }
        assert await store.requests(10) == items, "they stay until they are acknowledged"
        await store.acknowledge(tuple(item.id for item in items))
        await store.acknowledge(tuple(item.id for item in items))
        assert await store.requests(10) == ()
        found = user.jobs.find_one({"name": "resnet"})
        assert found is not None
        assert not {"request", "request_user", "request_error"} & set(found)

    run(address, work)


def test_a_request_that_came_while_another_was_answered_is_kept(
    address: str, user: pymongo.database.Database[dict[str, Any]]
) -> None:
    async def work(store: MongoStore) -> None:
        await store.project(changes(1, _shown("resnet-1", "resnet")))
        user.jobs.update_one({}, {"$set": {"request": "halt"}})
        (halt,) = await store.requests(10)
        user.jobs.update_one({}, {"$set": {"request": "resume"}})
        await store.acknowledge((halt.id,))
        (resume,) = await store.requests(10)
        assert resume.kind == "resume"

    run(address, work)


def test_a_refused_request_says_why_where_it_was_written(
    address: str, user: pymongo.database.Database[dict[str, Any]]
) -> None:
    async def work(store: MongoStore) -> None:
        await store.project(changes(1, _shown("resnet-1", "resnet")))
        user.jobs.update_one({}, {"$set": {"request": "resume"}})
        by_hand = user.inbox.insert_one({"kind": "dance"}).inserted_id
        for item in await store.requests(10):
            await store.refuse(item.id, f"{item.kind}: no")
        assert await store.requests(10) == ()
        found = user.jobs.find_one({"name": "resnet"})
        assert found is not None
        assert found["request_error"] == {"request": "resume", "message": "resume: no"}
        refused = user.inbox.find_one({"_id": by_hand})
        assert refused is not None
        assert refused["error"] == "dance: no"
        user.jobs.update_one({}, {"$set": {"request": "cancel"}})
        (item,) = await store.requests(10)
        await store.acknowledge((item.id,))
        found = user.jobs.find_one({"name": "resnet"})
        assert found is not None
        assert "request_error" not in found, "what was wrong once is not wrong for ever"

    run(address, work)


@pytest.mark.parametrize(
    "value", ["dance", "", 7, None, {"$set": 1}, ["cancel"], {"a": {"b": [1]}}, float("nan")]
)
def test_a_request_field_that_is_none_is_answered_and_does_not_stay(
    address: str, user: pymongo.database.Database[dict[str, Any]], value: object
) -> None:
    async def work(store: MongoStore) -> None:
        await store.project(changes(1, _shown("resnet-1", "resnet")))
        user.jobs.update_one({}, {"$set": {"request": value}})
        assert await store.requests(10) == ()
        found = user.jobs.find_one({"name": "resnet"})
        assert found is not None
        assert "request" not in found
        assert "cancel, halt, resume" in found["request_error"]["message"]

    run(address, work)


def test_a_server_without_change_streams_is_polled_and_that_is_no_error(
    address: str, user: pymongo.database.Database[dict[str, Any]]
) -> None:
    if "setName" in user.client.admin.command("isMaster"):
        pytest.skip("this server has change streams")

    async def work(store: MongoStore) -> None:
        user.jobs.insert_one({"name": "x"})
        begin = asyncio.get_running_loop().time()
        await store.wait_for_requests(0.3)
        assert 0.25 < asyncio.get_running_loop().time() - begin < 10
        assert not store.notices_requests
        assert len(await store.requests(10)) == 1

    run(address, work)


@pytest.mark.skipif("MONGODB_URI" not in os.environ, reason="needs a genuine replica set")
def test_a_change_stream_shortens_the_wait(
    address: str, user: pymongo.database.Database[dict[str, Any]]
) -> None:
    if "setName" not in user.client.admin.command("isMaster"):
        pytest.skip("this server has no change streams")

    async def work(store: MongoStore) -> None:
        for _ in range(100):
            if store.notices_requests:
                break
            await asyncio.sleep(0.1)
        waiting = asyncio.create_task(store.wait_for_requests(60))
        await asyncio.sleep(0.5)
        user.jobs.insert_one({"name": "x"})
        await asyncio.wait_for(waiting, 10)

    run(address, work)


# --- damage and loss


@pytest.mark.parametrize(
    ("change", "good"),
    [
        (lambda log: log.update_one({"_id": 5}, {"$set": {"body": "{}"}}), 4),
        (lambda log: log.update_one({"_id": 5}, {"$unset": {"body": 1}}), 4),
        (lambda log: log.update_one({"_id": 8}, {"$set": {"digest": 7}}), 7),
        (lambda log: log.delete_one({"_id": 3}), 2),
        (lambda log: log.delete_one({"_id": 1}), 0),
    ],
)
def test_a_log_that_was_changed_is_refused_and_left_alone(
    address: str,
    user: pymongo.database.Database[dict[str, Any]],
    change: Callable[[Any], object],
    good: int,
) -> None:
    run(address, lambda store: fill(store, 8))
    change(user.log)
    before = list(user.log.find({}))
    with pytest.raises(StoreCorrupt) as caught:
        run(address, lambda store: fill(store, 0))
    assert caught.value.last_good_seq == good
    assert "mongorestore" in str(caught.value)
    assert list(user.log.find({})) == before


def test_a_damaged_snapshot_is_refused(
    address: str, user: pymongo.database.Database[dict[str, Any]]
) -> None:
    async def work(store: MongoStore) -> None:
        await fill(store, 4)
        for seq in (1, 2, 3, 4):
            await store.write_snapshot(seq, ("a", "b"))

    run(address, work)
    assert sorted(user.snapshots.distinct("seq")) == [3, 4]
    user.snapshots.update_one({"seq": 4, "part": 1}, {"$set": {"body": "c"}})
    with pytest.raises(StoreCorrupt, match="snapshot 4 part 1 is damaged"):
        run(address, work)
    user.snapshots.delete_one({"seq": 4, "part": 1})

    async def older(store: MongoStore) -> None:
        assert await store.latest_snapshot() == (3, ("a", "b"))

    run(address, older)


def test_a_server_that_lost_acknowledged_records_is_noticed_by_a_running_controller(
    address: str, user: pymongo.database.Database[dict[str, Any]]
) -> None:
    async def work(store: MongoStore) -> None:
        made = records(6)
        for each in made[:5]:
            await store.append(each)
        user.log.delete_many({"_id": {"$gt": 3}})  # what a kill -9 without sync leaves
        with pytest.raises(StoreBehind, match="ends at seq 3, but seq 5 was acknowledged"):
            await store.append(made[5])
        assert await store.last_seq() == 3

    run(address, work)


def test_two_controllers_cannot_both_append_the_same_seq(address: str) -> None:
    async def main() -> None:
        first = MongoStore(address)
        second = MongoStore(address)
        await first.open()
        await second.open()
        try:
            results = await asyncio.gather(
                first.append(record(1, writer="one")),
                second.append(record(1, writer="two")),
                return_exceptions=True,
            )
            lost = [each for each in results if isinstance(each, SeqTaken)]
            assert len(lost) == 1
            assert results.count(None) == 1
            kept = [each async for each in first.read(0)]
            assert kept == [lost[0].found]
        finally:
            await first.close()
            await second.close()

    asyncio.run(main())


# --- errors


@pytest.mark.parametrize("uri", ["mongodb://", "http://host/", "mongodb://a:b@h:1/x y?w=%", "x"])
def test_an_address_that_cannot_be_used_is_refused_with_its_form(uri: str) -> None:
    with pytest.raises(StoreError, match="remedy: write mongodb://"):
        MongoStore(uri)


def test_a_server_that_is_not_there_is_named_without_the_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("reshape_controller.store.mongo.SELECT_TIMEOUT_S", 0.2)

    async def main() -> None:
        store = MongoStore("mongodb://ada:sesame@127.0.0.1:9/mine")
        with pytest.raises(StoreError, match="does not answer; remedy") as caught:
            await store.open()
        assert "mongodb://127.0.0.1:9/mine" in str(caught.value)
        assert "sesame" not in str(caught.value)
        with pytest.raises(StoreError, match="not open"):
            await store.last_seq()

    asyncio.run(main())


# --- cancelled callers, cut connections and restarts


def test_a_caller_that_is_cancelled_at_any_moment_ends(address: str) -> None:
    async def work(store: MongoStore) -> None:
        async def reads_for_ever() -> None:
            while True:
                await store.requests(10)

        for number in range(60):
            task = asyncio.create_task(reads_for_ever())
            await asyncio.sleep(number * 0.0004)
            task.cancel()
            await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), 10)
            assert task.cancelled()
        assert await store.last_seq() == 0

    run(address, work)


def test_every_control_write_may_be_repeated_after_a_lost_reply(tmp_path: Path) -> None:
    first, second = records(2)
    item = InboxItem("r1", "submit", "{}")
    change = changes(1, job_row(1, 1))

    async def main(port: int) -> None:
        with Proxy(port) as proxy:
            store = MongoStore(f"mongodb://127.0.0.1:{proxy.port}/lost_replies")
            await store.open()
            try:
                await store.append(first)
                # The append: done, unheard; the repeat finds its own record.
                proxy.cut_next("insert")
                with pytest.raises(StoreError, match="does not answer"):
                    await store.append(second)
                with pytest.raises(SeqTaken) as own:
                    await store.append(second)
                assert own.value.found == second
                writes: tuple[tuple[str, Callable[[], Awaitable[None]]], ...] = (
                    ("insert", lambda: store.put_request(item)),
                    ("update", lambda: store.project(change)),
                    ("update", lambda: store.write_snapshot(2, ("a", "b"))),
                    ("delete", lambda: store.acknowledge(("r1",))),
                )
                for command, write in writes:
                    proxy.cut_next(command)
                    with pytest.raises(StoreError, match="does not answer"):
                        await write()
                    await write()
                    await write()
                assert proxy.cuts == 5
                assert [each async for each in store.read(0)] == [first, second]
                assert await store.requests(10) == ()
                assert (await store.jobs()).rows == change.jobs
                assert await store.history(None) == change.history
                assert await store.decisions(None) == change.decisions
                assert await store.projected_seq() == 1
                assert await store.latest_snapshot() == (2, ("a", "b"))
            finally:
                await store.close()

    with server(tmp_path) as running:
        asyncio.run(main(running.port))


def test_a_server_that_is_restarted_is_used_again_without_a_new_controller(
    tmp_path: Path,
) -> None:
    file = tmp_path / "data.h2"
    made = records(3)

    async def before(store: MongoStore) -> None:
        await store.open()
        for each in made[:2]:
            await store.append(each)

    with asyncio.Runner() as runner:
        with server(tmp_path, file=file) as running:
            store = MongoStore(f"{running.uri}kept")
            runner.run(before(store))
            port = running.port
        with pytest.raises(StoreError, match="does not answer"):
            runner.run(store.append(made[2]))
        with server(tmp_path, port=port, file=file):
            runner.run(store.append(made[2]))
            assert runner.run(store.last_seq()) == 3
            runner.run(store.close())
