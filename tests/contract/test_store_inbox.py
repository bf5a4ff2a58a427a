"""The inbox of every store: requests of users."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from reshape_controller.store.protocol import InboxItem, Store
from tests.support.store_bed import run


def test_requests_are_handed_out_oldest_first_until_they_are_acknowledged(
    make: Callable[[], Store],
) -> None:
    items = tuple(InboxItem(f"r{9 - n}", "submit", json.dumps({"n": n})) for n in range(4))

    async def write(store: Store) -> None:
        for item in items:
            await store.put_request(item)
        await store.put_request(replace(items[0], body="{}"))  # a repeat after a lost reply

    async def work(store: Store) -> None:
        assert await store.requests(2) == items[:2]
        assert await store.requests(10) == items
        await store.acknowledge((items[0].id, items[2].id))
        await store.acknowledge((items[0].id, "never-there"))
        await store.acknowledge(())
        assert await store.requests(10) == (items[1], items[3])

    run(make, write)
    run(make, work)


@pytest.mark.parametrize("body", ["", "no json", '{"a": NaN}', "[" * 5000, "null", '"\\u0000"'])
def test_a_request_may_be_nonsense_and_comes_back_as_it_was_written(
    make: Callable[[], Store], body: str
) -> None:
    async def work(store: Store) -> None:
        item = InboxItem("r", "what?", body)
        await store.put_request(item)
        assert await store.requests(10) == (item,)

    run(make, work)


def test_one_reading_of_the_inbox_is_bounded_in_size(make: Callable[[], Store]) -> None:
    async def work(store: Store) -> None:
        for n in range(8):
            await store.put_request(InboxItem(f"r{n}", "submit", "x" * 1_000_000))
        seen = []
        while items := await store.requests(100):
            assert sum(len(item.body) for item in items) <= 5_000_000
            seen += [item.id for item in items]
            await store.acknowledge(tuple(item.id for item in items))
        assert seen == [f"r{n}" for n in range(8)]

    run(make, work)
