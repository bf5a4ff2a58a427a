"""The log, and snapshots of the state: what every store must do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from reshape_controller.store.digest import seal
from reshape_controller.store.protocol import (
    SNAPSHOT_PART_BYTES_MAX,
    InboxItem,
    SeqTaken,
    Store,
    StoreBehind,
    StoreError,
)
from reshape_controller.store.sqlite import log as sqlite_log
from tests.support.store_bed import fill, read_all, run
from tests.support.store_values import record, records


def test_a_new_store_is_empty(make: Callable[[], Store]) -> None:
    async def work(store: Store) -> None:
        assert await store.last_seq() == 0
        assert await read_all(store) == []
        assert await store.latest_snapshot() is None
        assert await store.projected_seq() == 0
        assert (await store.jobs()).rows == ()
        assert (await store.jobs()).total == 0
        assert await store.job("anything") is None
        assert await store.gpus() == ()
        assert await store.hosts() == ()
        assert await store.history(None) == ()
        assert await store.decisions(None) == ()
        assert await store.requests(10) == ()

    run(make, work)


def test_records_come_back_as_they_were_after_a_restart(make: Callable[[], Store]) -> None:
    made = records(7)
    run(make, lambda store: fill(store, made))

    async def work(store: Store) -> None:
        assert await store.last_seq() == 7
        assert await read_all(store) == list(made)
        assert await read_all(store, 5) == list(made[5:])
        assert await read_all(store, 7) == []
        assert await read_all(store, 99) == []

    run(make, work)


def test_records_that_exceed_a_page_come_back_in_order(
    make: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_log, "PAGE_RECORDS", 100)
    small = records(210)
    large = record(211, small[-1].digest, size=3_000_000)
    second = record(212, large.digest, size=3_000_000)
    made = (*small, large, second)

    async def work(store: Store) -> None:
        await fill(store, made)
        assert await read_all(store) == list(made)

    run(make, work)


def test_a_seq_that_exists_is_refused_and_the_record_there_is_handed_back(
    make: Callable[[], Store],
) -> None:
    first, second = records(2)
    other = record(2, first.digest, writer="another")

    async def work(store: Store) -> None:
        await fill(store, (first, second))
        with pytest.raises(SeqTaken) as own:
            await store.append(second)
        assert own.value.existing == second
        with pytest.raises(SeqTaken) as foreign:
            await store.append(other)
        assert (foreign.value.existing.writer, foreign.value.existing.digest) == (
            "w",
            second.digest,
        )
        assert await read_all(store) == [first, second]

    run(make, work)


def test_a_store_that_lost_records_is_noticed_and_names_both_seqs(
    make: Callable[[], Store],
) -> None:
    made = records(5)

    async def work(store: Store) -> None:
        await fill(store, made[:2])
        with pytest.raises(StoreBehind, match=r"ends at seq 2.*seq 4") as caught:
            await store.append(made[4])
        assert (caught.value.last_seq, caught.value.expected_seq) == (2, 4)
        assert await store.last_seq() == 2

    run(make, work)


def test_a_record_that_follows_another_log_is_refused(make: Callable[[], Store]) -> None:
    first, second = records(2)
    stray = seal("some other digest", replace(second, digest=""))

    async def work(store: Store) -> None:
        await store.append(first)
        for wrong in (stray, replace(second, digest="0" * 64)):
            with pytest.raises(StoreBehind, match="another record at seq 1"):
                await store.append(wrong)
        await store.append(second)
        assert await read_all(store) == [first, second]

    run(make, work)


def test_the_newest_complete_snapshot_is_found_after_a_restart(make: Callable[[], Store]) -> None:
    async def write(store: Store) -> None:
        await fill(store, records(3))
        await store.write_snapshot(1, ("old",))
        await store.write_snapshot(3, ("neu: ä", "", "x" * SNAPSHOT_PART_BYTES_MAX))
        await store.write_snapshot(3, ("again", "changes nothing"))

    async def work(store: Store) -> None:
        found = await store.latest_snapshot()
        assert found is not None
        assert found == (3, ("neu: ä", "", "x" * SNAPSHOT_PART_BYTES_MAX))

    run(make, write)
    run(make, work)


def test_a_snapshot_that_no_log_supports_or_that_is_too_large_is_refused(
    make: Callable[[], Store],
) -> None:
    async def work(store: Store) -> None:
        await fill(store, records(2))
        with pytest.raises(StoreBehind):
            await store.write_snapshot(3, ("future",))
        with pytest.raises(StoreError, match="more than"):
            await store.write_snapshot(2, ("ä" * (SNAPSHOT_PART_BYTES_MAX // 2 + 1),))
        with pytest.raises(StoreError, match="no parts"):
            await store.write_snapshot(2, ())
        assert await store.latest_snapshot() is None

    run(make, work)


def test_a_store_that_is_not_open_says_so(make: Callable[[], Store]) -> None:
    async def main() -> None:
        store = make()
        with pytest.raises(StoreError, match="not open"):
            await store.last_seq()
        await store.open()
        await store.open()
        await store.close()
        await store.close()
        with pytest.raises(StoreError, match="not open"):
            await store.append(record(1))
        await store.open()
        await store.append(record(1))
        await store.close()

    asyncio.run(main())


def test_writes_that_run_at_once_are_all_kept(make: Callable[[], Store]) -> None:
    async def work(store: Store) -> None:
        items = [InboxItem(f"r{n}", "submit", "{}") for n in range(50)]
        made = records(20)
        results = await asyncio.gather(
            fill(store, made), *(store.put_request(item) for item in items)
        )
        assert results == [None] * 51
        assert await store.last_seq() == 20
        assert {item.id for item in await store.requests(100)} == {item.id for item in items}

    run(make, work)
