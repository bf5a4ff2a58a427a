"""Halt and resume while the job is on its way to what was asked before."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core.limits import LOCAL
from reshape_controller.core.model import HostId, JobId, JobState, Mechanism, Stage
from reshape_sidecar.wire import Mode, OnSaveTimeout, Outcome, OutcomeKind
from tests.support.world import World

A = JobId("a")


def saved_and_ends(world: World) -> None:
    """``a`` says that nothing of it runs any more; its container is still there."""
    c, desired = world.container("a"), world.engine.desired(A)
    assert desired is not None
    c.running, c.generation = (), desired.generation
    c.outcome = Outcome(desired.generation, OutcomeKind.STOPPING, c.step)
    c.stopped_generation = desired.generation
    world.report(c)
    assert world.job("a").stage is Stage.ENDING


@pytest.mark.parametrize("ending", [False, True])
def test_a_resume_takes_back_a_halt_that_is_under_way(ending: bool) -> None:
    world = World().boot()
    world.running("a", 4, 4)
    world.auto = False
    world.event(ev.HaltRequested(A, "ann"))
    if ending:
        saved_and_ends(world)
    world.event(ev.ResumeRequested(A, "ann"))
    world.auto = True
    world.settle()
    a = world.job("a")
    assert (a.state, a.stage, a.reason) == (JobState.SUBMITTED, Stage.NONE, "resumed by ann")


def test_a_resume_forgives_struck_sizes_also_before_the_container_has_ended() -> None:
    world = World().boot()
    world.running("a", 2, 2)
    world.train("a", 10)
    world.container("a").crashes = True
    world.auto = False
    world.crash("a")
    world.settle_until("a", Stage.ENDING)
    assert (world.job("a").after_end, world.job("a").sizes) == (JobState.HALTED, ())
    world.event(ev.ResumeRequested(A, "ann"))
    world.auto = True
    world.settle()
    assert (world.job("a").state, world.job("a").sizes) == (JobState.SUBMITTED, (2,))


def test_a_resume_of_a_job_that_was_cancelled_meanwhile_is_void() -> None:
    world = World().boot()
    world.running("a", 4, 4)
    world.auto = False
    world.event(ev.HaltRequested(A, "ann"))
    world.event(ev.CancelRequested(A, "bob"))
    world.event(ev.ResumeRequested(A, "ann"))
    assert world.job("a").reason == "cancelled by bob"
    assert "resumed" not in world.kinds


@pytest.mark.parametrize("mechanism", [Mechanism.TERMINATE, Mechanism.SIDECAR])
def test_a_halt_holds_when_a_job_that_moves_has_saved_already(mechanism: Mechanism) -> None:
    world = World(mechanism=mechanism).boot(hosts=2)
    world.running("a", 2, 2, 4)
    world.auto = False
    world.plan(("a", 4), host="host-1")
    saved_and_ends(world)
    world.event(ev.HaltRequested(A, "ann"))
    world.auto = True
    world.kill_container("a", code=0)
    world.settle()
    a = world.job("a")
    assert (a.state, a.stage, a.attempt, a.hand_over) == (JobState.HALTED, Stage.NONE, 1, None)
    assert world.gpu_states() == ["idle"] * 8


def test_who_asked_is_the_reason_while_a_job_leaves_and_afterwards() -> None:
    world = World().boot()
    world.running("a", 2, 2)
    world.running("b", 2, 2)
    world.auto = False
    world.event(ev.HaltRequested(A, "ann"))
    assert world.job("a").reason == "paused by ann"
    world.auto = True
    world.settle()
    assert world.job("a").reason == "paused by ann"
    world.event(ev.HostDrained(HostId("host-0"), "op"))
    assert world.job("b").reason == "host-0 is drained"


def test_the_history_says_why_a_job_is_asked_to_leave() -> None:
    world = World().boot()
    world.running("a", 2, 2)
    asked = [
        entry.text
        for entry in world.engine.step(ev.HostDrained(HostId("host-0"), "op"), world.now_s).history
        if entry.kind == "leave-asked"
    ]
    assert asked == ["host-0 is drained"]


def test_the_history_says_once_that_a_host_is_used_again() -> None:
    world = World().boot()
    taken_back = ev.HostUndrained(HostId("host-0"), "op")
    told = []
    for event in (taken_back, ev.HostDrained(HostId("host-0"), "op"), taken_back, taken_back):
        told += [entry.kind for entry in world.engine.step(event, world.now_s).history]
    assert told == ["host-drained", "host-undrained"]


@pytest.mark.parametrize(("rules", "length_s"), [(1, LOCAL.kill_after_s), (0, LOCAL.save_min_s)])
def test_a_cancelled_program_has_the_time_from_term_to_kill(rules: int, length_s: float) -> None:
    """In a log of an earlier release (rules 0) it has its save deadline."""
    world = World(limits=replace(LOCAL, cancel_rules=rules)).boot()
    world.running("a", 4, 4)
    world.auto = False
    world.event(ev.CancelRequested(A, "ann"))
    desired = world.engine.desired(A)
    assert desired is not None
    assert (desired.mode, desired.on_save_timeout) == (Mode.EXIT, OnSaveTimeout.KILL)
    assert desired.save_deadline_s == length_s


def test_a_job_that_is_cancelled_while_it_saves_has_no_longer_than_that() -> None:
    world = World().boot()
    world.running("a", 4, 4)
    world.auto = False
    world.event(ev.HaltRequested(A, "ann"))
    before = world.engine.desired(A)
    world.event(ev.CancelRequested(A, "ann"))
    after = world.engine.desired(A)
    assert before is not None
    assert after is not None
    assert before.save_deadline_s == LOCAL.save_min_s
    assert after.generation > before.generation
    assert after.save_deadline_s == LOCAL.kill_after_s
