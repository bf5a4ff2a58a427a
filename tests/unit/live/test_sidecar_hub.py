"""What SideCars say to a controller that was started again, stopped for long, or lost its log."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from functools import partial

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.model import JobId, Stage
from reshape_controller.live.clock import WallClock
from reshape_controller.live.sidecar_hub import (
    EVENT_BYTES_LEAST,
    LOG_BYTES_AT_ONCE,
    LOG_BYTES_PER_S,
    AheadOfLog,
    BehindItsJobs,
    Contradiction,
    SidecarHub,
)
from reshape_sidecar import codec
from reshape_sidecar.wire import Desired, GpuUse, Mode, Observed, Phase, Progress, Proof
from tests.support.world import World

NUMBERS = itertools.count(1000)
"""Numbers of reports, each above those of the world's SideCars."""


def tells(world: World, hub: SidecarHub, job: JobId, *, workers: int = 1) -> Desired:
    """Tell the SideCars of a job, through ``hub``, what the engine wants; return that."""
    desired = world.engine.desired(job)
    assert desired is not None
    hub.set_desired(desired, workers=workers)
    return desired


def everybody_reports(world: World, hub: SidecarHub) -> None:
    """Both workers of ``a`` say that they train, as they are told."""
    desired = tells(world, hub, JobId("a"), workers=2)
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


def test_workers_are_heard_after_the_logs_time_was_set_back() -> None:
    world = World().boot()
    world.running("a", 2, 2, workers=2)
    world.now_s, world.auto = 900_000.0, False
    for epoch, log_s in ((2, 900_000.0), (3, 1_000.0)):
        world.event(ev.ControllerStarted(epoch, "test", world.mechanism, world.limits))
        clock = WallClock(partial(float, log_s), lambda: 0.0)
        hub = SidecarHub(world.event, lambda: 0.0, clock.now_s, lambda: world.engine.state)
        everybody_reports(world, hub)
        assert not world.engine.state.observing, epoch
        assert world.job("a").stage is Stage.TRAINING


def test_a_sidecar_is_not_silent_while_the_controller_could_not_listen() -> None:
    world = World().boot()
    world.running("a", 2, 2)
    now_s, posted = [1000.0], list[ev.Event]()
    hub = SidecarHub(posted.append, lambda: now_s[0], lambda: now_s[0])
    tells(world, hub, JobId("a"))
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
    desired = tells(world, hub, job)
    assert hub.progress_at_s(job) is None
    seen = Observed("a", 1, desired.generation, 7, Phase.RUNNING, devices=desired.devices)
    for sequence, step, came_at_s in ((7, 1, 60.0), (8, 1, 60.0), (9, 2, 80.0)):
        log_s[0] += 10.0
        report = replace(seen, sequence=sequence, progress=Progress(step=step))
        asyncio.run(hub.exchange("a", 1, report, 0.0))
        assert hub.progress_at_s(job) == came_at_s


def test_a_job_that_reports_without_end_does_not_fill_the_log() -> None:
    world = World().boot()
    world.running("a", 2, 2)
    now_s, posted = [1000.0], list[ev.Event]()
    hub = SidecarHub(posted.append, lambda: now_s[0], lambda: now_s[0])
    desired = tells(world, hub, JobId("a"))
    seen = Observed("a", 1, desired.generation, 7, Phase.RUNNING, devices=desired.devices)
    for number in range(20 * 60):
        report = replace(seen, sequence=8 + number, error=f"{number} " + "x" * 60_000)
        asyncio.run(hub.exchange("a", 1, report, 0.0))
        now_s[0] += 0.05
    logged = sum(len(codec.dumps(event)) for event in posted)
    assert logged <= LOG_BYTES_AT_ONCE + 61 * LOG_BYTES_PER_S
    assert len(posted) > 10
    now_s[0] += 60.0
    last = replace(report, sequence=9999)
    asyncio.run(hub.exchange("a", 1, last, 0.0))
    assert posted[-1] == ev.SideCarReported(last), "the newest enters the log once there is room"


def test_a_job_that_changes_its_phase_without_end_does_not_keep_the_loop_busy() -> None:
    world = World().boot()
    world.running("a", 2, 2)
    now_s, posted = [1000.0], list[ev.Event]()
    hub = SidecarHub(posted.append, lambda: now_s[0], lambda: now_s[0])
    desired = tells(world, hub, JobId("a"))
    for number in range(20 * 600):
        phase = (Phase.RUNNING, Phase.SAVING)[number % 2]
        report = Observed("a", 1, desired.generation, number, phase)
        asyncio.run(hub.exchange("a", 1, report, 0.0))
        now_s[0] += 0.05
    at_once = LOG_BYTES_AT_ONCE / EVENT_BYTES_LEAST
    assert len(posted) <= at_once + 601 * LOG_BYTES_PER_S / EVENT_BYTES_LEAST


def test_an_honest_sidecar_is_always_heard_at_once() -> None:
    world = World().boot()
    world.running("a", 2, 2)
    now_s, posted = [1000.0], list[ev.Event]()
    hub = SidecarHub(posted.append, lambda: now_s[0], lambda: now_s[0])
    desired = tells(world, hub, JobId("a"))
    phases = (Phase.RUNNING, Phase.SAVING, Phase.STOPPING, Phase.STARTING)
    for number in range(4000):  # more than an hour, with a change in each second
        report = Observed("a", 1, desired.generation, number, phases[number % 4], error="e" * 2000)
        asyncio.run(hub.exchange("a", 1, report, 0.0))
        now_s[0] += 1.0
    assert len(posted) == 4000


def test_an_honest_sidecar_is_heard_at_once_beside_a_job_that_reports_without_end() -> None:
    world = World().boot()
    posted = list[ev.Event]()
    hub = SidecarHub(posted.append, lambda: 0.0, lambda: 0.0)
    for name in ("greedy", "honest"):
        world.running(name, 1, 1)
        tells(world, hub, JobId(name))
    for number in range(1000):
        report = Observed("greedy", 1, 1, number, Phase.RUNNING, error=f"{number}")
        asyncio.run(hub.exchange("greedy", 1, report, 0.0))
    assert len(posted) == LOG_BYTES_AT_ONCE / EVENT_BYTES_LEAST
    asyncio.run(hub.exchange("honest", 1, Observed("honest", 1, 1, 7, Phase.RUNNING), 0.0))
    assert isinstance(posted[-1], ev.SideCarReported)
    assert posted[-1].observed.job == "honest"


def test_an_honest_gang_of_many_gpus_is_always_heard_at_once() -> None:
    now_s, posted = [1000.0], list[ev.Event]()
    hub = SidecarHub(posted.append, lambda: now_s[0], lambda: now_s[0])
    hub.set_desired(Desired(1, "j", 1, 1, Mode.RUN), workers=8)
    uses = tuple(GpuUse(f"GPU-{number:032}", 10**10, 10**11, 0.97) for number in range(8))
    seen = Observed("j", 1, 1, 1, Phase.RUNNING, epoch=1, gpu_use=uses)
    for worker in range(1, 8):
        asyncio.run(hub.exchange("j", 1, replace(seen, worker=worker), 0.0))
    for number in range(1000):  # with a change in each second
        asyncio.run(hub.exchange("j", 1, replace(seen, sequence=number, error=f"{number}"), 0.0))
        now_s[0] += 1.0
    assert len(posted) == 1000


def restarted(**owners: str) -> tuple[World, SidecarHub, list[ev.Event]]:
    """A controller that has just started, with a job of each owner that has not reported yet."""
    world = World().boot(gpus=len(owners))
    for name, owner in owners.items():
        world.running(name, 1, 1, user=owner)
    world.auto = False
    world.event(ev.ControllerStarted(2, "test", world.mechanism, world.limits))
    posted = list[ev.Event]()
    hub = SidecarHub(posted.append, lambda: 0.0, lambda: 0.0, lambda: world.engine.state)
    for name in owners:
        tells(world, hub, JobId(name))
    return world, hub, posted


def says(world: World, hub: SidecarHub, name: str, epochs: int = 0, generations: int = 0) -> None:
    """The SideCar of a job reports, from beyond the log's end by so many epochs or generations."""
    desired = world.engine.desired(JobId(name))
    assert desired is not None
    epoch, generation = desired.epoch + epochs, desired.generation + generations
    number = next(NUMBERS)
    seen = Observed(
        name, 1, generation, number, Phase.RUNNING, epoch=epoch, devices=desired.devices
    )
    asyncio.run(hub.exchange(name, 1, seen, 0.0))


def stops(hub: SidecarHub) -> str:
    """Why the hub has the controller stop; empty if it does not."""
    try:
        asyncio.run(asyncio.wait_for(hub.behind(), 0.01))
    except BehindItsJobs as error:
        return str(error)
    except TimeoutError:
        return ""


@pytest.mark.parametrize(("epochs", "generations"), [(1, 0), (0, 1), (10**6, 10**6)])
def test_one_job_from_beyond_the_logs_end_is_set_apart_and_stops_nothing(
    epochs: int, generations: int
) -> None:
    world, hub, posted = restarted(a="ada", b="bob")
    for _ in range(3):
        with pytest.raises(AheadOfLog, match="the store is an older copy, or the report is not"):
            says(world, hub, "a", epochs, generations)
    assert {type(event) for event in posted} == {ev.SideCarContradicted}
    assert stops(hub) == ""
    world.event(posted[0])
    says(world, hub, "a")
    says(world, hub, "b")
    assert [
        event.observed.job for event in posted[3:] if isinstance(event, ev.SideCarReported)
    ] == ["b"], "what is said for the first is not believed any more"


@pytest.mark.parametrize(
    "owners",
    [{"a": "ada", "b": "bob", "c": "ada"}, {"a": "", "b": "", "c": ""}],
    ids=["two users", "one user's daemon"],
)
def test_several_jobs_that_agree_before_the_first_grant_stop_the_controller(
    owners: dict[str, str],
) -> None:
    world, hub, posted = restarted(**owners)
    with pytest.raises(AheadOfLog):
        says(world, hub, "a", generations=1)
    world.event(posted.pop())
    with pytest.raises(BehindItsJobs, match="2 jobs say so: a, b"):
        says(world, hub, "b", epochs=1)
    assert "the store is an older copy" in stops(hub)
    assert posted == []
    assert world.engine.state.observing, "nothing is granted until it has stopped"


def test_two_jobs_of_one_user_stop_no_controller_that_has_jobs_of_others() -> None:
    world, hub, posted = restarted(a="ada", b="ada")
    world.submit("waits", 1, user="bob")
    for name in ("a", "b"):
        with pytest.raises(AheadOfLog):
            says(world, hub, name, epochs=10**6)
    assert stops(hub) == ""
    assert [event.job for event in posted if isinstance(event, ev.SideCarContradicted)] == [
        "a",
        "b",
    ]


def test_after_all_have_answered_no_log_can_be_older_and_nothing_stops_it() -> None:
    world, hub, posted = restarted(a="ada", b="bob")
    for name in ("a", "b"):
        says(world, hub, name)
        world.event(posted[-1])
    assert not world.engine.state.observing
    for name in ("a", "b"):
        with pytest.raises(AheadOfLog):
            says(world, hub, name, epochs=1)
    assert stops(hub) == ""


def test_reports_of_another_sender_with_its_token_are_noticed() -> None:
    world, hub, posted = restarted(a="")
    desired = world.engine.desired(JobId("a"))
    assert desired is not None
    seen = Observed("a", 1, desired.generation, 10**18, Phase.RUNNING, epoch=desired.epoch)
    asyncio.run(hub.exchange("a", 1, seen, 0.0))
    asyncio.run(hub.exchange("a", 1, replace(seen, sequence=10**18 - 5), 0.0))  # late: no lie
    assert [type(event) for event in posted] == [ev.SideCarReported]
    with pytest.raises(Contradiction, match="two programs report with its token"):
        asyncio.run(hub.exchange("a", 1, replace(seen, sequence=5), 0.0))
    assert isinstance(posted[-1], ev.SideCarContradicted)


def test_a_new_verdict_is_posted_at_once_although_progress_alone_waits() -> None:
    world = World().boot()
    world.running("a", 2, 2)
    posted = list[ev.Event]()
    hub = SidecarHub(posted.append, lambda: 0.0, lambda: 0.0)
    desired = tells(world, hub, JobId("a"))
    verdicts = ("exact", "exact", "unknown", "unknown")
    for sequence, verdict in enumerate(verdicts, start=1):
        seen = Observed(
            "a", 1, desired.generation, sequence, Phase.RUNNING, epoch=desired.epoch,
            devices=desired.devices, progress=Progress(step=sequence, trajectory=verdict),
        )  # fmt: skip
        asyncio.run(hub.exchange("a", 1, seen, 0.0))
    reports = [event.observed for event in posted if isinstance(event, ev.SideCarReported)]
    assert [report.progress.trajectory for report in reports] == ["exact", "unknown"]


def test_a_proof_is_posted_at_once_although_progress_alone_waits() -> None:
    world = World().boot()
    world.running("a", 2, 2)
    posted = list[ev.Event]()
    hub = SidecarHub(posted.append, lambda: 0.0, lambda: 0.0)
    desired = tells(world, hub, JobId("a"))
    shown = Proof("differs", 900, 4, 2, "loss 0.86 instead of 0.77")
    for sequence, proof in enumerate((None, None, shown, shown), start=1):
        seen = Observed(
            "a", 1, desired.generation, sequence, Phase.RUNNING, epoch=desired.epoch,
            devices=desired.devices, progress=Progress(step=sequence, proof=proof),
        )  # fmt: skip
        asyncio.run(hub.exchange("a", 1, seen, 0.0))
    reports = [event.observed for event in posted if isinstance(event, ev.SideCarReported)]
    assert [report.progress.proof for report in reports] == [None, shown]


def test_a_start_that_works_is_no_event_and_one_that_is_silent_is_one_each_ten_seconds() -> None:
    async def events(silences: list[float]) -> int:
        now_s, posted = [0.0], list[ev.Event]()
        hub = SidecarHub(posted.append, lambda: now_s[0], lambda: now_s[0])
        hub.set_desired(Desired(1, "j", 1, 1, Mode.RUN))
        for number, silent_s in enumerate(silences):
            now_s[0] = 2.0 * number
            seen = Observed("j", 1, 1, number + 1, Phase.STARTING, epoch=1, silent_s=silent_s)
            await hub.exchange("j", 1, seen, 0.0)
        return len(posted)

    assert asyncio.run(events([0.0] * 100)) == 1
    assert asyncio.run(events([5.0 * (number * 2 // 5) for number in range(100)])) == 20
