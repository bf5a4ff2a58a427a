"""The controller's machine runs out of descriptors, of room, or of a working disk: no job fails."""

from __future__ import annotations

import asyncio
import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.limits import Limits
from reshape_controller.core.model import GpuState
from reshape_controller.live import own_faults
from reshape_controller.live.own_faults import OwnFaults, own_fault
from reshape_controller.store.sqlite.store import SqliteStore
from reshape_launcher.spec import ClusterUnseen, LaunchError, LaunchSpec, ReleaseCheck
from tests.integration.test_live_loop import Daemon, spec, start
from tests.support.live_fakes import FakeLauncher
from tests.support.store_bed import read_all

FAULTS = (errno.EMFILE, errno.ENOSPC, errno.EIO)


class Exhausted(FakeLauncher):
    """A launcher on a machine whose faults can be turned on."""

    def __init__(self) -> None:
        super().__init__()
        self.fault: int | None = None
        self.tries = 0

        self.unseen = False
        """Whether its cluster does not list its containers."""

    def _meet_fault(self) -> None:
        if self.unseen:
            self.tries += 1
            raise ClusterUnseen("pods cannot be listed: too many requests")
        if self.fault is not None:
            self.tries += 1
            raise OSError(self.fault, os.strerror(self.fault))

    async def launch(self, spec: LaunchSpec, token: str) -> None:
        try:
            self._meet_fault()
        except OSError as error:
            raise LaunchError(f"cannot be started: {error}", retryable=True) from error
        await super().launch(spec, token)

    async def check_release(
        self, job: str, attempt: int, generation: int, devices: tuple[str, ...], host: str = ""
    ) -> ReleaseCheck:
        self._meet_fault()
        return await super().check_release(job, attempt, generation, devices, host)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Effects are tried again soon, and deadlines are shorter than the faults last."""
    monkeypatch.setattr(own_faults, "AGAIN_S", 0.05)
    monkeypatch.setattr(own_faults, "MOVE_S", 0.4)


async def fault_lasts(launcher: Exhausted) -> None:
    """Wait for longer than any deadline of ``SHORT``."""
    await asyncio.sleep(3 * SHORT.verify_s)
    assert launcher.tries > 3


SHORT = replace(Limits(), early_init_s=0.6, verify_s=0.6, retry_backoff_s=0.1)


@pytest.mark.parametrize("number", FAULTS)
def test_a_launch_waits_until_the_machine_can_do_it_and_no_failure_is_counted(
    tmp_path: Path, number: int
) -> None:
    async def scenario() -> None:
        launcher = Exhausted()
        launcher.fault = number
        daemon = await start(tmp_path, launcher, limits=SHORT)
        first = await daemon.control.submit(spec("first", 4))
        await fault_lasts(launcher)
        job = daemon.loop.engine.state.jobs[first]
        assert (job.failures, job.attempt) == (0, 1)
        assert os.strerror(number) in daemon.effects.own_fault
        launcher.fault = None
        await daemon.until(lambda: daemon.state_of(first) == ("running", 4))
        assert daemon.loop.engine.state.jobs[first].failures == 0
        assert daemon.effects.own_fault == ""
        await over(daemon)
        assert await kinds(tmp_path, ev.LaunchFailed) == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("number", FAULTS)
def test_a_release_that_cannot_be_checked_now_quarantines_no_gpu(
    tmp_path: Path, number: int
) -> None:
    async def scenario() -> None:
        launcher = Exhausted()
        daemon = await start(tmp_path, launcher, limits=SHORT)
        first = await daemon.control.submit(spec("first", 4))
        await daemon.until(lambda: daemon.state_of(first) == ("running", 4))
        launcher.fault = number
        launcher.job(first).finish()
        await daemon.until(lambda: launcher.tries > 0)
        await fault_lasts(launcher)
        gpus = daemon.loop.engine.state.gpus
        assert GpuState.QUARANTINED not in {gpu.state for gpu in gpus.values()}
        launcher.fault = None
        await daemon.until(lambda: all(g.state is GpuState.IDLE for g in gpus.values()))
        await over(daemon)
        assert await kinds(tmp_path, ev.ReleaseNotEmpty) == 0

    asyncio.run(scenario())


def test_a_release_waits_while_the_cluster_lists_no_pods(tmp_path: Path) -> None:
    async def scenario() -> None:
        launcher = Exhausted()
        daemon = await start(tmp_path, launcher, limits=SHORT)
        first = await daemon.control.submit(spec("first", 4))
        await daemon.until(lambda: daemon.state_of(first) == ("running", 4))
        launcher.unseen = True
        launcher.job(first).finish()
        await daemon.until(lambda: launcher.tries > 0)
        await fault_lasts(launcher)
        gpus = daemon.loop.engine.state.gpus
        assert GpuState.QUARANTINED not in {gpu.state for gpu in gpus.values()}
        assert "pods cannot be listed: too many requests" in daemon.effects.own_fault
        launcher.unseen = False
        await daemon.until(lambda: all(g.state is GpuState.IDLE for g in gpus.values()))
        assert daemon.effects.own_fault == ""
        await over(daemon)
        assert await kinds(tmp_path, ev.ReleaseNotEmpty) == 0

    asyncio.run(scenario())


def test_a_job_that_is_cancelled_while_its_launch_waits_is_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        launcher = Exhausted()
        launcher.fault = errno.ENOSPC
        daemon = await start(tmp_path, launcher, limits=SHORT)
        first = await daemon.control.submit(spec("first", 4))
        await daemon.until(lambda: launcher.tries > 2)
        await daemon.control.cancel(first, "ada")
        await daemon.until(lambda: daemon.state_of(first)[0] == "over")
        assert daemon.effects.own_fault == ""
        await over(daemon)

    asyncio.run(scenario())


def test_only_faults_of_the_machine_are_its_own() -> None:
    assert own_fault(OSError(errno.ENOENT, "gone")) is None
    assert own_fault(LaunchError("no such image")) is None
    try:
        try:
            raise OSError(errno.EMFILE, "too many open files")
        except OSError as error:
            raise LaunchError("cannot be started") from error
    except LaunchError as error:
        found = own_fault(error)
    assert found is not None
    assert found.errno == errno.EMFILE


def test_an_error_that_is_not_the_machines_is_raised_at_once() -> None:
    async def refuses() -> None:
        raise LaunchError("no such image")

    posted: list[object] = []
    with pytest.raises(LaunchError):
        asyncio.run(OwnFaults(posted.append).ride_out("launch", refuses))
    assert posted == []


async def over(daemon: Daemon) -> None:
    await daemon.die()
    await daemon.launcher.close()


async def kinds(path: Path, kind: type) -> int:
    """How many events of a kind the log has."""
    store = SqliteStore(path / "store.db")
    await store.open()
    try:
        events = [event for record in await read_all(store) for event in record.events]
    finally:
        await store.close()
    return sum(isinstance(event, kind) for event in events)
