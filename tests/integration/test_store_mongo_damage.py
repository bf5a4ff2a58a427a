"""A log on a server that was changed, lost, or written by two."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from reshape_controller.live.recovery import recover
from reshape_controller.store.digest import body_of, digest_of
from reshape_controller.store.mongo.store import MongoStore
from reshape_controller.store.protocol import SeqTaken, StoreBehind, StoreCorrupt, StoreError
from tests.support.mongo_bed import Database, run
from tests.support.store_bed import fill
from tests.support.store_values import record, records

pytestmark = pytest.mark.mongo


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
    user: Database,
    change: Callable[[Any], object],
    good: int,
) -> None:
    run(address, lambda store: fill(store, records(8)))
    change(user.log)
    before = list(user.log.find({}))
    with pytest.raises(StoreCorrupt) as caught:
        run(address, lambda store: fill(store, records(0)))
    assert caught.value.last_good_seq == good
    assert "mongorestore" in str(caught.value)
    assert list(user.log.find({})) == before


def test_a_record_with_an_unknown_tag_is_refused_with_the_tag_the_place_and_the_remedy(
    address: str, user: Database
) -> None:
    first, second = records(2)
    body = body_of(second).decode().replace('"DeadlinesDue"', '"EventOfTomorrow"')
    digest = digest_of(first.digest, body.encode())

    async def work(store: MongoStore) -> None:
        await fill(store, (first, second))
        user.log.update_one({"_id": 2}, {"$set": {"body": body, "digest": digest}})
        with pytest.raises(StoreError) as caught:
            await recover(store)
        assert str(caught.value) == (
            f"{store.location}: record 2 of the log has type 'EventOfTomorrow' at events[0], which "
            "this version does not know: a newer version wrote it; nothing was changed; "
            "remedy: start that version, or restore the backup from before it"
        )

    run(address, work)


def test_a_damaged_snapshot_is_refused(address: str, user: Database) -> None:
    async def work(store: MongoStore) -> None:
        await fill(store, records(4))
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
    address: str, user: Database
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
            assert kept == [lost[0].existing]
        finally:
            await first.close()
            await second.close()

    asyncio.run(main())


# --- errors
