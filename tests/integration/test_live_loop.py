"""The live shell on a real SQLite file, with SideCars that are coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.engine import Engine
from reshape_controller.core.limits import Limits
from reshape_controller.core.model import (
    GpuId,
    GpuState,
    HostId,
    JobId,
    JobSpec,
    JobState,
    Length,
    LengthUnit,
)
from reshape_controller.core.plan import Option, Plan, Snapshot, Target
from reshape_controller.core.record import LogRecord
from reshape_controller.live.admission import Admission, Refused
from reshape_controller.live.clock import WallClock
from reshape_controller.live.control import Conflict, Control
from reshape_controller.live.effects import Effects
from reshape_controller.live.journal import Fenced
from reshape_controller.live.launching import LaunchSettings
from reshape_controller.live.loop import Loop, Settings, TimedPlanner
from reshape_controller.live.recovery import recover
from reshape_controller.live.sidecar_hub import SidecarHub
from reshape_controller.live.tokens import Tokens
from reshape_controller.scheduling import rounds
from reshape_controller.scheduling.planner import FailureKind, Planner
from reshape_controller.store.protocol import StoreError
from reshape_controller.store.sqlite.store import SqliteStore
from tests.support.document_policies import starts_first
from tests.support.fed_log import verify
from tests.support.live_daemon import LiveDaemon
from tests.support.live_fakes import FakeLauncher

HOST = HostId("host-0")
GPUS = tuple(GpuId(f"gpu-{i}") for i in range(4))
WAIT_S = 10.0


class GiveHalf:
    """A newcomer gets its largest size that is idle; else the first job that can gives half."""

    name = "give-half"

    def decide(self, snapshot: Snapshot) -> Plan:
        if not snapshot.hosts:
            return Plan()
        host = snapshot.hosts[0]
        for job in snapshot.queued:
            fits = [size for size in job.sizes if size <= host.idle]
            if fits:
                target = Target(job.id, fits[-1], host.id)
                return Plan((target,), "idle", about=job.id, options=(Option((target,)),), chosen=0)
            for other in snapshot.running:
                half = other.size // 2
                if not other.frozen and half in other.sizes:
                    target = Target(job.id, job.sizes[0], host.id)
                    return Plan((target, Target(other.id, half, host.id)), "half", about=job.id)
        for job in snapshot.running:
            larger = [size for size in job.sizes if job.size < size <= job.size + host.idle]
            if larger and not job.frozen and not snapshot.queued:
                return Plan((Target(job.id, larger[-1], host.id),), "grow", about=job.id)
        return Plan()


@dataclass
class Daemon(LiveDaemon):
    hub: SidecarHub
    launcher: FakeLauncher


async def start(
    path: Path,
    launcher: FakeLauncher,
    store: SqliteStore | None = None,
    limits: Limits | None = None,
) -> Daemon:
    store = store or SqliteStore(path / "store.db")
    await store.open()
    clock = WallClock()
    loop = Loop(store, Settings(GiveHalf(), limits=limits or Limits()), clock)
    hub = SidecarHub(loop.post, time.monotonic, clock.now_s)
    launcher.hub = hub
    for sidecar in launcher.running.values():
        sidecar.hub = hub
    settings = LaunchSettings("http://127.0.0.1:1", path / "work")
    effects = Effects(launcher, hub, Tokens(b"secret"), settings, loop.post)
    admission = Admission(lambda: loop.engine.state)
    control = Control(loop, admission, effects.log_folder, hub.observed, effects.trouble)
    await loop.start(effects)
    tasks = [
        asyncio.create_task(loop.run()),
        asyncio.create_task(effects.watch(lambda: loop.engine)),
    ]
    daemon = Daemon(loop, effects, control, tasks, hub, launcher)
    await loop.commit(ev.HostAdded(HOST, "V100", GPUS))
    return daemon


@contextlib.asynccontextmanager
async def running(path: Path) -> AsyncIterator[Daemon]:
    launcher = FakeLauncher()
    daemon = await start(path, launcher)
    try:
        yield daemon
    finally:
        await daemon.die()
        await launcher.close()


def spec(name: str, *sizes: int) -> JobSpec:
    return JobSpec(name, ("python", "train.py"), sizes)


async def records(path: Path) -> list[LogRecord]:
    store = SqliteStore(path / "store.db")
    await store.open()
    found = [record async for record in store.read(0)]
    await store.close()
    return found


async def hand_over(daemon: Daemon) -> tuple[JobId, JobId]:
    first = await daemon.control.submit(spec("first", 1, 2, 4))
    await daemon.until(lambda: daemon.state_of(first) == ("running", 4))
    second = await daemon.control.submit(spec("second", 2))
    await daemon.until(lambda: daemon.state_of(second) == ("running", 2))
    await daemon.until(lambda: daemon.state_of(first) == ("running", 2))
    return first, second


def test_a_newcomer_gets_gpus_and_gives_them_back_at_its_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as daemon:
            first, second = await hand_over(daemon)
            daemon.launcher.job(second).finish()
            await daemon.until(lambda: daemon.state_of(first) == ("running", 4))
            row = await daemon.control.store.job("second")
            assert row is not None
            assert row.state is JobState.COMPLETED
            kinds = [entry.kind for entry in await daemon.control.store.history(first)]
            assert kinds.index("shrink-asked") < kinds.index("grow-asked")
            decisions = await daemon.control.store.decisions(second)
            assert decisions[0].plan.reason_code == "half"
        assert len(daemon.launcher.launches) == 2

    asyncio.run(scenario())


def test_what_is_lost_with_a_container_is_counted_from_its_newest_report(tmp_path: Path) -> None:
    """Mere progress is in the log every ten seconds only."""

    async def scenario() -> None:
        async with running(tmp_path) as daemon:
            job = await daemon.control.submit(spec("first", 4))
            await daemon.until(lambda: daemon.state_of(job) == ("running", 4))
            sidecar = daemon.launcher.job(job)
            await daemon.until(lambda: sidecar.observed.progress.step >= 3)
            sidecar.over = True
            jobs = daemon.loop.engine.state.jobs
            await daemon.until(lambda: jobs[job].attempt == 2)
            assert jobs[job].steps_lost == sidecar.observed.progress.step

    asyncio.run(scenario())


def test_a_container_is_not_told_of_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    """Its self-check would find none of that name, and the job would fail for it."""

    async def scenario() -> None:
        async with running(tmp_path) as daemon:
            job = await daemon.control.submit(spec("first", 1, 2, 4))
            await daemon.until(lambda: daemon.state_of(job) == ("running", 4))
            assert daemon.launcher.job(job).spec.host_devices == GPUS
            await daemon.loop.commit(ev.GpusSeen(HOST, GPUS[:3]))
            await daemon.until(lambda: daemon.state_of(job) == ("running", 2))
            assert daemon.launcher.job(job).spec.host_devices == GPUS[:3]

    asyncio.run(scenario())


def test_the_log_of_a_live_run_gives_the_same_commands_byte_for_byte(tmp_path: Path) -> None:
    async def scenario() -> list[LogRecord]:
        async with running(tmp_path) as daemon:
            first, second = await hand_over(daemon)
            await daemon.control.cancel(second, "bob")
            await daemon.until(lambda: daemon.state_of(first) == ("running", 4))
        return await records(tmp_path)

    found = asyncio.run(scenario())
    assert len(found) > 10
    verify(found)
    assert sum(len(record.commands) for record in found) >= 6


def test_a_killed_controller_comes_back_and_no_container_is_started_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        launcher = FakeLauncher()
        daemon = await start(tmp_path, launcher)
        first, second = await hand_over(daemon)
        steps = launcher.job(first).observed.progress.step
        await daemon.die()
        daemon = await start(tmp_path, launcher)
        assert daemon.loop.engine.state.epoch == 2
        await daemon.until(lambda: not daemon.loop.engine.state.observing)
        assert daemon.state_of(first) == ("running", 2)
        assert daemon.state_of(second) == ("running", 2)
        await daemon.until(lambda: launcher.job(first).observed.progress.step > steps)
        assert len(launcher.launches) == 2
        await daemon.die()
        await launcher.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("records_before", "prepares"),
    [
        *((number, False) for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14)),
        *((number, True) for number in (2, 3, 4, 5, 6, 7, 8)),
    ],
)
def test_killed_after_any_append_the_hand_over_is_carried_through(
    tmp_path: Path, records_before: int, prepares: bool
) -> None:
    """Between append and effect: the effects of the last record never happen before the kill.
    ``prepares``: the donor's SideCar prepares a successor before it is asked."""

    async def scenario() -> None:
        launcher = FakeLauncher()
        launcher.prepares = prepares
        daemon = await start(tmp_path, launcher)
        first = await daemon.control.submit(spec("first", 1, 2, 4))
        await daemon.until(lambda: daemon.state_of(first) == ("running", 4))
        are_appended = daemon.without_effects_after(records_before)
        await daemon.control.submit(spec("second", 2))
        await daemon.die_after(are_appended)
        daemon = await start(tmp_path, launcher)
        second = next(j for j in daemon.loop.engine.state.jobs if j.startswith("second"))
        await daemon.until(lambda: daemon.state_of(second) == ("running", 2))
        await daemon.until(lambda: daemon.state_of(first) == ("running", 2))
        gpus = daemon.loop.engine.state.gpus.values()
        assert all(gpu.state is GpuState.IN_USE for gpu in gpus)
        kept = launcher.job(first).observed.devices
        assert set(launcher.job(first).asked) == ({kept} if prepares else set())
        await daemon.die()
        await launcher.close()

    asyncio.run(scenario())


def test_a_second_controller_on_the_log_is_fenced(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as daemon:
            found = [record async for record in daemon.loop.store.read(0)]
            daemon.loop.journal.seq -= (
                1  # as if another controller had appended what we were about to
            )
            with pytest.raises(Fenced, match="another controller"):
                await asyncio.wait_for(_next_append(daemon), WAIT_S)
            assert [r async for r in daemon.loop.store.read(0)] == found

    async def _next_append(daemon: Daemon) -> None:
        daemon.loop.post(ev.HostDrained(HOST, "x"))
        daemon.loop.journal.writer = "another"
        await daemon.tasks[0]

    asyncio.run(scenario())


class Moody(SqliteStore):
    """A store that can be made to fail, as a full disk does."""

    failing = False
    lose_reply = False

    async def append(self, record: LogRecord) -> None:
        if self.failing:
            raise StoreError("disk full")
        await super().append(record)
        if self.lose_reply:
            self.lose_reply = False
            raise StoreError("the reply was lost")


def test_while_the_store_fails_nothing_happens_and_afterwards_all_of_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        launcher = FakeLauncher()
        store = Moody(tmp_path / "store.db")
        daemon = await start(tmp_path, launcher, store)
        store.failing = True
        submitting = asyncio.create_task(daemon.control.submit(spec("first", 4)))
        await daemon.until(lambda: not daemon.control.ready()[0])
        assert "disk full" in daemon.control.ready()[1]
        assert launcher.launches == []
        assert not submitting.done()
        store.failing = False
        store.lose_reply = True
        first = await submitting
        await daemon.until(lambda: daemon.state_of(first) == ("running", 4))
        assert daemon.control.ready() == (True, "")
        assert len(launcher.launches) == 1
        await daemon.die()
        await launcher.close()

    asyncio.run(scenario())


def test_a_policy_that_fails_or_breaks_a_rule_changes_nothing(tmp_path: Path) -> None:
    class Wrong:
        name = "wrong"

        def decide(self, snapshot: Snapshot) -> Plan:
            if len(snapshot.queued) != 1:
                raise RuntimeError("a bug")
            return Plan((Target(snapshot.queued[0].id, 3, HOST),), "no such size")

    async def scenario() -> None:
        async with running(tmp_path) as daemon:
            daemon.loop.planner = TimedPlanner(Wrong())
            first = await daemon.control.submit(spec("first", 4))
            await daemon.control.drain(HOST, "ada")
            await daemon.control.submit(spec("second", 4))
            assert daemon.state_of(first) == ("submitted", 0)
        log = await records(tmp_path)
        verify(log)
        engine, planner, failures = Engine(), Planner(Wrong()), set()
        for record in log:
            if not any(plan.reason_code in set(FailureKind) for plan in record.plans):
                rounds.redo(engine, record)
                continue
            done = rounds.run(engine, planner, record.events, record.at_s)
            assert (done.plans, done.commands) == (record.plans, record.commands)
            failures |= {each.failure.kind for each in done.decisions if each.failure}
        assert failures == set(FailureKind)

    asyncio.run(scenario())


def test_a_job_moves_to_a_fuller_host(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as daemon:
            daemon.loop.planner = TimedPlanner(starts_first("Packs"))
            other, jobs = HostId("host-1"), daemon.loop.engine.state.jobs
            gpus = tuple(GpuId(f"other-{i}") for i in range(4))
            await daemon.loop.commit(ev.HostAdded(other, "V100", gpus))
            steps, ids = Length(LengthUnit.STEPS, 1e6), []
            for name, size in (("large", 3), ("middle", 2), ("small", 1)):
                ids.append(await daemon.control.submit(replace(spec(name, size), length=steps)))
                await daemon.until(lambda: daemon.state_of(ids[-1])[0] == "running")
            large, middle, small = ids
            assert [jobs[job].host for job in ids] == [HOST, other, HOST]
            daemon.launcher.job(large).finish()
            await daemon.until(lambda: jobs[small].host == other and jobs[small].attempt == 2)
            await daemon.until(lambda: daemon.state_of(small) == ("running", 1))
            assert (jobs[middle].host, jobs[small].steps_lost) == (other, 0)
            assert daemon.loop.engine.state.idle_gpus(HOST) == GPUS
        verify(await records(tmp_path))

    asyncio.run(scenario())


def test_names_of_live_jobs_are_refused_and_ended_jobs_cannot_be_cancelled(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as daemon:
            first = await daemon.control.submit(spec("first", 4))
            with pytest.raises(Refused, match=r"first.*not ended.*another name"):
                await daemon.control.submit(spec("first", 2))
            with pytest.raises(Refused, match="8"):
                await daemon.control.submit(spec("large", 8))
            await daemon.control.cancel("first", "ada")
            await daemon.until(lambda: daemon.state_of(first)[0] == "over")
            with pytest.raises(Conflict, match="cancelled"):
                await daemon.control.cancel(first, "ada")
            again = await daemon.control.submit(spec("first", 4))
            assert again != first

    asyncio.run(scenario())


def test_recovery_from_a_snapshot_gives_the_same_state_as_the_whole_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reshape_controller.live.journal.SNAPSHOT_EVERY", 4)

    async def scenario() -> None:
        async with running(tmp_path) as daemon:
            await hand_over(daemon)
        store = SqliteStore(tmp_path / "store.db")
        await store.open()
        found = await recover(store)
        everything = [record async for record in store.read(0)]
        await store.close()
        assert found.snapshot_seq > 0
        assert found.seq == everything[-1].seq
        assert found.digest == everything[-1].digest
        assert found.mismatches == ()
        verify(everything)

    asyncio.run(scenario())
