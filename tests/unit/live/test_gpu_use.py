"""The use of GPUs that SideCars report is shown to users of the store, not written to the log."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reshape_controller.core.model import GpuId, Job, JobId, JobSpec, JobState
from reshape_controller.live.gpu_use import rows_of, watch
from reshape_controller.live.loop import Loop
from reshape_controller.store.protocol import GpuUseRow, StoreError
from reshape_sidecar.wire import GpuUse, Observed, Phase

JOB = JobId("job-1")


def job(*gpus: str, attempt: int = 1) -> Job:
    """A job that trains on these GPUs."""
    held = tuple(map(GpuId, gpus))
    spec = JobSpec("one", ("python", "x.py"), (1, 2))
    return Job(JOB, spec, 0, 0.0, JobState.RUNNING, gpus=held, attempt=attempt)


def report(sequence: int, *uuids: str, attempt: int = 1) -> Observed:
    """A report whose reading of each GPU is its sequence."""
    use = tuple(GpuUse(uuid, sequence, 100, 0.5) for uuid in uuids)
    return Observed(JOB, attempt, 1, sequence, Phase.RUNNING, gpu_use=use)


def test_a_job_shows_the_use_of_its_own_gpus_alone() -> None:
    found = rows_of([job("b")], {JOB: report(7, "a", "b")}, 5.0)
    assert found == (GpuUseRow(GpuId("b"), JOB, 7, 0.5, 5.0),)


def test_a_report_of_an_earlier_attempt_shows_nothing() -> None:
    assert rows_of([job("a", attempt=2)], {JOB: report(7, "a")}, 5.0) == ()


class Shown:
    """A store that notes what it is to show, and may fail; ``turns`` are taken one by one."""

    def __init__(self, *fails: bool) -> None:
        self.fails = list(fails)
        self.rows: list[tuple[int, int]] = []
        self.called = asyncio.Event()

    async def show_gpu_use(self, uses: tuple[GpuUseRow, ...], epoch: int) -> None:
        self.called.set()
        if self.fails and self.fails.pop(0):
            raise StoreError("away")
        self.rows += [(use.used_bytes, epoch) for use in uses]


def test_a_reading_is_written_once_and_again_if_the_store_failed() -> None:
    async def scenario() -> None:
        store, newest = Shown(True, False), {JOB: report(1, "a")}
        state = SimpleNamespace(jobs={JOB: job("a")})
        loop = SimpleNamespace(
            store=store, engine=SimpleNamespace(state=state), journal=SimpleNamespace(epoch=3)
        )
        reads = 0

        def observed(of: JobId) -> Observed | None:
            nonlocal reads
            reads += 1
            return newest.get(of)

        async def until(is_so: Any) -> None:
            async with asyncio.timeout(100):
                while not is_so():
                    await asyncio.sleep(0)

        task = asyncio.create_task(watch(cast(Loop, loop), observed, lambda: 5.0, every_s=0.0))
        await until(lambda: len(store.rows) == 1)
        seen = reads
        await until(lambda: reads > seen + 5)
        assert store.rows == [(1, 3)], "the failed write is repeated, and then none is"
        newest[JOB] = report(2, "a")
        await until(lambda: len(store.rows) == 2)
        assert store.rows[1] == (2, 3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
