"""Records that people insert with a client of their own: handed out, answered in place."""

from __future__ import annotations

import contextlib
import json

import pytest
from bson import Regex
from pymongo.errors import OperationFailure

from reshape_controller.core.model import JobState
from reshape_controller.live.admission import job_id
from reshape_controller.records import RecordInvalid, from_json
from reshape_controller.store.mongo.store import MongoStore
from reshape_controller.store.protocol import InboxItem, StoreError
from tests.support.mongo_bed import Database, row_of, run
from tests.support.store_values import changes
from tests.support.strange_documents import LENIENT, STRANGE, fresh

pytestmark = pytest.mark.mongo


def test_an_inserted_record_is_handed_out_and_its_document_becomes_the_jobs(
    address: str, user: Database
) -> None:
    async def work(store: MongoStore) -> None:
        fields = {"name": "resnet", "command": ["a"], "optional_gpus": [1, 2], "epochs": 1}
        mine = user.jobs.insert_one(dict(fields)).inserted_id
        (item,) = await store.requests(10)
        assert item.kind == "submit"
        assert json.loads(item.body) == fields
        assert from_json(item.body).name == "resnet"
        job = job_id("resnet", item.id)
        await store.project(changes(1, row_of(job, JobState.RUNNING, 1)))
        await store.acknowledge((item.id,))
        assert await store.requests(10) == ()
        document = user.jobs.find_one({"_id": mine})
        assert document is not None
        assert (document["state"], document["command"]) == ("running", ["a"])
        assert user.jobs.count_documents({}) == 1
        await store.project(changes(2, row_of(job, JobState.COMPLETED, 2)))
        await store.project(changes(1, row_of(job, JobState.RUNNING, 1)))
        document = user.jobs.find_one({"_id": mine})
        assert document is not None
        assert document["state"] == "completed"
        found = await store.job("resnet")
        assert found is not None
        assert (found.id, found.seq) == (job, 2)

    run(address, work)


def test_a_request_that_is_acknowledged_before_its_projection_is_not_handed_out_again(
    address: str, user: Database
) -> None:
    async def work(store: MongoStore) -> None:
        mine = user.jobs.insert_one({"name": "resnet"}).inserted_id
        (item,) = await store.requests(10)
        assert await store.requests(10) == (item,), "it is the same until it is acknowledged"
        await store.acknowledge((item.id,))
        await store.acknowledge((item.id,))
        assert await store.requests(10) == ()
        await store.project(changes(1, row_of(job_id("resnet", item.id), JobState.REJECTED, 1)))
        document = user.jobs.find_one({"_id": mine})
        assert document is not None
        assert document["state"] == "rejected"
        assert document["errors"] == [
            {"path": "sizes", "message": "none given", "hint": "give one"}
        ]

    run(address, work)


@pytest.mark.parametrize("name", sorted(STRANGE))
def test_no_document_whatever_stops_the_inbox_or_stays_in_it(
    address: str, user: Database, name: str
) -> None:
    async def work(store: MongoStore) -> None:
        user.jobs.insert_one(fresh(name))
        user.jobs.insert_one({"name": "good", "command": ["a"], "optional_gpus": [1]})
        items: list[InboxItem] = []
        while found := await store.requests(10):
            for item in found:
                if '"good"' not in item.body:
                    with pytest.raises(RecordInvalid):
                        from_json(item.body)
                rejected = row_of(job_id("any", item.id), JobState.REJECTED, 1)
                await store.project(changes(1, rejected))
                await store.acknowledge((item.id,))
            items += found
            assert len(items) <= 2, "what was acknowledged is not handed out again"
        assert len(items) == 2
        lenient = user.jobs.with_options(codec_options=LENIENT)
        shown = [document["reshape"]["state"] for document in lenient.find({})]
        assert shown == ["rejected", "rejected"]

    run(address, work)


@pytest.mark.parametrize("identity", [{"$where": "1"}, {"$gt": ""}, Regex("^a")])
@pytest.mark.parametrize("collection", ["jobs", "inbox"])
def test_an_id_that_is_a_condition_is_refused_by_the_server_or_stands_for_itself(
    address: str, user: Database, collection: str, identity: object
) -> None:
    async def work(store: MongoStore) -> None:
        user[collection].insert_one({"_id": "a good one", "kind": "cancel"})
        with contextlib.suppress(OperationFailure):  # the server's own refusal is an answer too
            user[collection].insert_one({"_id": identity, "kind": "cancel"})
        count = user[collection].count_documents({})
        first, *others = await store.requests(10)
        assert len(others) == count - 1
        for item in (each for each in (first, *others) if "a good one" not in each.id):
            await store.acknowledge((item.id,))
        left = [each.id for each in await store.requests(10)]
        assert any("a good one" in each for each in left), "it is no other's request"
        # The server of these tests compares no pattern with itself; a genuine one takes none.
        assert len(left) == 1 or isinstance(identity, Regex)

    run(address, work)


def test_a_request_may_be_inserted_by_hand_with_a_document_as_body(
    address: str, user: Database
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


@pytest.mark.parametrize(
    ("collection", "document"),
    [
        ("inbox", {"_id": "request:1", "order": 1, "kind": "cancel", "body": {"job": "a"}}),
        ("inbox", {"_id": "jobs:mine", "order": 1, "kind": "cancel", "body": {"job": "a"}}),
        ("jobs", {"_id": "mine", "request": "cancel", "reshape": {"order": "a"}}),
        ("jobs", {"_id": "mine", "request": "cancel", "reshape": [{"order": "a", "id": "a"}]}),
    ],
)
def test_a_request_that_looks_half_like_one_of_ours_is_handed_out_and_taken_out(
    address: str, user: Database, collection: str, document: dict[str, object]
) -> None:
    async def work(store: MongoStore) -> None:
        user[collection].insert_one(document)
        for item in await store.requests(10):
            await store.refuse(item.id, "no such job")
        assert await store.requests(10) == ()

    run(address, work)


def test_documents_of_a_users_own_inbox_are_that_users(address: str, user: Database) -> None:
    async def work(shared: MongoStore) -> None:
        store = MongoStore(address, insert_users=("ada", "bob"))
        await store.open()
        try:
            for collection in ("inbox", "inbox.ada", "inbox.bob", "inbox.eve"):
                body = {"job": collection, "user": "bob"}
                user[collection].insert_one({"_id": "same", "kind": "cancel", "body": body})
            user["inbox.bob"].insert_one({"_id": {"odd": ":"}, "body": None})
            items = await store.requests(10)
            owners = {item.body.split('"')[3]: item.owner for item in items if "job" in item.body}
            assert owners == {"inbox": "", "inbox.ada": "ada", "inbox.bob": "bob"}
            assert len({job_id("any", item.id) for item in items}) == len(items) == 4
            by_owner = {item.owner: item for item in items}
            await store.refuse(by_owner["ada"].id, "it is not yours")
            await store.acknowledge(tuple(item.id for item in items if item.owner == "bob"))
            left = user["inbox.ada"].find_one({"_id": "same"})
            assert left is not None
            assert left["error"] == "it is not yours"
            assert user["inbox.bob"].count_documents({}) == 0
            assert [item.owner for item in await store.requests(10)] == [""]
            assert len(await shared.requests(10)) == 1, "without the setting it is no inbox"
        finally:
            await store.close()

    run(address, work)


def test_a_user_who_inserts_much_leaves_room_for_another(address: str, user: Database) -> None:
    async def work(_: MongoStore) -> None:
        store = MongoStore(address, insert_users=("ada", "bob"))
        await store.open()
        try:
            user["inbox.ada"].insert_many([{"kind": "cancel"} for _ in range(50)])
            user["inbox.bob"].insert_one({"kind": "cancel"})
            owners = [item.owner for item in await store.requests(20)]
            assert owners == ["ada"] * 10 + ["bob"]
        finally:
            await store.close()

    run(address, work)


def test_an_id_like_that_of_a_users_inbox_is_refused(address: str) -> None:
    async def work(store: MongoStore) -> None:
        with pytest.raises(StoreError, match="cannot have the id"):
            await store.put_request(InboxItem('inbox/ada:"x"', "cancel", "{}"))

    run(address, work)
