"""Sentences of the engine that people read twice, or that were false."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.model import JobId
from reshape_controller.http.render import job_view
from reshape_controller.scheduling.legal_moves import with_fixed_jobs
from reshape_controller.scheduling.only_option import only_option
from reshape_controller.store.protocol import JobRow
from reshape_sidecar.wire import Saves
from tests.support.clusters import Cluster
from tests.support.container import Knobs
from tests.support.world import World

A, B = JobId("a"), JobId("b")
PULL_ERROR = "its image cannot be pulled\nErrImagePull\nno such host: registry.example"


def texts(world: World, job: JobId) -> list[str]:
    return [entry.text for entry in world.history if entry.job == job]


def test_a_job_that_has_completed_keeps_its_reason_if_its_sidecar_falls_silent_as_it_ends() -> None:
    world = World().boot()
    world.running("a", 2, 2)
    world.container("a").reachable = False
    world.finish("a")
    reason = world.job("a").reason
    assert world.job("a").stage.value == "ending"
    world.event(ev.SideCarFellSilent(A, 1))
    assert world.job("a").reason == reason == "training finished"
    assert "its SideCar does not report; its container is ending" in texts(world, A)
    assert not [text for text in texts(world, A) if "left running" in text]


def test_a_job_that_trains_is_said_to_be_left_running() -> None:
    world = World().boot()
    world.running("a", 2, 2)
    world.event(ev.SideCarFellSilent(A, 1))
    assert "its SideCar does not report; training is left running" in texts(world, A)


def test_the_error_of_a_container_is_in_the_history_once() -> None:
    world = World().boot()
    world.running("a", 4, 2, 4)
    world.submit("b", 2)
    world.auto = False
    world.plan(("b", 2), ("a", 2))
    world.event(ev.ContainerGone(B, 1, None, PULL_ERROR))
    assert [text for text in texts(world, B) if "ErrImagePull" in text] == [PULL_ERROR]
    kinds = [entry.kind for entry in world.history if entry.job == B][-3:]
    assert kinds == ["container-gone", "hand-over-ended", "failure"]
    assert world.job("b").reason == PULL_ERROR
    assert world.job("a").hand_over is None


def test_so_is_the_error_of_a_launch() -> None:
    world = World().boot()
    world.submit("b", 2)
    world.auto = False
    world.plan(("b", 2))
    world.event(ev.LaunchFailed(B, 1, PULL_ERROR, retryable=True))
    assert [text for text in texts(world, B) if "ErrImagePull" in text] == [PULL_ERROR]
    assert world.job("b").reason == PULL_ERROR


def test_the_end_of_a_container_that_is_no_failure_has_its_reason() -> None:
    world = World().boot()
    world.running("a", 2, 2)
    world.event(ev.ContainerGone(A, 1, 0, "its pod was evicted"))
    (gone,) = world.entries("container-gone")
    assert gone.text == "its pod was evicted"


def test_a_job_that_starts_is_not_said_to_be_unable_to_save() -> None:
    cannot = "it cannot save its steps, and may_restart is false"
    cluster = Cluster().waits("new").runs("starts", 2, fixed_because=cannot, trains=False)
    plan = only_option(
        (), "waits-nothing-fits", "All jobs end in 25 min (predicted).", JobId("new")
    )
    assert with_fixed_jobs(plan, cluster.snapshot().running).text == plan.text
    cluster.runs("ro", 1, fixed_because=cannot)
    found = with_fixed_jobs(plan, cluster.snapshot().running).text
    assert found == f"All jobs end in 25 min (predicted); ro is not reshaped: {cannot}"


@pytest.mark.parametrize(("hangs", "told"), [(True, False), (False, True)])
def test_that_a_program_cannot_save_is_told_only_once_it_trains(hangs: bool, told: bool) -> None:
    world = World().boot()
    world.new_containers[A] = Knobs(program=Saves.NEVER, hangs=hangs)
    world.submit("a", 2)
    world.plan(("a", 2))
    job = replace(world.job("a"), saves=Saves.NEVER)
    row = JobRow(job.id, "a", "ada", job.state, 1, 0.0, job)
    assert job.stage.value == ("starting" if hangs else "training")
    assert bool(job_view(row).fixed_because) is told
