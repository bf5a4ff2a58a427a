"""Requests that people write as fields of a document, and what tells the store of them."""

from __future__ import annotations

import asyncio
import json
import os

import pytest
from bson import Int64, Regex
from bson.datetime_ms import DatetimeMS

from reshape_controller.core.model import JobState
from reshape_controller.store.mongo.store import MongoStore
from tests.support.mongo_bed import Database, row_of, run
from tests.support.store_values import changes

pytestmark = pytest.mark.mongo


def test_a_request_is_written_as_a_field_and_is_gone_when_it_is_done(
    address: str, user: Database
) -> None:
    async def work(store: MongoStore) -> None:
        await store.project(
            changes(
                1,
                row_of("resnet-1", JobState.RUNNING, 1, "resnet"),
                row_of("vgg-2", JobState.RUNNING, 1, "vgg"),
            )
        )
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
    address: str, user: Database
) -> None:
    async def work(store: MongoStore) -> None:
        await store.project(changes(1, row_of("resnet-1", JobState.RUNNING, 1, "resnet")))
        user.jobs.update_one({}, {"$set": {"request": "pause"}})
        (halt,) = await store.requests(10)
        assert halt.kind == "halt", "requests keep the stored word"
        user.jobs.update_one({}, {"$set": {"request": "resume"}})
        await store.acknowledge((halt.id,))
        (resume,) = await store.requests(10)
        assert resume.kind == "resume"

    run(address, work)


def test_a_refused_request_says_why_where_it_was_written(address: str, user: Database) -> None:
    async def work(store: MongoStore) -> None:
        await store.project(changes(1, row_of("resnet-1", JobState.RUNNING, 1, "resnet")))
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


def test_a_pin_has_its_size_beside_it_and_an_unpin_needs_none(address: str, user: Database) -> None:
    async def work(store: MongoStore) -> None:
        await store.project(changes(1, row_of("resnet-1", JobState.RUNNING, 1)))
        # Some clients write every number as a double.
        for size in (2, 2.0, Int64(2)):
            user.jobs.update_one({}, {"$set": {"request": "pin", "request_size": size}})
            (item,) = await store.requests(10)
            assert (item.kind, json.loads(item.body)) == (
                "pin",
                {"job": "resnet-1", "user": "", "size": 2},
            )
            await store.acknowledge((item.id,))
            found = user.jobs.find_one({})
            assert found is not None
            assert not {"request", "request_size", "request_error"} & set(found)
        user.jobs.update_one({}, {"$set": {"request": "unpin", "request_user": "ada"}})
        (item,) = await store.requests(10)
        assert item.kind == "pin"
        assert json.loads(item.body) == {"job": "resnet-1", "user": "ada", "size": None}

    run(address, work)


def test_a_pin_to_another_size_that_came_meanwhile_is_kept(address: str, user: Database) -> None:
    async def work(store: MongoStore) -> None:
        await store.project(changes(1, row_of("resnet-1", JobState.RUNNING, 1)))
        user.jobs.update_one({}, {"$set": {"request": "pin", "request_size": 1}})
        (first,) = await store.requests(10)
        user.jobs.update_one({}, {"$set": {"request": "pin", "request_size": 2}})
        await store.acknowledge((first.id,))
        (second,) = await store.requests(10)
        assert json.loads(second.body)["size"] == 2

    run(address, work)


@pytest.mark.parametrize("size", [None, "2", 2.5, True, float("nan"), float("inf"), {"$gt": 0}])
def test_a_pin_without_a_whole_size_is_answered_and_does_not_stay(
    address: str, user: Database, size: object
) -> None:
    async def work(store: MongoStore) -> None:
        await store.project(changes(1, row_of("resnet-1", JobState.RUNNING, 1)))
        user.jobs.update_one({}, {"$set": {"request": "pin", "request_size": size}})
        assert await store.requests(10) == ()
        found = user.jobs.find_one({})
        assert found is not None
        assert not {"request", "request_size"} & set(found)
        assert "request_size is not a whole number" in found["request_error"]["message"]

    run(address, work)


def test_a_gpu_is_cleared_by_a_field_of_its_document(address: str, user: Database) -> None:
    async def work(store: MongoStore) -> None:
        await store.project(changes(1, row_of("resnet-1", JobState.RUNNING, 1)))
        user.gpus.update_one({"_id": "gpu-0"}, {"$set": {"request": "clear"}})
        (item,) = await store.requests(10)
        assert (item.kind, json.loads(item.body)) == ("clear", {"gpu": "gpu-0", "user": ""})
        await store.refuse(item.id, "not quarantined")
        found = user.gpus.find_one({"_id": "gpu-0"})
        assert found is not None
        assert found["request_error"] == {"request": "clear", "message": "not quarantined"}
        assert await store.requests(10) == ()

    run(address, work)


@pytest.mark.parametrize(
    "value",
    [
        DatetimeMS(2**62),
        Regex("cancel"),
        "dance",
        "",
        7,
        None,
        {"$set": 1},
        ["cancel"],
        {"a": {"b": [1]}},
        float("nan"),
    ],
)
def test_a_request_field_that_is_none_is_answered_and_does_not_stay(
    address: str, user: Database, value: object
) -> None:
    async def work(store: MongoStore) -> None:
        await store.project(changes(1, row_of("resnet-1", JobState.RUNNING, 1, "resnet")))
        user.jobs.update_one({}, {"$set": {"request": value}})
        assert await store.requests(10) == ()
        found = user.jobs.find_one({"name": "resnet"})
        assert found is not None
        assert "request" not in found
        assert "cancel, pause, resume, pin, unpin" in found["request_error"]["message"]

    run(address, work)


def test_a_server_without_change_streams_is_polled_and_that_is_no_error(
    address: str, user: Database
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
def test_a_change_stream_shortens_the_wait(address: str, user: Database) -> None:
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
