"""Jobs on two hosts in the live shell, on a real SQLite file, with SideCars that are coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from reshape_controller.core.model import GpuState, HostId, JobId, JobState, Stage
from tests.support.fed_log import verify
from tests.support.gang_daemon import (
    GPUS,
    HOSTS,
    GangDaemon,
    gang,
    launcher_of_two_hosts,
    records,
    start,
)

ONE, TWO = HOSTS


@contextlib.asynccontextmanager
async def running(path: Path) -> AsyncIterator[GangDaemon]:
    launcher = launcher_of_two_hosts()
    daemon = await start(path, launcher)
    try:
        yield daemon
    finally:
        await daemon.die()
        await launcher.close()
    assert launcher.clashes == []


async def trained(daemon: GangDaemon, *sizes: int) -> JobId:
    """Submit a gang, and wait until it trains on its largest size and has made steps."""
    job = await daemon.control.submit(gang("first", *sizes))
    await daemon.trains(job, sizes[-1])
    (chief, _) = daemon.launcher.of(job)
    await daemon.until(lambda: chief.observed.progress.step >= 3)
    return job


async def hand_over(daemon: GangDaemon) -> tuple[JobId, JobId]:
    first = await trained(daemon, 4, 8)
    second = await daemon.control.submit(gang("second", 4))
    await daemon.trains(second, 4)
    await daemon.trains(first, 4)
    return first, second


def test_each_worker_starts_on_its_own_host_with_the_gpus_of_that_host(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as daemon:
            job = await trained(daemon, 8)
            (launch,) = daemon.launcher.launches
            assert [(s.host, s.workers, s.devices) for s in launch.shares] == [
                (ONE, 1, GPUS[ONE]),
                (TWO, 1, GPUS[TWO]),
            ]
            one, two = daemon.launcher.of(job)
            assert (one.observed.devices, two.observed.devices) == (GPUS[ONE], GPUS[TWO])

    asyncio.run(scenario())


def test_a_gang_gives_half_of_each_host_and_gets_it_back_without_a_lost_step(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as daemon:
            first, second = await hand_over(daemon)
            looks = [(host, gpus) for job, host, gpus in daemon.launcher.looks if job == first]
            assert {host for host, _ in looks} == {ONE, TWO}, "each host is looked at"
            assert all({*gpus} <= {*GPUS[HOSTS[host == TWO]]} for host, gpus in looks)
            await daemon.control.cancel(second, "ann")
            await daemon.trains(first, 8)
            job = daemon.job(first)
            assert (job.attempt, job.steps_lost, job.failures) == (1, 0, 0)
            assert (job.reshape_downs, job.reshape_ups) == (1, 1)
            assert len(daemon.launcher.launches) == 2
        verify(await records(tmp_path))

    asyncio.run(scenario())


def test_what_a_gang_has_left_is_free_on_the_evidence_of_its_own_host(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as daemon:
            first = await trained(daemon, 4, 8)
            daemon.launcher.occupied.add(TWO)
            second = await daemon.control.submit(gang("second", 4))
            await daemon.trains(first, 4)
            state = daemon.loop.engine.state

            def of_second(host: HostId) -> set[GpuState]:
                gpus = [state.gpus[gpu] for gpu in GPUS[host]]
                return {gpu.state for gpu in gpus if second in (gpu.owner, gpu.promised_to)}

            await daemon.until(lambda: of_second(ONE) == {GpuState.RESERVED})
            await asyncio.sleep(0.3)
            assert of_second(TWO) == {GpuState.RELEASING}
            assert all(not w.observed.devices for w in daemon.launcher.of(second)), "no half"
            daemon.launcher.occupied.clear()
            await daemon.trains(second, 4)

    asyncio.run(scenario())


@pytest.mark.parametrize("records_before", range(1, 16))
def test_killed_after_any_append_a_hand_over_on_two_hosts_is_carried_through(
    tmp_path: Path, records_before: int
) -> None:
    """Between append and effect: the effects of the last record never happen before the kill."""

    async def scenario() -> None:
        launcher = launcher_of_two_hosts()
        daemon = await start(tmp_path, launcher)
        first = await trained(daemon, 4, 8)
        are_appended = daemon.without_effects_after(records_before)
        await daemon.control.submit(gang("second", 4))
        await daemon.die_after(are_appended)
        daemon = await start(tmp_path, launcher)
        second = next(j for j in daemon.loop.engine.state.jobs if j.startswith("second"))
        await daemon.trains(second, 4)
        await daemon.trains(first, 4)
        assert daemon.held(ONE) == daemon.held(TWO) == {GpuState.IN_USE}
        job = daemon.job(first)
        assert (job.attempt, job.steps_lost, job.failures) == (1, 0, 0)
        assert len(launcher.workers) == 2, "each attempt is launched once"
        await daemon.die()
        await launcher.close()
        assert launcher.clashes == []

    asyncio.run(scenario())


@pytest.mark.parametrize("lost", HOSTS)
@pytest.mark.parametrize("records_before", range(1, 15, 2))
def test_a_host_that_is_lost_in_a_hand_over_costs_no_failure_and_no_gpu_gets_two_processes(
    tmp_path: Path, lost: HostId, records_before: int
) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as daemon:
            first = await trained(daemon, 4, 8)
            last_seq = daemon.loop.journal.seq + records_before
            second = await daemon.control.submit(gang("second", 4))
            end_s = time.monotonic() + 0.7
            while daemon.loop.journal.seq < last_seq and time.monotonic() < end_s:
                await asyncio.sleep(0.001)
            daemon.launcher.away.add(lost)
            await daemon.until(lambda: daemon.held(lost) == {GpuState.LOST})
            both = (first, second)
            await daemon.until(lambda: ("running", 4) in map(daemon.state_of, both))
            trains = next(job for job in both if daemon.state_of(job) == ("running", 4))
            assert daemon.job(trains).failures == 0
            daemon.launcher.away.clear()
            await daemon.until(lambda: GpuState.LOST not in daemon.held(lost))
            await daemon.control.cancel(trains, "ann")
            (waits,) = {*both} - {trains}
            await daemon.until(lambda: daemon.state_of(waits)[0] == "running")
            assert daemon.job(waits).failures == 0

    asyncio.run(scenario())


@pytest.mark.parametrize(("lost", "kept"), [(TWO, ONE), (ONE, TWO)])
def test_a_silent_host_ends_the_whole_attempt_and_the_job_goes_on_from_its_checkpoint(
    tmp_path: Path, lost: str, kept: str
) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as daemon:
            launcher = daemon.launcher
            job = await trained(daemon, 4, 8)
            launcher.saved[job] = 2
            launcher.away.add(lost)
            await daemon.until(lambda: daemon.job(job).attempt == 2)
            await daemon.trains(job, 4)
            assert launcher.removals[0] == (job, 1, (kept,)), "only where it can be ended"
            before = {w.spec.host: w for w in launcher.of(job, 1)}
            assert before[kept].over
            assert before[lost].observed.devices, "what is on the silent host runs on"
            assert {w.spec.host for w in launcher.of(job)} == {kept}
            assert launcher.of(job)[0].spec.attempt == 2
            assert launcher.of(job)[0].observed.progress.step >= 2, "from its checkpoint"
            assert daemon.held(HOSTS[lost == TWO]) == {GpuState.LOST}
            assert daemon.job(job).failures == 0, "it is no failure of the job"

            launcher.away.clear()  # the host is back: its old worker is ended there
            await daemon.until(lambda: before[lost].over)
            assert all(not w.over for w in launcher.of(job)), "the newest attempt runs on"
            await daemon.until(lambda: daemon.held(HOSTS[lost == TWO]) == {GpuState.IDLE})

    asyncio.run(scenario())


@pytest.mark.parametrize("number", [0, 1])
def test_the_end_of_one_container_of_a_gang_ends_the_attempt_as_one_failure(
    tmp_path: Path, number: int
) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as daemon:
            job = await trained(daemon, 8)
            dead, other = daemon.launcher.of(job)[:: 1 if number == 0 else -1]
            dead.end(137)
            await daemon.until(lambda: other.over)
            await daemon.until(lambda: daemon.job(job).attempt == 2)
            await daemon.trains(job, 8)
            assert daemon.job(job).failures == 1
            history = [e.text for e in await daemon.control.store.history(job)]
            assert any(f"{dead.spec.host}" in text for text in history)

    asyncio.run(scenario())


def test_a_container_that_was_stopped_from_outside_is_no_failure_of_the_gang(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as daemon:
            job = await trained(daemon, 8)
            daemon.launcher.removal_s = 1.5  # looks meanwhile see how the removed one ended
            _, other = daemon.launcher.of(job)
            other.end(0)
            await daemon.until(lambda: daemon.job(job).attempt == 2)
            await daemon.trains(job, 8)
            assert daemon.job(job).failures == 0

    asyncio.run(scenario())


def test_the_workers_of_a_gang_that_ends_in_order_end_each_in_its_own_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as daemon:
            job = await trained(daemon, 8)
            chief, other = daemon.launcher.of(job)
            take_up = other._take_up
            other._take_up = lambda desired: None  # type: ignore[method-assign]
            await daemon.control.halt(job, "ann")
            await daemon.until(lambda: chief.over)
            await asyncio.sleep(1.3)  # a look at the containers, and more
            assert not other.over
            assert daemon.launcher.removals == []
            other._take_up = take_up  # type: ignore[method-assign]
            await daemon.until(lambda: daemon.job(job).state is JobState.HALTED)
            await daemon.until(lambda: daemon.job(job).stage is Stage.NONE)
            assert daemon.launcher.removals == []
            await daemon.until(lambda: daemon.held(ONE) == daemon.held(TWO) == {GpuState.IDLE})

    asyncio.run(scenario())


def test_a_gang_that_cannot_start_on_one_host_leaves_nothing_on_the_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as daemon:
            daemon.launcher.unfit = TWO
            job = await daemon.control.submit(gang("first", 8))
            await daemon.until(lambda: daemon.job(job).failures == 1)
            assert daemon.launcher.workers == {}
            daemon.launcher.unfit = ""
            await daemon.trains(job, 8)

    asyncio.run(scenario())


def test_a_gang_whose_files_one_host_reaches_is_queued_for_that_host(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as daemon:
            daemon.launcher.files_on = ONE
            job = await daemon.control.submit(gang("first", 4, 8))
            await daemon.until(lambda: daemon.job(job).only_host == ONE)
            assert daemon.launcher.launches == [], "nothing of it starts"

    asyncio.run(scenario())
