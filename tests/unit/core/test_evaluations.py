"""Evaluations in the engine: of every job that evaluates, bounded, and shown to policies."""

from __future__ import annotations

import dataclasses

from reshape_controller.core import events as ev
from reshape_controller.core.engine import Engine
from reshape_controller.core.model import JobId
from reshape_controller.core.plan import JobView
from reshape_controller.core.state import State
from reshape_controller.core.target import EVALUATIONS_MAX, evaluations
from reshape_controller.http.render import job_view
from reshape_controller.store.protocol import JobRow
from reshape_sidecar import codec
from reshape_sidecar.wire import Evaluation
from tests.support.world import World


def report(world: World, name: str, *found: Evaluation, steps: int = 10) -> None:
    """A report of a job that trains, after some more steps."""
    c = world.container(name)
    c.step, c.sequence = c.step + steps, c.sequence + 1
    seen = c.observed()
    progress = dataclasses.replace(seen.progress, evaluations=found)
    world.event(ev.SideCarReported(dataclasses.replace(seen, progress=progress)))


def view(engine: Engine, name: str) -> JobView:
    return next(job for job in engine.snapshot().running if job.id == name)


def two_jobs() -> World:
    world = World().boot(4)
    for name in ("a", "b"):
        world.running(name, 2, 1, 2)
    return world


def loss(step: int, value: float = 0.5) -> Evaluation:
    return Evaluation("val_loss", step, value)


def test_a_policy_sees_the_evaluations_of_each_job_without_a_target_too() -> None:
    world = two_jobs()
    report(world, "a", loss(10))
    report(world, "a", loss(10), loss(20, 0.4))
    report(world, "b", Evaluation("f1", 10, 0.9))
    assert view(world.engine, "a").evaluations == (loss(10), loss(20, 0.4))
    assert view(world.engine, "b").evaluations == (Evaluation("f1", 10, 0.9),)


def test_a_policy_sees_an_evaluation_that_is_all_the_news_of_a_report() -> None:
    world = two_jobs()
    world.container("a").seconds_per_step = 1.0  # so that it has a trend
    report(world, "a", loss(10))
    assert view(world.engine, "a").evaluations == (loss(10),)
    report(world, "a", loss(10), Evaluation("f1", 10, 0.9), steps=0)
    assert view(world.engine, "a").evaluations == (Evaluation("f1", 10, 0.9), loss(10))


def test_evaluations_are_kept_once_and_survive_a_dump() -> None:
    world = two_jobs()
    report(world, "a", loss(10))
    report(world, "a", loss(10))
    dumped = world.engine.state.dump()
    assert sum(part.count("val_loss") for part in dumped) == 1
    assert view(Engine(State.load(dumped)), "a") == view(world.engine, "a")
    assert world.replay() == world.log


def test_a_later_report_of_the_same_evaluations_changes_no_view() -> None:
    world = two_jobs()
    report(world, "a", loss(10))
    before = view(world.engine, "a").evaluations
    report(world, "a", loss(10))
    assert view(world.engine, "a").evaluations is before


def test_a_process_that_starts_again_from_a_checkpoint_evaluates_again() -> None:
    known = evaluations((), (loss(10), loss(20), loss(30), Evaluation("f1", 30, 0.2)))
    after = evaluations(known, (loss(20, 0.1),))
    assert after == (loss(10), loss(20, 0.1), Evaluation("f1", 30, 0.2))


def test_the_newest_stay_and_a_report_without_news_is_no_change() -> None:
    known: tuple[Evaluation, ...] = ()
    for step in range(200):
        known = evaluations(known, tuple(loss(s) for s in range(max(0, step - 15), step + 1)))
    assert [each.step for each in known] == list(range(200 - EVALUATIONS_MAX, 200))
    assert evaluations(known, (loss(199),)) is known


def test_users_see_them_in_the_view_of_the_job() -> None:
    world = two_jobs()
    report(world, "a", loss(10))
    job = world.job("a")
    row = JobRow(JobId("a"), "a", "", job.state, 1, 0.0, job)
    assert job_view(row).evaluations == (loss(10),)
    assert "evaluations" in codec.dumps(job_view(row))
