"""The projections of every store, which users read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from reshape_controller.core.model import JobId, JobState
from reshape_controller.store.protocol import Changes, JobRow, Store, StoreError
from tests.support.store_bed import run
from tests.support.store_values import changes, job_row


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


def test_a_reader_of_the_history_goes_on_at_its_cursor(make: Callable[[], Store]) -> None:
    made = [changes(seq, job_row(seq, seq)) for seq in (1, 2, 3)]

    async def work(store: Store) -> None:
        for each in made:
            await store.project(each)
        assert await store.cursor("notified/chat") is None
        await store.set_cursor("notified/chat", 3)
        await store.set_cursor("notified/chat", 1)
        await store.set_cursor("notified/mail", 2)

    async def later(store: Store) -> None:
        assert await store.projected_seq() == 3
        assert await store.cursor("notified/chat") == 1
        rows = await store.history_between(1, 3)
        assert [(seq, number) for seq, number, _ in rows] == [(2, 0), (2, 1), (3, 0), (3, 1)]
        assert tuple(entry for *_, entry in rows) == (*made[1].history, *made[2].history)
        assert await store.history_between(3, 9) == ()

    run(make, work)
    run(make, later)


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
        seen: list[JobRow] = []
        after = None
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


def test_jobs_page_from_the_newest_without_gap_or_repeat(make: Callable[[], Store]) -> None:
    rows = [job_row(n, n + 1, at_s=float(n // 3)) for n in range(10)]

    async def work(store: Store) -> None:
        for row in rows:
            await store.project(changes(row.seq, row))
        seen: list[JobRow] = []
        after = None
        while len(seen) < 10:
            page = await store.jobs(limit=4, after=after, newest=True)
            assert page.total == 10
            seen += page.rows
            after = page.next_after
        assert after is None
        assert seen == rows[::-1]

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


def test_jobs_are_filtered_by_a_pattern_of_names_and_ids(make: Callable[[], Store]) -> None:
    rows = tuple(
        replace(job_row(number, 1, at_s=float(number)), name=name)
        for number, name in enumerate(("lr-1", "lr-10", "lrx1", "LR-1", "a.b"))
    )

    async def work(store: Store) -> None:
        await store.project(changes(1, *rows))
        names = {
            pattern: [row.name for row in (await store.jobs(name=pattern)).rows]
            for pattern in ("lr-*", "lr-?", "a.b", "axb", "*", rows[2].id, "lr")
        }
        assert names["lr-*"] == ["lr-1", "lr-10"]
        assert names["lr-?"] == ["lr-1"]
        assert names["a.b"] == ["a.b"]
        assert names["axb"] == names["lr"] == []
        assert len(names["*"]) == 5
        assert names[rows[2].id] == ["lrx1"]

    run(make, work)


def test_a_page_after_a_job_that_never_was_is_an_error(make: Callable[[], Store]) -> None:
    async def work(store: Store) -> None:
        with pytest.raises(StoreError, match=r"unknown job 'nonsense'.*remedy"):
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
