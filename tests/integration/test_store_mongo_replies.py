"""Every write of every operation, done by the server and not heard of: a repeat does no harm."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pymongo
import pytest

from reshape_controller.core.model import JobState
from reshape_controller.live.admission import job_id
from reshape_controller.store.mongo.store import MongoStore
from reshape_controller.store.protocol import Changes, InboxItem, SeqTaken, StoreError
from tests.support.mongo_bed import Database, row_of
from tests.support.mongo_proxy import Proxy
from tests.support.mongo_server import Server, fresh_database, server
from tests.support.store_values import changes, job_row, records

pytestmark = pytest.mark.mongo
WRITES = ("insert", "update", "delete")
FIRST, SECOND = records(2)
INSERTED = 'jobs:{"$numberInt": "7"}'
BY_HAND = 'inbox:{"$numberInt": "8"}'
FIELD = 'request:["jobs", "job-001", "cancel", null]'
SHOWN = changes(1, job_row(1, 1))
NEWER = changes(2, job_row(1, 2, state=JobState.RUNNING), job_row(2, 2))
OWN = changes(2, row_of(job_id("new", INSERTED), JobState.RUNNING, 2, "new"))


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Not that of MONGODB_URI: a client of a replica set finds its way past a proxy."""
    with server(tmp_path_factory.mktemp("own")) as running:
        yield running


async def lived_in(store: MongoStore, user: Database) -> None:
    """A log, rows, and one of everything that somebody may ask; all of it was handed out once."""
    await store.append(FIRST)
    await store.project(SHOWN)
    await store.write_snapshot(1, ("old",))
    user.jobs.insert_one({"_id": 7, "name": "new"})
    user.jobs.update_one({"_id": "job-001"}, {"$set": {"request": "cancel"}})
    user.inbox.insert_one({"_id": 8, "kind": "dance", "body": {}})
    await store.put_request(InboxItem("r1", "halt", "{}"))
    items = await store.requests(10)
    assert sorted(item.id for item in items) == sorted([INSERTED, BY_HAND, FIELD, "r1"])


async def appended(store: MongoStore) -> None:
    """As the loop does it: an own record that is there already is a lost reply."""
    try:
        await store.append(SECOND)
    except SeqTaken as taken:
        if taken.existing != SECOND:
            raise


async def snapshot(store: MongoStore) -> None:
    await store.write_snapshot(1, ("old",))
    await appended(store)
    await store.write_snapshot(2, ("a", "b"))


async def handed_out(store: MongoStore) -> None:
    assert len(await store.requests(10)) == 4


OPERATIONS: dict[str, tuple[int, Callable[[MongoStore], Awaitable[None]]]] = {
    # The number of writes that each takes at least: all of them are cut, one after another.
    "append": (1, appended),
    "project": (7, lambda store: store.project(NEWER)),
    "project a job that was inserted": (7, lambda store: store.project(OWN)),
    "project nothing": (1, lambda store: store.project(Changes(2, 2.0))),
    "snapshot": (4, snapshot),
    "leave a request": (1, lambda store: store.put_request(InboxItem("r2", "halt", "{}"))),
    "acknowledge a request": (1, lambda store: store.acknowledge(("r1",))),
    "acknowledge an insert": (1, lambda store: store.acknowledge((INSERTED,))),
    "acknowledge a field": (1, lambda store: store.acknowledge((FIELD,))),
    "acknowledge all": (3, lambda store: store.acknowledge(("r1", INSERTED, FIELD, BY_HAND))),
    "refuse a request": (1, lambda store: store.refuse(BY_HAND, "no")),
    "refuse a field": (1, lambda store: store.refuse(FIELD, "no")),
    "refuse an insert": (1, lambda store: store.refuse(INSERTED, "no")),
    "write rows again": (5, lambda store: store.rewrite((NEWER,), 2)),
    "forget rows": (2, lambda store: store.forget(("jobs/job-001", "gpus/gpu-0"))),
}


def everything(user: Database) -> dict[str, list[dict[str, Any]]]:
    """All documents, but for the moment at which a request came."""
    return {
        name: sorted(
            ({**found, "order": None} for found in user[name].find({})),
            key=lambda found: str(found["_id"]),
        )
        for name in sorted(user.list_collection_names())
    }


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_reply_that_is_lost_at_any_write_changes_nothing_in_the_end(
    own: Server, name: str
) -> None:
    least, operation = OPERATIONS[name]
    port = own.port
    with Proxy(port) as proxy:

        async def with_cut(address: str, user: Database, number: int | None) -> bool:
            """Do it with the reply to write ``number`` lost; whether there was such a write."""
            store = MongoStore(address.replace(f":{port}/", f":{proxy.port}/"))
            await store.open()
            try:
                await lived_in(store, user)
                if number is None:
                    await operation(store)
                    return True
                before = proxy.cuts
                proxy.cut_next(*WRITES, after=number)
                with contextlib.suppress(StoreError):
                    await operation(store)
                proxy.cut_next(count=0)
                await operation(store)
                return proxy.cuts > before
            finally:
                await store.close()

        def done(number: int | None) -> tuple[bool, dict[str, list[dict[str, Any]]]]:
            with (
                fresh_database(own.uri) as address,
                pymongo.MongoClient[dict[str, Any]](address) as client,
            ):
                user = client.get_default_database()
                cut = asyncio.run(with_cut(address, user, number))
                return cut, everything(user)

        _, wanted = done(None)
        number = 0
        while True:
            cut, found = done(number)
            assert found == wanted, f"after a cut at write {number}"
            if not cut:
                break
            number += 1
    assert number >= least
