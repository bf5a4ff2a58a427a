"""What SideCars say to a controller that was started again, stopped for long, or lost its log."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.model import JobId, Stage
from reshape_controller.live.clock import WallClock
from reshape_controller.live.sidecar_hub import BehindItsJobs, SidecarHub
from reshape_sidecar.wire import Observed, Phase, Progress
from tests.support.world import World


def everybody_reports(world: World, hub: SidecarHub) -> None:
    """Both workers of ``a`` say that they train, as they are told."""
    desired = world.engine.desired(JobId("a"))
    assert desired is not None
    hub.set_desired(desired, workers=2)
    for worker in range(2):
        devices = desired.devices[worker : worker + 1]
        seen = Observed(
            "a", 1, desired.generation, 1, Phase.RUNNING, epoch=desired.epoch, worker=worker,
            devices=devices, pid=100 + worker,
        )  # fmt: skip
        asyncio.run(hub.exchange("a", 1, seen, 0.0))


def test_workers_are_heard_after_a_restart_although_the_machines_clock_went_back() -> None:
    world = World().boot()
    world.running("a", 2, 2, workers=2)
    wall_s, world.now_s, world.auto = [10_000.0], 10_000.0, False
    for epoch in (2, 3):
        world.event(ev.ControllerStarted(epoch, "test", world.mechanism, world.limits))
        assert world.engine.state.observing
        clock = WallClock(lambda: wall_s[0], lambda: 0.0)
        clock.not_before(world.engine.state.now_s)  # as the loop does when it starts
        everybody_reports(world, SidecarHub(world.event, lambda: 0.0, clock.now_s))
        assert not world.engine.state.observing, epoch
        assert world.job("a").stage is Stage.TRAINING
        wall_s[0] -= 3600.0
        world.now_s += 1.0


def test_a_sidecar_is_not_silent_while_the_controller_could_not_listen() -> None:
    world = World().boot()
    world.running("a", 2, 2)
    now_s, posted = [1000.0], list[ev.Event]()
    hub = SidecarHub(posted.append, lambda: now_s[0], lambda: now_s[0])
    desired = world.engine.desired(JobId("a"))
    assert desired is not None
    hub.set_desired(desired)
    now_s[0] += 3600.0  # the process was stopped for an hour
    hub.check_silence(30.0)
    assert posted == []
    for _ in range(29):
        now_s[0] += 1.0
        hub.check_silence(30.0)
    assert posted == []
    now_s[0] += 2.0
    hub.check_silence(30.0)
    assert posted == [ev.SideCarFellSilent(JobId("a"), 1)]


def test_a_progress_keeps_the_time_at_which_it_was_first_reported() -> None:
    world = World().boot()
    world.running("a", 2, 2)
    log_s, job = [50.0], JobId("a")
    hub = SidecarHub(lambda event: None, lambda: 0.0, lambda: log_s[0])
    desired = world.engine.desired(job)
    assert desired is not None
    hub.set_desired(desired)
    assert hub.progress_at_s(job) is None
    seen = Observed("a", 1, desired.generation, 7, Phase.RUNNING, devices=desired.devices)
    for sequence, step, came_at_s in ((7, 1, 60.0), (8, 1, 60.0), (9, 2, 80.0)):
        log_s[0] += 10.0
        report = replace(seen, sequence=sequence, progress=Progress(step=step))
        asyncio.run(hub.exchange("a", 1, report, 0.0))
        assert hub.progress_at_s(job) == came_at_s


@pytest.mark.parametrize(("epochs", "generations"), [(1, 0), (0, 1)])
def test_a_report_from_beyond_the_logs_end_is_not_believed_and_stops_the_controller(
    epochs: int, generations: int
) -> None:
    world = World().boot()
    world.running("a", 2, 2)
    posted = list[ev.Event]()
    hub = SidecarHub(posted.append, lambda: 0.0, lambda: 0.0)
    desired = world.engine.desired(JobId("a"))
    assert desired is not None
    hub.set_desired(desired)

    def says(epoch: int, generation: int) -> None:
        seen = Observed("a", 1, generation, 1, Phase.RUNNING, epoch=epoch, devices=desired.devices)
        asyncio.run(hub.exchange("a", 1, seen, 0.0))

    with pytest.raises(BehindItsJobs, match="the store is an older copy"):
        says(desired.epoch + epochs, desired.generation + generations)
    assert posted == []
    with pytest.raises(BehindItsJobs, match="job a "):
        asyncio.run(asyncio.wait_for(hub.behind(), 1.0))
    says(desired.epoch, desired.generation)
    assert [type(event) for event in posted] == [ev.SideCarReported]


def test_a_new_verdict_is_posted_at_once_although_progress_alone_waits() -> None:
    world = World().boot()
    world.running("a", 2, 2)
    posted = list[ev.Event]()
    hub = SidecarHub(posted.append, lambda: 0.0, lambda: 0.0)
    desired = world.engine.desired(JobId("a"))
    assert desired is not None
    hub.set_desired(desired)
    verdicts = ("exact", "exact", "unknown", "unknown")
    for sequence, verdict in enumerate(verdicts, start=1):
        seen = Observed(
            "a", 1, desired.generation, sequence, Phase.RUNNING, epoch=desired.epoch,
            devices=desired.devices, progress=Progress(step=sequence, trajectory=verdict),
        )  # fmt: skip
        asyncio.run(hub.exchange("a", 1, seen, 0.0))
    reports = [event.observed for event in posted if isinstance(event, ev.SideCarReported)]
    assert [report.progress.trajectory for report in reports] == ["exact", "unknown"]
