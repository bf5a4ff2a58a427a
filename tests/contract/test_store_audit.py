"""Every store's projections can be compared with its log, and repaired."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

from reshape_controller.core import events as ev
from reshape_controller.core.model import FieldError, GpuId, HostId, JobId, JobSpec
from reshape_controller.live.audit import audit
from reshape_controller.live.clock import WallClock
from reshape_controller.live.loop import Loop, Settings
from reshape_controller.policies import make_policy
from reshape_controller.store.protocol import Changes, Store
from tests.support import store_bed
from tests.support.live_fakes import Nothing
from tests.support.store_values import job_row, profile_row


async def lived_in(store: Store) -> None:
    """A store that a controller has written: jobs, decisions, a rejected record, a profile."""
    loop = Loop(store, Settings(make_policy("adaptive")), WallClock())
    await loop.start(Nothing())
    work = asyncio.create_task(loop.run())
    profile = profile_row("resnet", 1).profile
    assert profile is not None
    await loop.commit(ev.ProfileRecorded(profile))
    await loop.commit(ev.HostAdded(HostId("host"), "V100", (GpuId("a"), GpuId("b"))))
    for number in range(4):
        spec = JobSpec(f"job-{number}", ("python", "x.py"), (1, 2), job_type="resnet")
        await loop.commit(ev.JobSubmitted(JobId(f"job-{number}"), spec))
    await loop.commit(ev.JobRejected(JobId("bad-1"), "bad", (FieldError("name", "no", "yes"),)))
    await loop.commit(ev.CancelRequested(JobId("job-3"), "ada"))
    loop.stop()
    await work


async def submitted(store: Store, name: str) -> None:
    """Go on with the store as a controller does: one more job."""
    loop = Loop(store, Settings(make_policy("adaptive")), WallClock())
    await loop.start(Nothing())
    work = asyncio.create_task(loop.run())
    await loop.commit(ev.JobSubmitted(JobId(name), JobSpec(name, ("python", "x.py"), (1, 2))))
    loop.stop()
    await work


def run(make: Callable[[], Store], work: Callable[[Store], Awaitable[None]]) -> None:
    async def after_a_life(store: Store) -> None:
        await lived_in(store)
        await work(store)

    store_bed.run(make, after_a_life)


def test_projections_that_the_log_supports_are_sound(make: Callable[[], Store]) -> None:
    async def work(store: Store) -> None:
        found = await audit(store, repair=False)
        assert (found.wrong, found.extra) == ((), ())
        assert found.sound
        assert found.begin_seq == 1
        assert found.end_seq == await store.last_seq() == 9
        assert found.rows > 15

    run(make, work)


def test_what_is_missing_differs_or_never_was_is_named_and_repaired(
    make: Callable[[], Store],
) -> None:
    async def work(store: Store) -> None:
        jobs, end = (await store.jobs()).rows, await store.last_seq()
        history, decisions = await store.history(None), await store.decisions(None)
        running = await store.job("job-0")
        assert running is not None
        names = [name async for name in store.row_names()]
        lost = tuple(name for name in names if name.startswith(("history/", "jobs/job-1")))
        await store.forget(lost)
        wrong = replace(running, user="mallory", seq=end)
        await store.rewrite((Changes(end, 1.0, (wrong,)),), end)
        await store.project(Changes(end, 1.0, (job_row(77, end),), (), (), (), ()))

        found = await audit(store, repair=False)
        assert not found.sound
        assert {name for name in found.wrong if name.startswith("jobs/")} == {
            "jobs/job-0",
            "jobs/job-1",
        }
        assert found.extra == ("jobs/job-077",)
        assert len(found.wrong) == len(lost) + 1
        assert len([name for name in found.wrong if name.startswith("history/")]) == len(lost) - 1
        assert len((await store.jobs()).rows) == len(jobs), "looking changes nothing"

        assert (await audit(store, repair=True)).repaired
        assert (await audit(store, repair=False)).sound
        assert (await store.jobs()).rows == jobs
        assert await store.history(None) == history
        assert await store.decisions(None) == decisions

    run(make, work)


def test_a_row_that_a_newer_append_has_written_is_left_alone(make: Callable[[], Store]) -> None:
    async def work(store: Store) -> None:
        end = await store.last_seq()
        row = await store.job("job-3")
        assert row is not None
        older = (Changes(end - 1, 1.0, (replace(row, user="older", seq=end - 1),)),)
        assert await store.differing(older, end - 1) == ()
        await store.rewrite(older, end - 1)
        assert await store.job("job-3") == row

    run(make, work)


def test_a_row_from_beyond_the_log_is_wrong_and_is_replaced(make: Callable[[], Store]) -> None:
    async def work(store: Store) -> None:
        row = await store.job("job-0")
        assert row is not None
        await store.project(Changes(1, 1.0, (replace(row, seq=10_000),)))
        found = await audit(store, repair=True)
        assert found.wrong == ("jobs/job-0",)
        assert await store.job("job-0") == row

    run(make, work)


def test_what_comes_while_rows_are_listed_is_not_taken_for_a_stray(
    make: Callable[[], Store],
) -> None:
    """A daemon goes on: a check would have removed what it had just shown."""

    async def work(store: Store) -> None:
        listed = store.row_names

        async def meanwhile() -> AsyncIterator[str]:
            await submitted(store, "late")
            async for name in listed():
                yield name

        setattr(store, "row_names", meanwhile)  # noqa: B010
        found = await audit(store, repair=True)
        assert (found.wrong, found.extra) == ((), ())
        assert await store.job("late") is not None
        assert [entry.kind for entry in await store.history(JobId("late"))][:1] == ["submitted"]

    run(make, work)


def test_what_a_daemon_has_appended_and_is_about_to_show_is_waited_for(
    make: Callable[[], Store],
) -> None:
    async def work(store: Store) -> None:
        project, owed = store.project, list[Changes]()

        async def later(changes: Changes) -> None:
            owed.append(changes)

        setattr(store, "project", later)  # noqa: B010
        await submitted(store, "late")

        async def show() -> None:
            await asyncio.sleep(0.2)
            for changes in owed:
                await project(changes)

        showing = asyncio.create_task(show())
        assert (await audit(store, repair=False)).sound
        await showing

    run(make, work)
