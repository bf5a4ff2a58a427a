"""Projections end in the same rows whatever the order and the repetitions of their writes."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reshape_controller.core.model import JobState
from reshape_controller.store.protocol import Changes
from reshape_controller.store.sqlite.store import SqliteStore
from tests.support.gate import examples
from tests.support.store_values import changes, job_row

STATES = (JobState.SUBMITTED, JobState.RUNNING, JobState.COMPLETED, JobState.REJECTED)


@st.composite
def logs(draw: st.DrawFn) -> list[Changes]:
    """Changes of seq 1, 2, ...: each shows some of five jobs in some state."""
    made = []
    for seq in range(1, draw(st.integers(1, 7)) + 1):
        numbers = draw(st.lists(st.integers(0, 4), unique=True, max_size=3))
        rows = (
            job_row(n, seq, state=draw(st.sampled_from(STATES)), at_s=float(n % 2)) for n in numbers
        )
        made.append(changes(seq, *rows))
    return made


async def rows_after(writes: list[Changes], folder: Path) -> tuple[object, ...]:
    store = SqliteStore(folder / "reshape.db")
    await store.open()
    try:
        for each in writes:
            await store.project(each)
        return (
            await store.jobs(),
            await store.gpus(),
            await store.hosts(),
            await store.history(None),
            await store.decisions(None),
            await store.projected_seq(),
        )
    finally:
        await store.close()


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(log=logs(), data=st.data())
def test_any_interleaving_of_projections_gives_the_rows_that_the_order_of_the_log_gives(
    log: list[Changes], data: st.DataObject
) -> None:
    repeated = data.draw(st.lists(st.sampled_from(log), max_size=8))
    shuffled = data.draw(st.permutations(log + repeated))

    async def both(folder: Path) -> None:
        for name in ("a", "b"):
            (folder / name).mkdir(mode=0o700)
        in_order = await rows_after(log, folder / "a")
        assert await rows_after(shuffled, folder / "b") == in_order

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(both(Path(folder)))


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(log=logs(), data=st.data())
def test_a_controller_that_repeats_from_any_stamp_after_a_crash_repairs_the_rows(
    log: list[Changes], data: st.DataObject
) -> None:
    done = data.draw(st.integers(0, len(log)))
    stamp = data.draw(st.integers(0, done))

    async def both(folder: Path) -> None:
        for name in ("a", "b"):
            (folder / name).mkdir(mode=0o700)
        in_order = await rows_after(log, folder / "a")
        await rows_after(log[:done], folder / "b")
        assert await rows_after(log[stamp:], folder / "b") == in_order

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(both(Path(folder)))
