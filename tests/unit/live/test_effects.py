"""Effects of commands: a command that is repeated while its effect is under way starts no other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from reshape_controller.core.commands import CheckRelease, SetDesired
from reshape_controller.core.engine import Engine
from reshape_controller.core.events import (
    CancelRequested,
    ContainerGone,
    Event,
    ReleaseVerified,
)
from reshape_controller.core.limits import LOCAL
from reshape_controller.core.model import FieldError, GpuId, JobId, JobSpec, Mechanism, Spans, Stage
from reshape_controller.live.effects import WATCH_AGAIN_S, WATCH_EVERY_S, Effects, watch_pause_s
from reshape_controller.live.launching import LaunchSettings
from reshape_controller.live.sidecar_hub import SidecarHub
from reshape_controller.live.tokens import Tokens
from reshape_launcher.spec import (
    ContainerStatus,
    Launcher,
    RecordRefused,
    ReleaseCheck,
    one_host_only,
)
from reshape_sidecar.wire import Desired, Mode, Observed, Phase
from tests.support.live_fakes import FakeLauncher
from tests.support.world import World

CHECK = CheckRelease(1, JobId("a"), 1, 2, (GpuId("gpu-0"),))


class ReleasingLauncher:
    """Answers every release check with an empty GPU, and counts the checks."""

    def __init__(self) -> None:
        self.checks: list[tuple[str, int, int, tuple[str, ...]]] = []

    async def check_release(
        self, job: str, attempt: int, generation: int, gpus: tuple[str, ...], host: str = ""
    ) -> ReleaseCheck:
        self.checks.append((job, attempt, generation, gpus))
        await asyncio.sleep(0)
        return ReleaseCheck(True)


def carry_out(batches: Sequence[tuple[CheckRelease, ...]]) -> tuple[ReleasingLauncher, list[Event]]:
    """Carry out commands batch by batch; each batch's effects end before the next begins."""

    async def run() -> tuple[ReleasingLauncher, list[Event]]:
        posted: list[Event] = []
        launcher = ReleasingLauncher()
        hub = SidecarHub(posted.append, lambda: 0.0, lambda: 0.0)
        settings = LaunchSettings("http://127.0.0.1:1", Path("work"))
        effects = Effects(cast(Launcher, launcher), hub, Tokens(b"secret"), settings, posted.append)
        for commands in batches:
            effects.carry_out(Engine(), commands)
            for _ in range(5):
                await asyncio.sleep(0)
        await effects.stop()
        return launcher, posted

    return asyncio.run(run())


def test_a_repeated_release_check_starts_no_second_one_while_the_first_is_under_way() -> None:
    launcher, posted = carry_out([(CHECK, CHECK)])
    assert launcher.checks == [("a", 1, 2, ("gpu-0",))]
    assert posted == [ReleaseVerified(JobId("a"), 1, 2, (GpuId("gpu-0"),))]


def test_release_checks_of_other_generations_gpus_and_attempts_run_side_by_side() -> None:
    others = (
        CheckRelease(1, JobId("a"), 1, 3, (GpuId("gpu-0"),)),
        CheckRelease(1, JobId("a"), 1, 2, (GpuId("gpu-1"),)),
        CheckRelease(1, JobId("a"), 2, 2, (GpuId("gpu-0"),)),
        CheckRelease(1, JobId("b"), 1, 2, (GpuId("gpu-0"),)),
    )
    launcher, posted = carry_out([(CHECK, *others)])
    assert len(launcher.checks) == len(posted) == 5


def test_a_release_check_that_has_ended_may_be_repeated() -> None:
    launcher, _ = carry_out([(CHECK,), (CHECK,)])
    assert len(launcher.checks) == 2


def test_containers_are_looked_at_often_while_one_ends_whose_gpus_a_job_waits_for() -> None:
    world = World(mechanism=Mechanism.TERMINATE).boot(4)
    world.running("a", 4, 1, 2, 4)
    assert watch_pause_s(world.engine.state) == WATCH_EVERY_S
    world.auto = False
    world.submit("b", 2)
    world.plan(("b", 2), ("a", 2))
    assert watch_pause_s(world.engine.state) == WATCH_EVERY_S, "a saves; no container ends yet"
    desired = world.engine.desired(JobId("a"))
    assert world.container("a").converge(desired), "a leaves its container"
    world.report(world.container("a"))
    assert world.job("a").stage is Stage.ENDING
    assert watch_pause_s(world.engine.state) == WATCH_AGAIN_S
    world.auto = True
    world.kill_container("a")
    assert world.job("b").stage is Stage.TRAINING
    assert watch_pause_s(world.engine.state) == WATCH_EVERY_S


def test_a_container_that_ends_for_no_other_job_is_looked_at_every_second() -> None:
    world = World().boot(4)
    world.running("a", 4, 4)
    world.auto = False
    world.event(CancelRequested(JobId("a"), "ann"))
    assert world.job("a").stage is Stage.ENDING
    assert watch_pause_s(world.engine.state) == WATCH_EVERY_S


def told_at_the_end(world: World, name: str) -> Desired | None:
    """What the SideCar of a job is told, once the loop has carried out its end."""
    hub = SidecarHub(lambda event: None, lambda: 0.0, lambda: 0.0)
    settings = LaunchSettings("http://127.0.0.1:1", Path("work"))
    launcher = cast(Launcher, FakeLauncher())
    effects = Effects(launcher, hub, Tokens(b"secret"), settings, lambda event: None)
    desired = world.engine.desired(JobId(name))
    assert desired is not None
    effects.carry_out(world.engine, (SetDesired(desired),))

    async def answer() -> Desired | None:
        seen = Observed(name, desired.attempt, 0, 1, Phase.CRASHED, epoch=1)
        return await hub.exchange(name, desired.attempt, seen, 0.0)

    return asyncio.run(answer())


def test_the_container_of_a_job_fails_after_its_last_try_only() -> None:
    world = World().boot(4)
    world.running("a", 4, 4, retries=1)
    world.crash("a")
    told = told_at_the_end(world, "a")
    assert told is not None
    assert (told.mode, told.failed) == (Mode.RUN, False), "it has a retry left"
    world.auto = False
    world.crash("a")
    told = told_at_the_end(world, "a")
    assert told is not None
    assert (told.mode, told.failed) == (Mode.EXIT, True)


def test_the_container_of_a_cancelled_job_has_not_failed() -> None:
    world = World().boot(4)
    world.running("a", 4, 4)
    world.auto = False
    world.event(CancelRequested(JobId("a"), "ann"))
    told = told_at_the_end(world, "a")
    assert told is not None
    assert (told.mode, told.failed) == (Mode.EXIT, False)


@pytest.mark.parametrize(("ending", "code"), [(True, 0), (False, None)])
def test_a_pod_that_is_gone_has_ended_in_order_if_its_sidecar_told_of_it(
    ending: bool, code: int | None
) -> None:
    posted: list[Event] = []
    hub = SidecarHub(posted.append, lambda: 0.0, lambda: 0.0)
    settings = LaunchSettings("http://127.0.0.1:1", Path("work"))
    launcher = cast(Launcher, FakeLauncher())
    effects = Effects(launcher, hub, Tokens(b"secret"), settings, posted.append)
    hub.set_desired(Desired(1, "a", 2, 3, Mode.RUN))
    last = Observed("a", 2, 3, 1, Phase.RUNNING, epoch=1, ending=ending)
    asyncio.run(hub.exchange("a", 2, last, 0.0))
    for attempt in (1, 2):
        effects._post_end(ContainerStatus("a", attempt, False, None, "its pod is gone"))
    gone = [event for event in posted if isinstance(event, ContainerGone)]
    assert [(event.attempt, event.exit_code) for event in gone] == [(1, None), (2, code)]


class OnOneHost(FakeLauncher):
    """Places no gang."""

    def no_gang(self) -> RecordRefused | None:
        return one_host_only("this machine is one")


def test_a_record_that_may_span_is_refused_where_the_launcher_places_no_gang() -> None:
    spec = JobSpec("a", ("x",), (2,), workers=2)
    assert refusals(OnOneHost(), spec) == ()
    (error,) = refusals(OnOneHost(), replace(spec, span=Spans.ANY))
    assert (error.path, error.message) == ("span", "this machine is one")
    assert "leave span out" in error.hint
    assert refusals(FakeLauncher(), replace(spec, span=Spans.ANY)) == ()


def refusals(launcher: FakeLauncher, spec: JobSpec) -> tuple[FieldError, ...]:
    hub = SidecarHub(lambda event: None, lambda: 0.0, lambda: 0.0)
    settings = LaunchSettings("http://127.0.0.1:1", Path("work"))
    effects = Effects(
        cast(Launcher, launcher), hub, Tokens(b"secret"), settings, lambda event: None
    )
    return effects.refusals(spec)


def test_a_container_is_looked_at_every_second_beside_the_hand_over_of_other_gpus() -> None:
    world = World().boot(8)
    world.running("a", 4, 1, 2, 4)
    world.running("c", 4, 4)
    world.auto = False
    world.event(CancelRequested(JobId("c"), "ann"))
    world.submit("b", 2)
    world.plan(("b", 2), ("a", 2))
    assert (world.job("c").stage, world.job("b").hand_over is None) == (Stage.ENDING, False)
    assert watch_pause_s(world.engine.state) == WATCH_EVERY_S


def test_a_container_that_does_not_end_in_time_is_looked_at_every_second() -> None:
    world = World(mechanism=Mechanism.TERMINATE).boot(4)
    world.running("a", 4, 1, 2, 4)
    world.auto = False
    world.submit("b", 2)
    world.plan(("b", 2), ("a", 2))
    world.container("a").converge(world.engine.desired(JobId("a")))
    world.report(world.container("a"))
    assert watch_pause_s(world.engine.state) == WATCH_AGAIN_S
    world.effects = False  # its removal gets no answer
    world.wait(LOCAL.end_s + LOCAL.kill_after_s + 1.0)
    assert world.job("a").stage is Stage.ENDING
    assert watch_pause_s(world.engine.state) == WATCH_EVERY_S
