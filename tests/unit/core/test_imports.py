"""A newcomer's imports, during which its donors train: awaited, ended, late, failed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from reshape_controller.core import events as ev
from reshape_controller.core import invariants
from reshape_controller.core.engine import Engine
from reshape_controller.core.errors import InvariantError
from reshape_controller.core.limits import KUBERNETES, LOCAL, Limits
from reshape_controller.core.model import DeadlineKind, JobId, JobState, Mechanism, Stage
from reshape_controller.core.state import State
from reshape_sidecar.wire import Phase, Standby, StandbyState
from tests.support.hand_over_scenes import assert_given_back
from tests.support.world import World

IMPORTS = Standby(StandbyState.STARTING)
READY = Standby(StandbyState.READY)
SLOW = "its framework is not imported after 60 s; it imports on, on its GPUs"


def importing(
    limits: Limits = LOCAL,
    mechanism: Mechanism = Mechanism.SIDECAR,
    standby: Standby | None = IMPORTS,
) -> World:
    """Job a trains on four GPUs and shall give two to b, which is initialised and imports."""
    found = World(mechanism=mechanism, limits=limits).boot(4)
    found.running("a", 4, 1, 2, 4)
    found.submit("b", 2)
    if standby is not None:
        found.new_containers[JobId("b")] = {"standby": standby}
    found.plan(("b", 2), ("a", 2))
    return found


def reports(found: World, standby: Standby) -> None:
    """The SideCar of b reports this of its zygote."""
    container = found.container("b")
    container.standby = standby
    found.report(container)


def waits(found: World) -> bool:
    """Whether b waits for its imports while a trains on all its GPUs, asked for nothing."""
    a, b = found.job("a"), found.job("b")
    is_awaited = b.deadline is not None and b.deadline.kind is DeadlineKind.IMPORTS
    trains = (a.stage, len(a.gpus), a.change, a.process_restarts) == (Stage.TRAINING, 4, None, 0)
    return is_awaited and trains and (b.stage, b.gpus) == (Stage.READY, ())


def end(found: World) -> str:
    """Return how the wait ended, by the history."""
    (entry,) = found.entries("imports-ended")
    return entry.text


def test_donors_train_on_until_the_newcomer_has_imported() -> None:
    found = importing()
    assert waits(found)
    found.train("a", 10)
    reports(found, IMPORTS)
    assert waits(found)
    assert "shrink-asked" not in found.kinds
    reports(found, READY)
    assert len(found.job("b").gpus) == len(found.job("a").gpus) == 2
    assert end(found) == "its framework is imported"


def test_the_job_says_that_it_imports_and_for_how_long_its_donors_wait() -> None:
    found = importing()
    b = found.job("b")
    assert b.reason == "imports its framework; the jobs that give it GPUs train on meanwhile"
    assert b.deadline is not None
    assert b.deadline.length_s == LOCAL.imports_s
    assert found.entries("imports-awaited")[0].text == "its donors train on for at most 60 s"


def test_donors_are_asked_after_the_limit_and_the_history_says_why() -> None:
    found = importing()
    found.wait(LOCAL.imports_s - 1.0)
    assert waits(found)
    found.wait(2.0)
    assert len(found.job("b").gpus) == len(found.job("a").gpus) == 2
    assert end(found) == SLOW
    assert "imports: 60 s have passed" in found.texts
    assert (LOCAL.imports_s, KUBERNETES.imports_s) == (60.0, 300.0)
    reports(found, READY)
    assert len(found.entries("imports-ended")) == 1


@pytest.mark.parametrize(
    "standby",
    [
        None,
        READY,
        Standby(StandbyState.OFF, "no zygote for this command"),
        Standby(StandbyState.NONE, "the zygote ended with exit code 1"),
    ],
)
def test_a_newcomer_without_imports_under_way_waits_for_none(standby: Standby | None) -> None:
    found = importing(standby=standby)
    assert len(found.job("b").gpus) == len(found.job("a").gpus) == 2
    assert not found.entries("imports-awaited")


@pytest.mark.parametrize("state", [StandbyState.NONE, StandbyState.OFF])
def test_a_zygote_that_fails_ends_the_wait_and_is_no_failure_of_the_job(
    state: StandbyState,
) -> None:
    found = importing()
    reports(found, Standby(state, "the zygote ended with exit code 1"))
    b = found.job("b")
    assert (len(b.gpus), b.failures, b.start_failures, b.struck) == (2, 0, (), ())
    assert end(found) == "it starts without early imports: the zygote ended with exit code 1"


def container_ends(found: World) -> None:
    found.kill_container("b", code=1)


def is_unfit(found: World) -> None:
    container = found.container("b")
    container.phase, container.error = Phase.UNFIT, "its disk is full"
    found.report(container)


def falls_silent(found: World) -> None:
    found.container("b").reachable = False
    found.event(ev.SideCarFellSilent(JobId("b"), 1))


def is_cancelled(found: World) -> None:
    found.event(ev.CancelRequested(JobId("b"), "ann"))


def is_paused(found: World) -> None:
    found.event(ev.HaltRequested(JobId("b"), "ann"))


FAILURES = [container_ends, is_unfit, falls_silent, is_cancelled, is_paused]


@pytest.mark.parametrize("fails", FAILURES, ids=lambda fails: fails.__name__)
def test_a_newcomer_that_fails_while_it_imports_costs_its_donors_nothing(
    fails: Callable[[World], None],
) -> None:
    found = importing()
    before = found.job("a")
    fails(found)
    found.settle()
    found.wait(LOCAL.imports_s + 1.0)
    assert_given_back(found)
    a = found.job("a")
    assert (a.generation, a.reshape_downs) == (before.generation, 0)
    assert "shrink-asked" not in found.kinds


def test_a_donor_that_completes_gives_its_gpus_to_the_newcomer_at_once() -> None:
    found = importing()
    found.finish("a")
    assert found.job("a").state is JobState.COMPLETED
    assert (len(found.job("b").gpus), found.job("b").stage) == (2, Stage.TRAINING)


def test_idle_gpus_that_turn_up_spare_the_donor_of_a_newcomer_that_imports() -> None:
    found = World().boot(8)
    found.running("a", 4, 1, 2, 4)
    found.running("c", 4, 4)
    found.submit("b", 2)
    found.new_containers[JobId("b")] = {"standby": IMPORTS}
    found.plan(("b", 2), ("a", 2))
    assert waits(found)
    found.finish("c")
    assert len(found.job("b").gpus) == 2
    assert (len(found.job("a").gpus), found.job("a").reshape_downs) == (4, 0)


def test_idle_gpus_are_granted_while_the_newcomer_imports() -> None:
    found = World().boot(4)
    found.new_containers[JobId("b")] = {"standby": IMPORTS}
    found.submit("b", 2)
    found.plan(("b", 2))
    assert len(found.job("b").gpus) == 2


def test_a_newcomer_that_was_initialised_before_its_plan_is_waited_for_too() -> None:
    found = importing()
    found.container("a").reachable = False
    found.event(ev.SideCarFellSilent(JobId("a"), 1))
    b = found.job("b")
    assert (b.stage, b.hand_over) == (Stage.READY, None)
    assert b.deadline is not None
    assert b.deadline.kind is DeadlineKind.INITIALIZED_HOLD
    found.container("a").reachable = True
    found.report(found.container("a"))
    found.plan(("b", 2), ("a", 2))
    assert waits(found)
    reports(found, READY)
    assert len(found.job("b").gpus) == len(found.job("a").gpus) == 2


def test_the_mechanism_terminate_asks_its_donors_before_any_import() -> None:
    found = importing(mechanism=Mechanism.TERMINATE)
    assert len(found.job("b").gpus) == len(found.job("a").gpus) == 2
    assert not found.entries("imports-awaited")


def test_a_restarted_controller_waits_again_and_asks_no_donor_before_all_have_answered() -> None:
    found = importing()
    found.now_s += 50.0
    found.engine = Engine(State.load(found.engine.state.dump()))
    found.auto = False
    found.event(ev.ControllerStarted(2, "test", Mechanism.SIDECAR, found.limits))
    deadline = found.job("b").deadline
    assert deadline is not None
    assert deadline.at_s == found.now_s + LOCAL.imports_s
    reports(found, READY)
    assert found.job("a").stage is Stage.TRAINING, "a has not answered (R6)"
    found.auto = True
    found.report(found.container("a"))
    found.settle()
    assert len(found.job("b").gpus) == len(found.job("a").gpus) == 2


def test_a_log_of_the_release_before_asks_its_donors_as_it_did() -> None:
    found = importing(limits=replace(LOCAL, import_rules=0))
    assert len(found.job("b").gpus) == len(found.job("a").gpus) == 2
    assert not found.entries("imports-awaited")
    assert found.replay() == found.log
    assert Limits().import_rules == 0, "a log that does not name it is of the release before"


def test_a_wait_for_imports_is_replayed_byte_by_byte() -> None:
    found = importing()
    found.wait(10.0)
    reports(found, READY)
    assert found.replay() == found.log


def test_no_job_but_a_newcomer_awaits_imports() -> None:
    found = importing()
    deadline = found.job("b").deadline
    state = found.engine.state
    state.put_job(replace(state.jobs[JobId("a")], deadline=deadline))
    with pytest.raises(InvariantError, match="awaits imports"):
        invariants.check(state)
