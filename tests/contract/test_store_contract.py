"""What every store must do, whatever it keeps its records in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reshape_controller.core.model import JobId, JobState
from reshape_controller.core.record import LogRecord
from reshape_controller.store.digest import seal
from reshape_controller.store.mongo import MongoStore
from reshape_controller.store.protocol import (
    SNAPSHOT_PART_BYTES_MAX,
    Changes,
    InboxItem,
    SeqTaken,
    Store,
    StoreBehind,
    StoreError,
)
from reshape_controller.store.sqlite import SqliteStore
from tests.mongo_server import any_server, fresh_database
from tests.store_values import changes, job_row, record, records


@pytest.fixture(scope="session")
def mongo_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with any_server(tmp_path_factory.mktemp("mongo")) as server:
        yield server.uri


@pytest.fixture(params=["sqlite", pytest.param("mongo", marks=pytest.mark.mongo)])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Opens the same store each time that it is called: twice means a restart."""
    if request.param == "sqlite":
        yield lambda: SqliteStore(tmp_path / "reshape.db")
        return
    uri = request.getfixturevalue("mongo_uri")
    with fresh_database(uri) as database:
        yield lambda: MongoStore(database)


def run(make: Callable[[], Store], work: Callable[[Store], Awaitable[None]]) -> None:
    """Open the store, do the work, close it."""

    async def main() -> None:
        store = make()
        await store.open()
        try:
            await work(store)
        finally:
            await store.close()

    asyncio.run(main())


async def read_all(store: Store, after_seq: int = 0) -> list[LogRecord]:
    return [found async for found in store.read(after_seq)]


async def fill(store: Store, made: tuple[LogRecord, ...]) -> None:
    for each in made:
        await store.append(each)


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


def test_records_that_exceed_a_page_come_back_in_order(make: Callable[[], Store]) -> None:
    large = record(1, size=3_000_000)
    second = record(2, large.digest, size=3_000_000)
    made = (large, second, *records(700, first=3, previous=second.digest))

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
        assert own.value.found == second
        with pytest.raises(SeqTaken) as foreign:
            await store.append(other)
        assert (foreign.value.found.writer, foreign.value.found.digest) == ("w", second.digest)
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


def test_projections_show_what_changed_and_its_seq(make: Callable[[], Store]) -> None:
    row = job_row(1, 1, at_s=1.5)

    async def write(store: Store) -> None:
        await store.project(changes(1, row))

    async def work(store: Store) -> None:
        wanted = changes(1, row)
        assert await store.projected_seq() == 1
        assert (await store.jobs()).rows == (row,)
        assert await store.gpus() == wanted.gpus
        assert await store.hosts() == wanted.hosts
        assert await store.history(None) == wanted.history
        assert await store.decisions(None) == wanted.decisions
        assert await store.profiles() == wanted.profiles

    run(make, write)
    run(make, work)


async def everything(store: Store) -> tuple[object, ...]:
    """All that users can read."""
    return (
        await store.projected_seq(),
        await store.jobs(),
        await store.gpus(),
        await store.hosts(),
        await store.history(None),
        await store.decisions(None),
        await store.profiles(),
    )


def test_repeating_a_projection_or_an_older_one_after_a_newer_changes_nothing(
    make: Callable[[], Store],
) -> None:
    older = changes(1, job_row(1, 1))
    newer = changes(2, job_row(1, 2, state=JobState.RUNNING))

    async def work(store: Store) -> None:
        await store.project(older)
        await store.project(newer)
        before = await everything(store)
        for again in (newer, older, older, newer):
            await store.project(again)
            assert await everything(store) == before
        found = await store.job("job-001")
        assert found is not None
        assert (found.state, found.seq) == (JobState.RUNNING, 2)

    run(make, work)


def test_an_append_without_visible_changes_still_moves_the_stamp(make: Callable[[], Store]) -> None:
    async def work(store: Store) -> None:
        await store.project(Changes(1, 1.0))
        await store.project(Changes(2, 2.0))
        await store.project(Changes(1, 1.0))
        assert await store.projected_seq() == 2

    run(make, work)


def test_jobs_page_in_order_of_submission_without_gap_or_repeat(make: Callable[[], Store]) -> None:
    # Three at each moment: the place in the queue decides among them.
    rows = [job_row(n, n + 1, at_s=float(n // 3)) for n in range(10)]

    async def work(store: Store) -> None:
        for row in reversed(rows):
            await store.project(changes(row.seq, row))
        seen, after = [], None
        while True:
            page = await store.jobs(limit=4, after=after)
            assert page.total == 10
            seen += page.rows
            after = page.next_after
            if after is None:
                break
            assert len(page.rows) == 4
        assert seen == rows

    run(make, work)


def test_jobs_are_filtered_by_state_and_user(make: Callable[[], Store]) -> None:
    rows = (
        job_row(0, 1, state=JobState.RUNNING, at_s=0.0),
        job_row(1, 1, state=JobState.COMPLETED, user="bob", at_s=1.0),
        job_row(2, 1, state=JobState.RUNNING, user="bob", at_s=2.0),
        job_row(3, 1, state=JobState.REJECTED, user="bob", at_s=3.0),
    )

    async def work(store: Store) -> None:
        await store.project(changes(1, *rows))
        assert (await store.jobs(states=(JobState.RUNNING,))).rows == (rows[0], rows[2])
        both = await store.jobs(states=(JobState.RUNNING, JobState.REJECTED), user="bob", limit=1)
        assert (both.rows, both.total, both.next_after) == ((rows[2],), 2, rows[2].id)
        rest = await store.jobs(
            states=(JobState.RUNNING, JobState.REJECTED), user="bob", after=both.next_after
        )
        assert (rest.rows, rest.total, rest.next_after) == ((rows[3],), 2, None)
        assert (await store.jobs(user="nobody")).rows == ()

    run(make, work)


def test_a_page_after_a_job_that_never_was_is_an_error(make: Callable[[], Store]) -> None:
    async def work(store: Store) -> None:
        with pytest.raises(StoreError, match=r"no job nonsense.*remedy"):
            await store.jobs(after="nonsense")

    run(make, work)


def test_a_job_is_found_by_id_and_else_the_newest_with_the_name(make: Callable[[], Store]) -> None:
    rows = (
        job_row(1, 1, name="twin", state=JobState.COMPLETED, at_s=1.0),
        job_row(2, 1, name="twin", at_s=2.0),
        job_row(3, 1, name="twin", at_s=3.0, state=JobState.REJECTED),
        job_row(4, 1, name="job-001", at_s=4.0),
        job_row(5, 1, name="wrong", at_s=5.0, state=JobState.REJECTED),
    )

    async def work(store: Store) -> None:
        await store.project(changes(1, *rows))
        assert await store.job("twin") == rows[1]
        assert await store.job("job-001") == rows[0]
        assert await store.job("job-003") == rows[2]
        assert await store.job("wrong") == rows[4]
        assert await store.job("") is None

    run(make, work)


def test_history_and_decisions_are_read_by_job_and_bounded_to_the_newest(
    make: Callable[[], Store],
) -> None:
    one, two = JobId("job-001"), JobId("job-002")

    async def work(store: Store) -> None:
        for seq in range(1, 6):
            await store.project(changes(seq, job_row(1 + seq % 2, seq)))
        texts = [entry.text for entry in await store.history(None, limit=3)]
        assert texts == ["b 4", "a 5", "b 5"]
        assert [entry.text for entry in await store.history(two)] == ["a 1", "a 3", "a 5"]
        assert [entry.text for entry in await store.history(two, limit=1)] == ["a 5"]
        assert [each.seq for each in await store.decisions(None, limit=2)] == [4, 5]
        assert [each.seq for each in await store.decisions(one)] == [2, 4]
        # job-900 is the target of each plan.
        assert [each.seq for each in await store.decisions(JobId("job-900"))] == [1, 2, 3, 4, 5]
        assert await store.decisions(JobId("job-777")) == ()

    run(make, work)


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
