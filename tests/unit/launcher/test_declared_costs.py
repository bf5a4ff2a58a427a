"""Declared costs of containers: what is added, where, and what is not touched."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from reshape_launcher.declared_costs import ContainerCosts, DeclaredLauncher
from reshape_launcher.spec import (
    ContainerStatus,
    DeviceMode,
    LaunchError,
    LaunchSpec,
    OneHost,
    RecordRefused,
    ReleaseCheck,
)

SPEC = LaunchSpec(
    job="a",
    attempt=1,
    name="a",
    host="local",
    command=("true",),
    code="/code",
    checkpoints="/checkpoints",
    coordinator_url="http://127.0.0.1:1",
    epoch=1,
    device_mode=DeviceMode.SIMULATED,
)


class Inner:
    """A launcher without processes."""

    def __init__(self) -> None:
        self.running: dict[tuple[str, int], bool] = {}

    def no_gang(self) -> RecordRefused | None:
        return None

    async def launch(self, spec: LaunchSpec, token: str) -> None:
        self.running.setdefault((spec.job, spec.attempt), True)

    def refusals(self, spec: LaunchSpec) -> tuple[RecordRefused, ...]:
        return ()

    async def one_host(self, spec: LaunchSpec) -> OneHost | None:
        return None

    async def remove(
        self, job: str, attempt: int, grace_s: float, hosts: tuple[str, ...] = ()
    ) -> None:
        if (job, attempt) in self.running:
            self.running[job, attempt] = False

    async def containers(self) -> tuple[ContainerStatus, ...]:
        return tuple(
            ContainerStatus(job, attempt, running, None if running else 0)
            for (job, attempt), running in self.running.items()
        )

    async def check_release(
        self, job: str, attempt: int, generation: int, devices: tuple[str, ...], host: str = ""
    ) -> ReleaseCheck:
        return ReleaseCheck(not self.running.get((job, attempt), False))

    def log_path(self, job: str, attempt: int) -> str | None:
        return f"/logs/{job}/{attempt}"


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def slowed(start_s: float = 0.0, stop_s: float = 0.0) -> tuple[DeclaredLauncher, Inner, Clock]:
    inner, clock = Inner(), Clock()
    return (
        DeclaredLauncher(inner, ContainerCosts("assumed:test", start_s, stop_s), clock),
        inner,
        clock,
    )


def test_a_container_starts_the_declared_time_later() -> None:
    launcher, inner, _ = slowed(start_s=0.2)
    begin_s = time.monotonic()
    asyncio.run(launcher.launch(SPEC, "token"))
    assert time.monotonic() - begin_s >= 0.2
    assert inner.running == {("a", 1): True}


def test_a_container_that_is_there_already_waits_for_nothing() -> None:
    launcher, inner, _ = slowed(start_s=600.0)
    inner.running["a", 1] = True
    asyncio.run(asyncio.wait_for(launcher.launch(SPEC, "token"), 10.0))


def test_an_ended_container_counts_as_running_until_its_declared_stop_is_over() -> None:
    launcher, inner, clock = slowed(stop_s=9.0)
    asyncio.run(launcher.launch(SPEC, "token"))
    inner.running["a", 1] = False
    (first,) = asyncio.run(launcher.containers())
    clock.now_s += 8.9
    (last,) = asyncio.run(launcher.containers())
    assert first.running
    assert last.running
    assert last.exit_code is None
    assert "assumed:test" in last.reason
    clock.now_s += 0.2
    assert asyncio.run(launcher.containers()) == (ContainerStatus("a", 1, False, 0),)


def test_a_removal_takes_the_declared_stop_longer_and_a_second_one_does_not() -> None:
    inner = Inner()
    launcher = DeclaredLauncher(inner, ContainerCosts("assumed:test", 0.0, 0.3))
    asyncio.run(launcher.launch(SPEC, "token"))
    begin_s = time.monotonic()
    asyncio.run(launcher.remove("a", 1, 0.0))
    once_s = time.monotonic()
    asyncio.run(launcher.remove("a", 1, 0.0))
    assert once_s - begin_s >= 0.3
    assert time.monotonic() - once_s < 0.3


def test_a_container_that_ended_before_this_controller_began_is_gone_at_once() -> None:
    launcher, inner, _ = slowed(stop_s=600.0)
    inner.running["a", 1] = False
    (status,) = asyncio.run(launcher.containers())
    assert not status.running


def test_a_removal_calls_off_a_launch_that_still_waits() -> None:
    launcher, inner, _ = slowed(start_s=600.0)

    async def both() -> None:
        launch = asyncio.create_task(launcher.launch(SPEC, "token"))
        await asyncio.sleep(0.05)
        await launcher.remove("a", 1, 0.0)
        with pytest.raises(LaunchError, match="was cancelled"):
            await asyncio.wait_for(launch, 10.0)
        assert await launcher.containers() == ()

    asyncio.run(both())
    assert inner.running == {}


def test_a_launch_that_was_called_off_may_be_asked_for_again() -> None:
    launcher, inner, _ = slowed(start_s=0.05)
    asyncio.run(launcher.remove("a", 1, 0.0))
    asyncio.run(launcher.launch(replace(SPEC, attempt=1), "token"))
    assert inner.running == {("a", 1): True}


def test_a_release_of_gpus_and_the_logs_are_not_delayed() -> None:
    launcher, inner, _ = slowed(stop_s=600.0)
    asyncio.run(launcher.launch(SPEC, "token"))
    inner.running["a", 1] = False
    assert asyncio.run(launcher.check_release("a", 1, 1, ())).empty
    assert launcher.log_path("a", 1) == "/logs/a/1"


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_costs_are_seconds(seconds: float) -> None:
    with pytest.raises(ValueError, match="stop_s"):
        ContainerCosts("x", 0.0, seconds)
