"""Launchers that fail, events that the engine cannot take, clocks that jump: the daemon goes on."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core import transitions
from reshape_controller.core.engine import Engine, Step
from reshape_controller.core.knowledge import Curve
from reshape_controller.core.limits import Limits
from reshape_controller.core.machines import Host
from reshape_controller.core.model import GpuState, HostId, JobId, Stage
from reshape_controller.core.record import LogRecord
from reshape_controller.core.transitions import InvalidTransition
from reshape_controller.live import control as control_module
from reshape_controller.live import effects as effects_module
from reshape_controller.live import inbox
from reshape_controller.live import leadership as leadership_module
from reshape_controller.live import loop as loop_module
from reshape_controller.live.admission import Admission, Refused
from reshape_controller.live.clock import WallClock
from reshape_controller.live.control import NotReady
from reshape_controller.live.journal import Fenced
from reshape_controller.live.leadership import Leadership
from reshape_controller.live.loop import CannotTake, Loop, Settings
from reshape_controller.live.recovery import recover
from reshape_controller.store.protocol import Changes, StoreError
from reshape_controller.store.sqlite.store import SqliteStore
from reshape_launcher.leases import Lease, StoredLease
from reshape_launcher.spec import ContainerStatus, LaunchSpec, ReleaseCheck
from reshape_sidecar.wire import Observed, Phase
from tests.integration.test_live_loop import (
    HOST,
    GiveHalf,
    records,
    running,
    spec,
    start,
)
from tests.support.live_fakes import ONE_PERSON, FakeLauncher


class Faulty(FakeLauncher):
    """A launcher whose answers can be made to fail or wait."""

    def __init__(self) -> None:
        super().__init__()
        self.blind = False
        self.forgets = False
        self.checks_that_fail = 0
        self.may_launch = asyncio.Event()
        self.may_launch.set()
        self.removed: list[tuple[str, int]] = []

    async def launch(self, spec: LaunchSpec, token: str) -> None:
        await self.may_launch.wait()
        await super().launch(spec, token)

    async def remove(
        self, job: str, attempt: int, grace_s: float, hosts: tuple[str, ...] = ()
    ) -> None:
        await super().remove(job, attempt, grace_s, hosts)
        self.removed.append((job, attempt))

    async def containers(self) -> tuple[ContainerStatus, ...]:
        if self.blind:
            raise OSError(5, "Input/output error")
        return () if self.forgets else await super().containers()

    async def check_release(
        self, job: str, attempt: int, generation: int, devices: tuple[str, ...], host: str = ""
    ) -> ReleaseCheck:
        if self.checks_that_fail:
            self.checks_that_fail -= 1
            raise OSError(24, "Too many open files")
        return await super().check_release(job, attempt, generation, devices, host)


def test_sidecars_are_missed_also_while_the_launcher_cannot_say_what_runs(tmp_path: Path) -> None:
    async def scenario() -> None:
        launcher = Faulty()
        daemon = await start(tmp_path, launcher, limits=Limits(silent_s=1.0))
        first = await daemon.control.submit(spec("first", 4))
        await daemon.until(lambda: daemon.state_of(first) == ("running", 4))
        launcher.blind = True
        for sidecar in launcher.running.values():
            assert sidecar.task is not None
            sidecar.task.cancel()
        await daemon.until(lambda: not daemon.loop.engine.state.jobs[first].reachable)
        assert daemon.state_of(first) == ("running", 4), "training is not touched"
        await daemon.die()
        await launcher.close()

    asyncio.run(scenario())


def test_a_container_that_never_would_come_up_is_not_launched_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        launcher = FakeLauncher()
        launcher.nowhere = True
        daemon = await start(tmp_path, launcher)
        first = await daemon.control.submit(spec("first", 4))
        await daemon.until(lambda: daemon.state_of(first)[0] == "over")
        assert len(launcher.launches) == 1, "the record allows three more"
        gpus = daemon.loop.engine.state.gpus
        await daemon.until(lambda: all(gpus[gpu].state is GpuState.IDLE for gpu in gpus))
        await daemon.die()
        await launcher.close()

    asyncio.run(scenario())


def test_a_release_check_that_fails_is_tried_again_and_no_gpu_is_quarantined(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        launcher = Faulty()
        daemon = await start(tmp_path, launcher)
        first = await daemon.control.submit(spec("first", 4))
        await daemon.until(lambda: daemon.state_of(first) == ("running", 4))
        launcher.checks_that_fail = 3
        launcher.job(first).finish()
        gpus = daemon.loop.engine.state.gpus
        await daemon.until(lambda: all(gpus[gpu].state is GpuState.IDLE for gpu in gpus))
        assert launcher.checks_that_fail == 0
        await daemon.die()
        await launcher.close()

    asyncio.run(scenario())


def test_a_container_that_is_being_launched_is_removed_after_its_launch(tmp_path: Path) -> None:
    async def scenario() -> None:
        launcher = Faulty()
        launcher.may_launch.clear()
        daemon = await start(tmp_path, launcher)
        first = await daemon.control.submit(spec("first", 4))
        await daemon.until(lambda: daemon.loop.engine.state.jobs[first].stage is Stage.LAUNCHING)
        await daemon.control.cancel(first, "ada")
        await asyncio.sleep(0.1)
        launcher.may_launch.set()
        await daemon.until(lambda: len(launcher.launches) == 1)
        await daemon.until(lambda: daemon.state_of(first)[0] == "over")
        assert launcher.removed == [(first, 1)]
        assert all(sidecar.over for sidecar in launcher.running.values()), "it would live for ever"
        await daemon.die()
        await launcher.close()

    asyncio.run(scenario())


def test_a_container_that_is_not_listed_is_removed_before_it_counts_as_gone(tmp_path: Path) -> None:
    async def scenario() -> None:
        launcher = Faulty()
        daemon = await start(tmp_path, launcher)
        first = await daemon.control.submit(spec("first", 4))
        await daemon.until(lambda: daemon.state_of(first) == ("running", 4))
        launcher.forgets = True
        await daemon.until(lambda: (first, 1) in launcher.removed)
        await daemon.until(lambda: daemon.loop.engine.state.jobs[first].failures == 1)
        await daemon.die()
        await launcher.close()

    asyncio.run(scenario())


class Slow(SqliteStore):
    """A store that takes its time for each append, or shows nothing."""

    append_s = 0.0
    shows = True

    async def append(self, record: LogRecord) -> None:
        await asyncio.sleep(self.append_s)
        await super().append(record)

    async def project(self, changes: Changes) -> None:
        if not self.shows:
            raise StoreError("no room")
        await super().project(changes)


def test_a_store_that_is_slower_than_every_deadline_fails_no_job_and_quarantines_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait for the effect of a command begins with the append that releases it."""
    monkeypatch.setattr(loop_module, "HELD_UP_S", 0.1)
    limits = Limits(early_init_s=0.3, first_step_s=0.3, verify_s=0.3, stop_s=0.3, end_s=0.3)

    async def scenario() -> None:
        launcher = FakeLauncher()
        store = Slow(tmp_path / "store.db")
        daemon = await start(tmp_path, launcher, store, limits)
        store.append_s = 0.8
        first = await daemon.control.submit(spec("first", 4))
        await daemon.until(lambda: daemon.state_of(first) == ("running", 4))
        launcher.job(first).finish()
        gpus = daemon.loop.engine.state.gpus
        await daemon.until(lambda: all(gpus[gpu].state is GpuState.IDLE for gpu in gpus))
        kinds = {entry.kind for entry in await store.history(None)}
        assert "controller-held-up" in kinds
        assert kinds.isdisjoint({"deadline", "failure", "gpu-quarantined"})
        assert len(launcher.launches) == 1
        await daemon.die()
        await launcher.close()

    asyncio.run(scenario())


def test_a_job_that_is_in_the_log_and_not_shown_yet_is_not_said_to_be_unknown(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        launcher = FakeLauncher()
        store = Slow(tmp_path / "store.db")
        daemon = await start(tmp_path, launcher, store)
        store.shows = False
        with pytest.raises(NotReady, match="the request is in the log"):
            await daemon.control.submit(spec("first", 4))
        with pytest.raises(Refused, match="'first' is the name of a job"):
            await daemon.control.submit(spec("first", 4))
        store.shows = True
        (first,) = daemon.loop.engine.state.jobs
        await daemon.until(lambda: daemon.state_of(first) == ("running", 4))
        await daemon.control.cancel(first, "ann")
        await daemon.die()
        await launcher.close()

    asyncio.run(scenario())


def test_a_name_is_taken_for_as_long_as_its_job_may_still_be_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_module, "COMMIT_WAIT_S", 0.2)

    async def scenario() -> None:
        launcher = FakeLauncher()
        store = Slow(tmp_path / "store.db")
        daemon = await start(tmp_path, launcher, store)
        store.append_s = 1.0
        daemon.loop.post(ev.SideCarFellSilent(JobId("another"), 1))
        await asyncio.sleep(0.1)  # the store has that one, and nothing has been seen of the next
        with pytest.raises(NotReady, match="it may still accept it"):
            await daemon.control.submit(spec("first", 4))
        with pytest.raises(Refused, match="'first' is the name of a job"):
            await daemon.control.submit(spec("first", 4))
        store.append_s = 0.0
        await daemon.until(lambda: len(daemon.loop.engine.state.jobs) == 1)
        await daemon.die()
        await launcher.close()

    asyncio.run(scenario())


def test_a_deadline_is_not_over_before_all_that_was_said_by_then_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "BATCH_EVENTS_MAX", 1)

    async def scenario() -> None:
        launcher = Faulty()
        launcher.may_launch.clear()
        daemon = await start(tmp_path, launcher, limits=Limits(early_init_s=1.0))
        first = await daemon.control.submit(spec("first", 4))
        await daemon.until(lambda: daemon.loop.engine.state.jobs[first].stage is Stage.LAUNCHING)
        deadline = daemon.loop.engine.state.jobs[first].deadline
        assert deadline is not None
        while daemon.loop._clock.now_s() < deadline.at_s - 0.2:
            await asyncio.sleep(0.01)
        for _ in range(10):
            daemon.loop.post(ev.SideCarFellSilent(JobId("another"), 1))
        up = Observed(first, 1, 1, 1, Phase.INITIALIZED)
        daemon.loop.post(ev.SideCarReported(up))
        time.sleep(0.4)  # nothing of it is taken in before the deadline is over
        await daemon.until(
            lambda: daemon.loop.engine.state.jobs[first].stage is not Stage.LAUNCHING
        )
        assert daemon.loop.engine.state.jobs[first].failures == 0
        await daemon.die()
        await launcher.close()

    asyncio.run(scenario())


class Elsewhere:
    """A lease that another candidate has."""

    def read(self) -> StoredLease:
        return StoredLease(Lease("another", 7), "v1")

    def write(self, lease: Lease, previous: StoredLease) -> StoredLease | None:
        raise AssertionError("nobody may take it")


def test_a_leader_that_lost_its_lease_stops_at_anothers_record_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has nothing to append itself: a controller that hung, and went on."""
    monkeypatch.setattr(leadership_module, "LOG_EVERY_S", 0.02)

    async def scenario() -> None:
        launcher = FakeLauncher()
        daemon = await start(tmp_path, launcher)
        watching = Leadership(Elsewhere(), "ours").watch_log(daemon.loop.journal)
        task = asyncio.create_task(watching)
        await asyncio.sleep(0.3)
        assert not task.done(), "without another's record the lease is of no consequence"
        successor = Loop(daemon.loop.store, Settings(GiveHalf()), WallClock())
        await successor.start(daemon.effects)
        with pytest.raises(Fenced, match=r"epoch 2.*another controller took over"):
            await asyncio.wait_for(task, 30.0)
        await daemon.die()
        await launcher.close()

    asyncio.run(scenario())


def test_a_container_of_an_earlier_attempt_that_still_runs_is_ended(tmp_path: Path) -> None:
    async def scenario() -> None:
        launcher = Faulty()
        daemon = await start(tmp_path, launcher)
        first = await daemon.control.submit(spec("first", 4))
        await daemon.until(lambda: daemon.state_of(first) == ("running", 4))
        earlier = launcher.job(first)
        await daemon.loop.commit(ev.HostCleaned(HOST, "said an operator, who was wrong"))
        await daemon.until(lambda: daemon.state_of(first) == ("running", 4))
        await daemon.until(lambda: earlier.over)
        assert daemon.loop.engine.state.jobs[first].attempt == 2
        assert launcher.removed == [(first, 1)]
        await daemon.die()
        await launcher.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_controller_that_was_stopped_in_order_starts_from_a_snapshot(
    tmp_path: Path, clean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reshape_controller.live.journal.SNAPSHOT_AT_END_LEAST", 2)

    async def scenario() -> None:
        async with running(tmp_path) as daemon:
            await daemon.control.submit(spec("first", 4))
            if clean:
                daemon.loop.stop()
                await daemon.tasks[0]
        store = SqliteStore(tmp_path / "store.db")
        await store.open()
        found = await recover(store)
        assert (found.snapshot_seq == found.seq) == clean
        await store.close()

    asyncio.run(scenario())


def fails_at(monkeypatch: pytest.MonkeyPatch, is_bad: Callable[[ev.Event], bool]) -> None:
    """The engine takes in a part of some events, and then fails."""
    step = Engine.step

    def defect(engine: Engine, event: ev.Event, now_s: float) -> Step:
        if is_bad(event):
            engine.state.put_host(Host(HostId("half"), "V100", ()))
            raise ZeroDivisionError("a defect")
        return step(engine, event, now_s)

    monkeypatch.setattr(Engine, "step", defect)


def test_an_event_that_the_engine_cannot_take_fails_its_sender_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_at(monkeypatch, lambda event: event == ev.PinRequested(JobId("x"), 1))

    async def scenario() -> None:
        async with running(tmp_path) as daemon:
            bad = asyncio.create_task(
                daemon.loop.commit(ev.PinRequested(JobId("y"), 1), ev.PinRequested(JobId("x"), 1))
            )
            good = asyncio.create_task(daemon.loop.commit(ev.HostUndrained(HOST, "op")))
            with pytest.raises(CannotTake, match="failed on PinRequested"):
                await bad
            assert await good
            assert HostId("half") not in daemon.loop.engine.state.hosts
            logged = [event async for each in daemon.loop.store.read(0) for event in each.events]
            assert not any(isinstance(each, ev.PinRequested) for each in logged)
            assert daemon.loop.problem == ""

    asyncio.run(scenario())


def test_a_report_at_which_the_engine_fails_sets_its_attempt_apart_and_all_else_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_bad(event: ev.Event) -> bool:
        is_odd = isinstance(event, ev.SideCarReported) and event.observed.error == "odd"
        return is_odd or isinstance(event, ev.CurveFitted)

    fails_at(monkeypatch, is_bad)

    async def scenario() -> None:
        async with running(tmp_path) as daemon:
            bad = await daemon.control.submit(spec("bad", 2))
            good = await daemon.control.submit(spec("good", 2))
            both = [("running", 2)] * 2
            await daemon.until(lambda: [daemon.state_of(job) for job in (bad, good)] == both)
            seen = daemon.loop.engine.state.jobs[bad].observed
            assert seen is not None
            daemon.loop.post(ev.CurveFitted(good, "default", Curve(0.1, 1.0, 0.0)))
            for number in range(3):
                odd = replace(seen, sequence=seen.sequence + 10**6 + number, error="odd")
                daemon.loop.post(ev.SideCarReported(odd))
            assert await daemon.loop.commit(ev.HostUndrained(HOST, "op"))
            state = daemon.loop.engine.state
            assert "ZeroDivisionError('a defect')" in state.jobs[bad].set_apart
            assert len(state.jobs[bad].gpus) == 2, "its GPUs are its own"
            assert HostId("half") not in state.hosts
            daemon.launcher.job(good).finish()
            await daemon.until(lambda: daemon.state_of(good)[0] == "over")
            third = await daemon.control.submit(spec("third", 2))
            await daemon.until(lambda: daemon.state_of(third) == ("running", 2))
            assert daemon.loop.problem == ""

    asyncio.run(scenario())


class Told(FakeLauncher):
    """A launcher that finds the words of a hostile program in the files of an attempt."""

    words = "half: \ud800 " + "x" * (1 << 20)

    async def containers(self) -> tuple[ContainerStatus, ...]:
        return tuple(replace(each, reason=self.words) for each in await super().containers())


def test_no_word_in_the_files_of_an_attempt_hides_the_ends_of_containers(tmp_path: Path) -> None:
    async def scenario() -> None:
        launcher = Told()
        daemon = await start(tmp_path, launcher)
        first = await daemon.control.submit(spec("first", 2))
        await daemon.until(lambda: daemon.state_of(first) == ("running", 2))
        job = daemon.loop.engine.state.jobs[first]
        await daemon.until(lambda: daemon.effects.trouble(job).startswith("half: ? x"))
        assert len(daemon.effects.trouble(job)) == effects_module.REASON_CHARS_MAX
        launcher.job(first).over = True
        await daemon.until(lambda: daemon.loop.engine.state.jobs[first].attempt == 2)
        await daemon.die()
        await launcher.close()
        texts = [str(each) for each in await records(tmp_path)]
        assert sum("half: ? x" in each for each in texts) == 1
        assert max(map(len, texts)) < 10 * effects_module.REASON_CHARS_MAX

    asyncio.run(scenario())


def test_half_a_character_in_an_event_is_replaced_and_the_rest_counts(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as daemon:
            assert await daemon.loop.commit(ev.HostDrained(HOST, "eve \ud800"))
        (found,) = [
            each for one in await records(tmp_path) for each in one.events if "eve" in str(each)
        ]
        assert found == ev.HostDrained(HOST, "eve ?")

    asyncio.run(scenario())


def test_an_illegal_change_of_a_job_stops_the_controller_before_the_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as daemon:
            seq = daemon.loop.journal.seq
            monkeypatch.setattr(transitions, "LEGAL", frozenset())
            with pytest.raises(NotReady, match="stopped before it could answer"):
                await daemon.control.submit(spec("first", 4))
            with pytest.raises(InvalidTransition, match="none must not become launching"):
                await daemon.tasks[0]
            assert daemon.loop.journal.seq == seq
            assert "must not become" in daemon.loop.problem

    asyncio.run(scenario())


def test_time_goes_on_whatever_the_machines_clock_does() -> None:
    wall, steady = [1000.0], [50.0]
    clock = WallClock(lambda: wall[0], lambda: steady[0])
    assert clock.now_s() == 1000.0
    for jump_s in (-7200.0, 0.0, 86_400.0):
        before_s = clock.now_s()
        wall[0] += jump_s + 10.0
        steady[0] += 10.0
        passed_s = clock.now_s() - before_s
        assert 9.0 <= passed_s <= 11.0, jump_s


def test_the_clock_finds_back_to_the_machines_little_by_little() -> None:
    wall, steady = [1000.0], [50.0]
    clock = WallClock(lambda: wall[0], lambda: steady[0])
    wall[0] += 600.0
    for _ in range(7000):
        wall[0] += 1.0
        steady[0] += 1.0
        clock.now_s()
    assert clock.now_s() == pytest.approx(wall[0])


def test_a_clock_begins_where_the_log_ended_if_that_is_later() -> None:
    wall, steady = [1000.0], [50.0]
    clock = WallClock(lambda: wall[0], lambda: steady[0])
    clock.not_before(5000.0)
    steady[0] += 10.0
    assert clock.now_s() >= 5009.0, "a deadline of the log would wait until the clock caught up"
    assert effects_module.RELEASE_POLL_S < effects_module.RELEASE_ROUND_S


def test_an_inserted_record_that_the_engine_cannot_take_is_refused_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails_at(
        monkeypatch, lambda each: isinstance(each, ev.JobSubmitted) and each.spec.name == "bad"
    )
    record = '{"name": "bad", "command": ["python", "x.py"], "optional_gpus": [1], "epochs": 1}'

    async def scenario() -> None:
        async with running(tmp_path) as daemon:
            admission = Admission(lambda: daemon.loop.engine.state)
            watch = asyncio.create_task(
                inbox.watch(daemon.loop, admission, daemon.control, ONE_PERSON)
            )
            with closing(sqlite3.connect(tmp_path / "store.db")) as other, other:
                for body in (record.replace("bad", "good"), record, record.replace("bad", "also")):
                    other.execute("INSERT INTO inbox (kind, body) VALUES ('submit', ?)", (body,))
            while await daemon.loop.store.requests(1):
                await asyncio.sleep(0.01)
            watch.cancel()
            names = [job.spec.name for job in daemon.loop.engine.state.jobs.values()]
            assert names == ["good", "also"]
            assert daemon.loop.problem == ""

    asyncio.run(scenario())
