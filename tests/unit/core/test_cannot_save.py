"""A program that cannot save: no plan stops it, and what a person's request loses is counted."""

from __future__ import annotations

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.errors import PlanRejected
from reshape_controller.core.model import DeadlineKind, JobId, JobState, Stage
from reshape_controller.core.stop_table import Program
from reshape_controller.policies import make_policy
from reshape_controller.scheduling.predictor import Predictor
from reshape_sidecar.wire import Saves
from tests.support.world import HOST, World

A, B = JobId("a"), JobId("b")
POLICIES = ("adaptive", "paper", "optimus", "default")
WAIT_S = 60.0


def world(program: Saves = Saves.NEVER, *, size: int = 4, steps: int = 484, **more: bool) -> World:
    """Four GPUs; job ``a`` trains on ``size`` of them and has made some steps."""
    found = World().boot(4)
    found.new_containers[A] = {"program": program}
    found.running("a", size, 1, 2, 4, **more)
    found.train("a", steps)
    return found


@pytest.mark.parametrize("program", [Saves.NEVER, Saves.SIGTERM])
def test_a_program_that_cannot_save_is_no_donor_and_does_not_grow(program: Saves) -> None:
    found = world(program, size=2)
    found.submit("b", 2)
    for targets in ([("b", 2), ("a", 1)], [("a", 4)]):
        with pytest.raises(PlanRejected, match="may_restart is false"):
            found.plan(*targets)
    view = found.engine.snapshot().running[0]
    assert (view.sizes, view.growable, view.loses) == ((2,), False, True)
    assert found.job("a").program is Program.UNSAVED


@pytest.mark.parametrize("name", POLICIES)
def test_no_policy_stops_a_program_that_cannot_save(name: str) -> None:
    found = world()
    found.submit("b", 2)
    for _ in range(4):
        found.apply(make_policy(name).decide(found.engine.snapshot()))
        found.wait(100.0)
    assert (len(found.job("a").gpus), found.job("a").steps_lost) == (4, 0)


def test_a_donor_found_to_save_nothing_before_it_is_asked_keeps_its_gpus() -> None:
    found = world(Saves.BOUNDARY)
    found.submit("b", 2)
    found.new_containers[B] = {"slow_init": True}
    found.plan(("b", 2), ("a", 2))
    found.container("a").program = Saves.NEVER
    found.train("a", 1)
    found.container("b").slow_init = False
    found.settle()
    assert (len(found.job("a").gpus), found.job("a").donation) == (4, None)
    assert "a keeps its GPUs: it cannot save its steps" in found.job("b").reason


def test_with_may_restart_it_is_a_donor_and_its_loss_is_counted_and_foretold() -> None:
    found = world(may_restart=True)
    found.submit("b", 2)
    found.plan(("b", 2), ("a", 2))
    a = found.job("a")
    assert (len(a.gpus), a.steps_lost, a.failures) == (2, 484, 0)
    asked = [text for text in found.texts if text.startswith("shrink: 4 to 2 GPUs")]
    assert asked == ["shrink: 4 to 2 GPUs; it cannot save, so 484 steps will be lost"]


def test_the_loss_is_part_of_the_price_of_an_option() -> None:
    prices = []
    for program in (Saves.BOUNDARY, Saves.NEVER):
        snapshot = world(program, may_restart=True).engine.snapshot()
        (view,) = snapshot.running
        prices.append(Predictor(snapshot).reshaped_by_size_s(view, view.gpu_type)[2])
        step_s = Predictor(snapshot).step_s(view, view.gpu_type, 2)
    assert prices[1] - prices[0] == pytest.approx(484 * step_s)


def test_a_pause_waits_and_says_what_it_will_lose() -> None:
    found = world()
    found.event(ev.HaltRequested(A, "ann"))
    a = found.job("a")
    assert (a.stage, a.deadline is not None and a.deadline.kind) == (
        Stage.TRAINING,
        DeadlineKind.UNSAVED,
    )
    assert a.reason == ("stops in 60 s (paused by ann): it cannot save, so 484 steps will be lost")
    found.wait(WAIT_S - 1)
    assert found.job("a").stage is Stage.TRAINING
    found.wait(2)
    a = found.job("a")
    assert (a.state, a.steps_lost, a.failures) == (JobState.HALTED, 484, 0)
    assert found.gpu_states() == ["idle"] * 4


def test_a_drain_waits_too_and_the_job_is_queued() -> None:
    found = world()
    found.event(ev.HostDrained(HOST, "ann"))
    assert "stops in 60 s (host-0 is drained)" in found.job("a").reason
    found.wait(WAIT_S + 1)
    a = found.job("a")
    assert (a.state, a.stage, a.steps_lost, a.failures) == (JobState.SUBMITTED, Stage.NONE, 484, 0)


@pytest.mark.parametrize(
    ("request_", "withdrawal"),
    [
        (ev.HaltRequested(A, "ann"), ev.ResumeRequested(A, "ann")),
        (ev.HostDrained(HOST, "ann"), ev.HostUndrained(HOST, "ann")),
    ],
    ids=["pause", "drain"],
)
def test_a_request_that_is_called_off_in_the_wait_loses_nothing(
    request_: ev.Event, withdrawal: ev.Event
) -> None:
    found = world()
    found.event(request_)
    found.wait(WAIT_S / 2)
    found.event(withdrawal)
    a = found.job("a")
    assert (a.deadline, a.reason) == (None, "")
    found.wait(10 * WAIT_S)
    assert (found.job("a").stage, found.job("a").steps_lost) == (Stage.TRAINING, 0)


def test_the_wait_outlives_the_controller() -> None:
    found = world()
    found.event(ev.HaltRequested(A, "ann"))
    found.wait(WAIT_S / 2)
    found.event(ev.ControllerStarted(2, "test", found.mechanism, found.limits))
    found.report(found.container("a"))
    found.wait(WAIT_S - 1)
    assert found.job("a").stage is Stage.TRAINING
    found.wait(2)
    assert found.job("a").state is JobState.HALTED


def test_a_cancel_acts_at_once_and_a_lost_host_counts_the_steps() -> None:
    found = world()
    found.event(ev.HostFellSilent(HOST, "no answer"))
    assert found.job("a").steps_lost == 484
    other = world()
    other.event(ev.CancelRequested(A, "ann"))
    assert other.job("a").state is JobState.CANCELLED
    assert other.gpu_states() == ["idle"] * 4


@pytest.mark.parametrize("program", [Saves.BOUNDARY, Saves.NEVER])
def test_who_saves_or_may_restart_is_paused_at_once(program: Saves) -> None:
    found = world(program, may_restart=program is Saves.NEVER)
    found.event(ev.HaltRequested(A, "ann"))
    assert found.job("a").state is JobState.HALTED


@pytest.mark.parametrize(
    ("goes_on", "program"), [(True, Program.SIGTERM), (False, Program.UNSAVED)]
)
def test_a_handler_of_its_own_counts_once_a_resume_has_gone_on_from_its_step(
    goes_on: bool, program: Program
) -> None:
    found = world(Saves.SIGTERM)
    found.wait(100.0)
    found.train("a", 1)
    found.event(ev.HaltRequested(A, "ann"))
    found.wait(WAIT_S + 1)
    assert found.job("a").state is JobState.HALTED
    found.event(ev.ResumeRequested(A, "ann"))
    found.auto = False
    found.plan(("a", 4))
    found.container("a").step = 485 if goes_on else 1
    found.settle()
    a = found.job("a")
    assert (a.stage, a.program) == (Stage.TRAINING, program)


@pytest.mark.parametrize("breaks", ["controller", "SideCar"])
def test_a_step_that_is_heard_of_after_a_break_proves_no_resume(breaks: str) -> None:
    found = world(Saves.SIGTERM)
    found.wait(100.0)
    found.train("a", 1)
    found.event(ev.HaltRequested(A, "ann"))
    found.wait(WAIT_S + 1)
    found.event(ev.ResumeRequested(A, "ann"))
    found.auto = False
    found.plan(("a", 4))
    found.settle_until("a", Stage.STARTING)
    if breaks == "controller":
        found.event(ev.ControllerStarted(2, "test", found.mechanism, found.limits))
    else:
        found.event(ev.SideCarFellSilent(A, found.job("a").attempt))
    found.container("a").step = 900  # it has begun at step 0 and trained on meanwhile
    found.settle()
    a = found.job("a")
    assert (a.stage, a.program) == (Stage.TRAINING, Program.UNSAVED)


def test_a_sidecar_of_the_release_before_shrinks_as_before() -> None:
    found = World().boot(4)
    found.running("a", 4, 2, 4)
    found.train("a", 10)
    found.submit("b", 2)
    found.plan(("b", 2), ("a", 2))
    assert (len(found.job("a").gpus), found.job("a").saves) == (2, None)
